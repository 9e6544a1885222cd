"""Clients that use grpcio: producers that never retry, readers, and batches that no producer should send."""

import queue
import time
import zlib
from collections.abc import Iterator
from typing import Any

import grpc

from bearlake.errors import BearlakeError
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records import codec as record_codec
from nemesis.recording import digest, now
from nemesis.script import ODD_STREAM, STREAM, Script
from simulator.generated_batches import generate_batch

TIMEOUT_S = 15.0
RECONNECT_S = 0.3
READ_S = 20.0
AGAIN_COUNT = 2_000
BYTES_MAX = 1 << 24
HEADER_BYTES = 21
"""Size of the part of a batch before the bytes that its CRC covers: offset, length, leader epoch, magic and CRC."""
PLENTY = pb.Credit(bytes=1 << 40, messages=1 << 30)
REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED)


def _channel(script: Script) -> Any:
    addresses = "ipv4:" + ",".join(script.addresses("grpc"))
    return grpc.insecure_channel(addresses, [("grpc.use_local_subchannel_pool", 1)])


def _unary(channel: Any, method: Method[Any, Any], request: Any) -> Any:
    call = channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    return call(request, timeout=TIMEOUT_S)


def produce(script: Script) -> None:
    """Produce one record per call."""
    pace, number, session = script.pace(), 0, 0
    while script.is_running:
        session += 1
        with _channel(script) as channel:
            is_sound = True
            while script.is_running and is_sound:
                partition, name = number % script.partition_count, f"{script.life}.{number}"
                payload = pb.Payload(records=pb.Records(records=[pb.Record(value=name.encode())]))
                is_sound = _produce(script, channel, STREAM, partition, payload, [[name]], number, session)
                number += 1
                pace.step()


def _produce(
    script: Script, channel: Any, stream: str, partition: int, payload: Any, records: Any, number: int, session: int
) -> bool:
    operation = script.history.invoke(
        "produce", log=(stream, partition), producer=script.life, kind="single", sequence=number,
        session=f"{script.life}-{session}", records=records, tabular=stream == STREAM,
    )  # fmt: skip
    try:
        request = pb.ProduceRequest(stream=stream, partition=partition, payload=payload)
        answer = _unary(channel, methods.PRODUCE, request)
    except grpc.RpcError as error:
        why = error.code().name  # type: ignore[attr-defined]
        script.history.note(f"grpc {why}")
        if error.code() in REFUSALS:  # type: ignore[attr-defined]
            script.history.fail(operation, why)
            return True
        script.history.unknown(operation, why)
        script.pause(RECONNECT_S)
        return False
    script.history.ok(operation, offset=answer.base_offset)
    return True


def produce_odd_batches(script: Script) -> None:
    """Produce unusual batches: compressed, unusual headers and keys, null values, garbage. The history records whole batches."""
    pace, number, session = script.pace(), 0, 0
    no_producer = record_codec.Producer()
    while script.is_running:
        session += 1
        with _channel(script) as channel:
            is_sound = True
            while script.is_running and is_sound:
                values = [f"{script.life}.{number}.{at}".encode() for at in range(script.random.randint(1, 5))]
                now_ms = int(time.time() * 1000)  # retention would delete older records
                made = [record_codec.Record(value=value, timestamp=now_ms) for value in values]
                batch, _ = generate_batch(made, no_producer, script.random, codec_rate=0.5, inexact_rate=0.3)
                records = [[f"{_name(batch)}/{at}", _digest(batch)] for at in range(len(values))]
                is_sound = _produce(
                    script, channel, ODD_STREAM, number % script.partition_count, pb.Payload(record_batches=batch),
                    records, number, session,
                )  # fmt: skip
                number += 1
                for _ in range(5):
                    pace.step()


def _digest(batch: bytes) -> str:
    """Return a digest of what must stay the same: the decoded records, or the bytes of a batch that does not decode."""
    try:
        records = record_codec.decode(batch, BYTES_MAX)
    except BearlakeError:  # garbage is stored unchanged
        return f"{zlib.crc32(batch[HEADER_BYTES:]):08x}"
    return f"{zlib.crc32(repr([(r.key, r.value, r.headers, r.timestamp) for r in records]).encode()):08x}"


def _name(batch: bytes) -> str:
    return f"odd-{_digest(batch)}"


