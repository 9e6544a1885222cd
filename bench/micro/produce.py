"""CPU time of a Produce request in its connection: from the received bytes to the bytes of the answer, without a write path.

    python bench/micro/produce.py [--count 20000] [--rounds 9] [--bytes 1024] [--codec lz4] [--records 1] [--rules 0]

A Kafka connection gets requests of one idempotent batch each, one per read or sixteen per read. The write path is replaced: it copies
the batches and answers at once. CPU time of one thread per request, the best round. `--rules`: as many access rules, one of which allows
the requests.
"""

import argparse
import asyncio
import random
import time
from typing import Any

import uvloop

from bearlake import kernel
from bearlake.clock import SystemClock
from bearlake.metadata import registering
from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource
from bearlake.metadata.open import open_metadata
from bearlake.objects.memory import MemoryObjectStore
from bearlake.protocols.kafka import codec, dispatch
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.connection import Connection
from bearlake.protocols.kafka.server import KafkaServer
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.records.batch import Compression
from bearlake.records.codec import Producer, Record, encode
from bearlake.streams.append import Call
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams

_VERSION = 9


class Transport:
    """A transport that counts the bytes written to it."""

    def __init__(self) -> None:
        self.written_bytes = 0

    def get_extra_info(self, name: str) -> Any:  # as in asyncio
        """Return the client's address, the only known property."""
        return ("127.0.0.1", 1) if name == "peername" else None

    def is_closing(self) -> bool:
        """Never."""
        return False

    def write(self, chunk: bytes) -> None:
        """Take an answer."""
        self.written_bytes += len(chunk)

    def writelines(self, chunks: list[bytes]) -> None:
        """Take answers."""
        self.written_bytes += sum(map(len, chunks))

    def pause_reading(self) -> None:
        """Nothing is read here."""

    def resume_reading(self) -> None:
        """Nothing is read here."""


class WritePath:
    """Takes the batches and answers at once, as if they were committed."""

    def __init__(self) -> None:
        self._buffer = kernel.WriteBuffer(1 << 30)

    def open_buffer(self) -> kernel.WriteBuffer:
        """Return an empty buffer."""
        self._buffer = kernel.WriteBuffer(1 << 30)
        return self._buffer

    buffer_with_room = open_buffer

    def added(self, _: Call) -> None:
        """Join the buffer and answer its calls."""
        self._buffer.join(0, 0)
        for call in self._buffer.resolve([(0, 0, 0)] * self._buffer.count):
            assert isinstance(call, Call)
            call.done()


def _frame(size: int, compression: Compression, record_count: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    batch = encode(
        [Record(value=random.Random(at).randbytes(size // 2) * 2, timestamp=now_ms) for at in range(record_count)],
        codec=compression,
        producer=Producer(id=7, epoch=0, base_sequence=0),
    )
    request = m.ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            m.ProduceRequest.Topic(name="bench", partition_data=[m.ProduceRequest.Partition(index=0, records=batch)])
        ],
    )
    return b"".join(codec.request(ApiKey.PRODUCE, _VERSION).frame(1, "bench", request))


def _rule(at: int) -> AccessRule:
    name = f"bench-{at}" if at else "bench"
    return AccessRule(
        Resource.STREAM, name, PatternKind.LITERAL, "User:ANONYMOUS", "*", Operation.WRITE, Permission.ALLOW
    )


async def measure(count: int, rounds: int, frame: bytes, rule_count: int) -> None:
    """Print one line per number of requests in a read."""
    metadata = await open_metadata("memory:///")
    registration = await registering.register(
        metadata.servers, "bench", zone=None, endpoints={}, version="1", timeout_ms=600_000
    )
    streams = Streams(metadata, MemoryObjectStore(SystemClock()), registration.server, random_source=random.Random(1))
    await streams.start()
    await streams.create(ANONYMOUS, "bench", 1, {})
    await streams.access.create([_rule(at) for at in range(rule_count)])
    path = WritePath()
    streams.open_buffer, streams.added = path.open_buffer, path.added
    streams.buffer_with_room = path.buffer_with_room
    server = KafkaServer(streams, registration, KafkaSettings(), [])  # type: ignore[arg-type]
    await server.start()
    for together in (1, 16):
        connection = Connection(server.connections, server.context, dispatch.served(), "kafka")
        transport = Transport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        sent = frame * together
        best = float("inf")
        for _ in range(rounds):
            spent = 0
            for _ in range(count // together):
                started = time.thread_time_ns()
                view = connection.get_buffer(-1)
                view[: len(sent)] = sent
                connection.buffer_updated(len(sent))
                connection._pump()
                spent += time.thread_time_ns() - started
                await asyncio.sleep(0)
            best = min(best, spent / count / 1000)
        assert transport.written_bytes
        print(f"{together:3} per read   {best:6.2f} us per request")
        connection.connection_lost(None)
    await streams.close()
    await metadata.close()


def main() -> None:
    """Run by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--codec", choices=[codec.name.lower() for codec in Compression], default="none")
    parser.add_argument("--records", type=int, default=1)
    parser.add_argument("--rules", type=int, default=0)
    options = parser.parse_args()
    frame = _frame(options.bytes, Compression[options.codec.upper()], options.records)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(options.count, options.rounds, frame, options.rules))


if __name__ == "__main__":
    main()
