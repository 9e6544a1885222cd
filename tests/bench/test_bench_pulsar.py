"""The Pulsar load generator against a minimal server that checks what it receives; the table of moves."""

import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import Struct

import pytest
from bench.errors import BenchError
from bench.loading import Load
from bench.pulsar_cases import BY_NAME, CASES, EXTRA
from bench.pulsar_frames import FIRST_SEQUENCE_ID, Entry
from bench.pulsar_moves import Move, MoveResult
from bench.report import OURS

from bearlake.protocols.pulsar import framing
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand
from bearlake.protocols.pulsar.proto.metadata_pb2 import MessageMetadata, SingleMessageMetadata
from bench import loading, pulsar_frames, pulsar_moves, templates

SIZE = Struct(">I")
BATCH = Entry(message_count=3, message_bytes=100)
ALONE = Entry(message_count=1, message_bytes=100)
LEDGER = 7
NO_LEDGER = (1 << 64) - 1
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")


@dataclass
class Listener:
    """Serves one connection: a producer, or a consumer that is sent the same batch for whatever it has room for."""

    ledger: int = LEDGER
    refuses: bool = False
    sent: list[tuple[BaseCommand, bytes]] = field(default_factory=list)
    """SENDs, each with its message from the magic on."""
    permits: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    delivered: int = 0

    def __post_init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    name, pid = "listener", 1

    def counters(self) -> None:
        return None

    def close(self) -> None:
        self._socket.close()
        self._thread.join(10)

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            stream = connection.makefile("rb")
            while prefix := stream.read(SIZE.size):
                frame = stream.read(*SIZE.unpack(prefix))
                (size,) = SIZE.unpack_from(frame)
                command = BaseCommand.FromString(frame[SIZE.size : SIZE.size + size])
                for answer in self._answers(command, frame[SIZE.size + size :]):
                    try:
                        connection.sendall(answer)
                    except OSError:  # the run is over
                        return

    def _answers(self, command: BaseCommand, message: bytes) -> Iterator[bytes]:
        if command.HasField("connect"):
            yield answer("connected", 3)
        elif command.HasField("producer"):
            yield answer("producer_success", 17)
        elif command.HasField("subscribe"):
            yield answer("ping", 18)
            yield answer("success", 13)
        elif command.HasField("send"):
            yield self._receipt(command, message)
        elif command.HasField("flow"):
            self.permits.append(command.flow.message_permits)
            for _ in range(command.flow.message_permits // BATCH.message_count):
                yield self._message()
        elif command.HasField("ack"):
            self.acknowledged += [id_.entry_id for id_ in command.ack.message_id]

    def _receipt(self, command: BaseCommand, message: bytes) -> bytes:
        self.sent.append((command, message))
        if self.refuses:
            refusal = BaseCommand(type=8)
            refusal.send_error.message = "the topic is full"
            return framing.command_frame(refusal)
        receipt = BaseCommand(type=7)
        receipt.send_receipt.sequence_id = command.send.sequence_id
        receipt.send_receipt.message_id.ledger_id = self.ledger
        return framing.command_frame(receipt)

    def _message(self) -> bytes:
        out = BaseCommand(type=9)
        out.message.consumer_id = 0
        out.message.message_id.ledger_id = LEDGER
        out.message.message_id.entry_id = self.delivered * BATCH.message_count
        self.delivered += 1
        send = pulsar_frames.send(BATCH)
        return framing.message_frame(out, send[2 * SIZE.size + SIZE.unpack_from(send, SIZE.size)[0] :])


def answer(name: str, number: int) -> bytes:
    command = BaseCommand(type=number)
    getattr(command, name).SetInParent()
    return framing.command_frame(command)


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    yield server
    server.close()


def producing(directory: Path, entry: Entry, count: int) -> Load:
    templates.write_templates(directory, [pulsar_frames.producer("t", entry)])
    return Load(
        program="pulsar", templates=directory, connections=1, depth=2, seconds=20, requests_max=count,
        payload_bytes=entry.payload_bytes,
    )  # fmt: skip


@needs_gcc
def test_a_producer_counts_messages_and_its_sends_are_numbered_with_right_checksums(
    listener: Listener, tmp_path: Path
) -> None:
    run = loading.run_loader(listener, producing(tmp_path, BATCH, 5))

    assert (run.requests, run.payload_bytes) == (15, 1500)
    assert run.p50_ms is not None
    for number, (command, message) in enumerate(listener.sent):
        first = FIRST_SEQUENCE_ID + number * 3
        assert (command.send.sequence_id, command.send.highest_sequence_id) == (first, first + 2)
        metadata, payload = framing.read_message(memoryview(message))  # which raises when the checksum is wrong
        assert (metadata.sequence_id, metadata.highest_sequence_id) == (first, first + 2)
        assert singles(metadata, payload) == [(first + place, 100) for place in range(3)]


@needs_gcc
def test_a_single_message_is_not_a_batch(listener: Listener, tmp_path: Path) -> None:
    loading.run_loader(listener, producing(tmp_path, ALONE, 3))

    found = [framing.read_message(memoryview(message)) for _, message in listener.sent]
    assert [message.metadata.sequence_id - FIRST_SEQUENCE_ID for message in found] == [0, 1, 2]
    assert not any(message.metadata.HasField("num_messages_in_batch") for message in found)
    assert {len(message.payload) for message in found} == {100}


@needs_gcc
def test_an_error_of_the_server_fails_the_run(listener: Listener, tmp_path: Path) -> None:
    listener.refuses = True

    with pytest.raises(BenchError, match="the server says command 8 the topic is full"):
        loading.run_loader(listener, producing(tmp_path, BATCH, 5))


@needs_gcc
def test_a_receipt_of_a_duplicate_fails_the_run(listener: Listener, tmp_path: Path) -> None:
    listener.ledger = NO_LEDGER

    with pytest.raises(BenchError, match="taken for a duplicate"):
        loading.run_loader(listener, producing(tmp_path, BATCH, 5))


@needs_gcc
def test_a_consumer_asks_for_as_much_as_fits_and_stops_when_all_is_consumed(listener: Listener, tmp_path: Path) -> None:
    templates.write_templates(tmp_path, [pulsar_frames.consumer("t", 0, "Shared")])
    load = Load(program="pulsar", templates=tmp_path, connections=1, depth=60, seconds=20, payload_bytes=100)

    run = loading.run_loader(listener, replace(load, requests_max=6000))

    assert (run.requests, run.payload_bytes) == (6000, 600_000)
    assert run.p50_ms is None
    assert listener.permits[0] == 60
    assert set(listener.permits[1:]) == {30}
    assert listener.acknowledged[:1000] == list(range(0, 3000, 3))


def singles(metadata: MessageMetadata, payload: memoryview) -> list[tuple[int, int]]:
    """Sequence id and size of each message of a batch, to its last byte."""
    found, at = [], 0
    for _ in range(metadata.num_messages_in_batch):
        (size,) = SIZE.unpack_from(payload, at)
        single = SingleMessageMetadata.FromString(bytes(payload[at + SIZE.size : at + SIZE.size + size]))
        found.append((single.sequence_id, single.payload_size))
        at += SIZE.size + size + single.payload_size
    assert at == len(payload)
    return found


MOVE = Move(
    sent=100, failures=[], lost=0, duplicates=0, receipt_gap_ms=5.0, message_gap_ms=6.0, receipt_gap_before_ms=1.0,
    message_gap_before_ms=2.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("move", "missed"),
    [
        (MOVE, []),
        (replace(MOVE, receipt_gap_ms=9.0), ["producer"]),
        (replace(MOVE, message_gap_ms=9.0), ["consumer"]),
        (replace(MOVE, duplicates=1), ["twice"]),
        (replace(MOVE, lost=1), ["lost"]),
    ],
)
def test_a_move_misses_its_goal_by_time_or_by_lost_or_duplicate_messages(move: Move, missed: list[str]) -> None:
    assert pulsar_moves.missed("python", [move]) == missed


def test_the_table_of_moves_shows_medians_and_failures() -> None:
    moves = [replace(MOVE, receipt_gap_ms=ms) for ms in (5.0, 30.0, 6.0)]
    good = MoveResult(name="move-python", client="python", moves={OURS: moves})
    bad = MoveResult(name="move-java", client="java", failures={OURS: "the java client ended with 1"})

    text = pulsar_moves.text([good, bad])

    assert "6.0 [5.0-30.0]" in text
    assert "reached" in text
    assert "- move-java, bearlake: the java client ended with 1" in text


def test_every_pulsar_case_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(CASES) + len(EXTRA)


class Server:
    """A server whose drain is never over before it is stopped."""

    address, http = "127.0.0.1:1", ""

    def __init__(self) -> None:
        self.told: list[str] = []

    def terminate(self) -> None:
        self.told.append("terminate")

    def stop(self) -> None:
        self.told.append("stop")

    def start(self) -> None:
        self.told.append("start")


def test_a_stopped_server_has_ended_before_the_next_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pulsar_moves.Pair(tmp_path, command=tmp_path)
    server = Server()
    monkeypatch.setattr(pair, "servers", [server])
    monkeypatch.setattr(pulsar_moves.pulsar_topics, "served_by", lambda *_: "pulsar://127.0.0.1:1")

    pair.move("t")
    pair.prepare_next_move()
    pair.prepare_next_move()

    assert server.told == ["terminate", "stop", "start"]