def read(script: Script) -> None:
    """Follow all partitions of the main stream."""
    positions = dict.fromkeys(range(script.partition_count), 0)
    _follow(script, STREAM, positions, pb.FORM_RECORDS)


def read_odd_batches(script: Script) -> None:
    """Follow the stream of unusual batches, repeatedly from an earlier offset, so that compacted records are read again."""
    positions = dict.fromkeys(range(script.partition_count), 0)
    while script.is_running:
        _follow(script, ODD_STREAM, positions, pb.FORM_RECORD_BATCHES, READ_S)
        positions = {at: script.random.randint(max(0, end - AGAIN_COUNT), end) for at, end in positions.items()}
        script.pause(RECONNECT_S)
    _read_odd_batches_completely(script)


def _read_odd_batches_completely(script: Script) -> None:
    """Read up to the ends that the partitions have when the client is asked to end; producers have ended before."""
    with _channel(script) as channel:
        found = _unary(channel, methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name=ODD_STREAM))
        positions = dict.fromkeys(range(script.partition_count), 0)
        outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        assign = [pb.Position(stream=ODD_STREAM, partition=at, offset=0) for at in positions]
        outgoing.put(pb.FetchRequest(assign=assign, credit=PLENTY, form=pb.FORM_RECORD_BATCHES))
        call = _open_fetch(channel, outgoing)
        for answer in call:
            _take(script, ODD_STREAM, answer, positions, now())
            if all(positions[partition.partition] >= partition.end_offset for partition in found.partitions):
                break
        outgoing.put(None)
    for partition in positions:
        script.history.ok(script.history.invoke("complete", log=(ODD_STREAM, partition)))


def _open_fetch(channel: Any, outgoing: "queue.SimpleQueue[Any]") -> Any:
    return channel.stream_stream(
        methods.FETCH.path,
        request_serializer=methods.FETCH.request.SerializeToString,
        response_deserializer=methods.FETCH.response.FromString,
    )(iter(outgoing.get, None), timeout=READ_S)


def _follow(script: Script, stream: str, positions: dict[int, int], form: Any, seconds: float = 1e9) -> None:
    end = now() + int(seconds * 1e9)
    while script.is_running and now() < end:
        with _channel(script) as channel:
            outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
            script.on_end(lambda outgoing=outgoing: outgoing.put(None))
            assign = [pb.Position(stream=stream, partition=at, offset=offset) for at, offset in positions.items()]
            outgoing.put(pb.FetchRequest(assign=assign, credit=PLENTY, form=form))
            call = _open_fetch(channel, outgoing)
            asked = now()
            try:
                for answer in call:
                    _take(script, stream, answer, positions, asked)
                    asked = now()
                    if answer.HasField("drain") or not script.is_running:
                        break
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:  # type: ignore[attr-defined]
                    script.history.note(f"grpc read {error.code().name} {error.details()}")  # type: ignore[attr-defined]
            finally:
                outgoing.put(None)
        script.pause(RECONNECT_S)


def _take(script: Script, stream: str, answer: Any, positions: dict[int, int], asked: int) -> None:
    if answer.HasField("error"):
        script.history.note(f"grpc read {stream}: {answer.error.message}")
        return
    if stream == STREAM:
        seen = [
            (record.offset, record.value.decode(), digest(record.key if record.HasField("key") else None, record.value,
             [(h.key.decode(), h.value) for h in record.headers], record.timestamp_ms))
            for record in answer.payload.records.records
        ]  # fmt: skip
    else:
        seen = [record for batch in _batches(answer.payload.record_batches) for record in _records(batch)]
    start = positions[answer.partition]
    seen = [record for record in seen if record[0] >= start]  # the first batch may begin earlier
    if seen:
        operation = script.history.invoke(
            "read", at=asked, log=(stream, answer.partition), start=start, protocol="grpc"
        )
        script.history.ok(operation, records=seen)
        positions[answer.partition] = answer.next_offset


def _batches(raw: bytes) -> Iterator[bytes]:
    """Yield the record batches. Source: Kafka's record batch v2 (length at byte 8, which does not count the first 12 bytes)."""
    at = 0
    while at < len(raw):
        length = 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
        yield raw[at : at + length]
        at += length


def _records(batch: bytes) -> list[tuple[int, str, str]]:
    base, last = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[23:27], "big")
    return [(base + at, f"{_name(batch)}/{at}", _digest(batch)) for at in range(last + 1)]
