"""gRPC against a server process: payload bytes and messages per second of server CPU, over one call.

    .venv/bin/python bench/grpc_calls.py [--seconds 5] [--case NAME]

Goals, per core-second of the server: ProduceStream with batches of 1 MiB 300 MB, Fetch 400 MB, messages of 16 KiB 5,000. The server is
`bearlake serve grpc` on stores in a local folder; its CPU time is read from the operating system, so the client's CPU
does not count. One process sends as fast as the server acknowledges.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc.aio
import psutil
import pyarrow

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records import codec

MIB = 1024 * 1024
WARM_UP_S = 1.0
READ_BYTES = 64 * MIB
SMALL_COUNT = 4096
"""Records of 100 bytes in a message, about 400 KiB."""


def batch_of(size_bytes):
    """A record batch of one record."""
    return codec.encode([codec.Record(key=b"key", value=bytes(size_bytes), timestamp=int(time.time() * 1000))])


def small_records():
    """Many records of 100 bytes in one message."""
    return pb.Records(records=[pb.Record(key=b"key", value=bytes(100)) for _ in range(SMALL_COUNT)])


def small_arrow():
    """The same records as Arrow columns."""
    rows = pyarrow.record_batch({"key": [b"key"] * SMALL_COUNT, "value": [bytes(100)] * SMALL_COUNT})
    return pb.ArrowRecords(schema=bytes(rows.schema.serialize()), record_batch=bytes(rows.serialize()))


def stub(channel, method):
    """A call of a method with streams."""
    return channel.stream_stream(
        method.path,
        request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
        response_deserializer=method.response.FromString,
    )()


async def produce(channel, stream, payload, meter, window):
    """Send this payload repeatedly, `window` batches ahead of the acknowledgements."""
    call = stub(channel, methods.PRODUCE_STREAM)
    first = pb.ProduceStreamRequest(stream=stream, payload=payload).SerializeToString()
    room = asyncio.Semaphore(window)

    async def acknowledge():
        known = 0
        while (answer := await call.read()) is not grpc.aio.EOF:
            count = answer.acknowledged_count - known
            known = answer.acknowledged_count
            meter.add(count)
            for _ in range(count):
                room.release()

    task = asyncio.create_task(acknowledge())
    while not meter.is_over:
        await room.acquire()
        await call.write(first)
    await call.done_writing()
    await task


async def fetch(channel, stream, form, meter):
    """Read repeatedly from the beginning."""
    while not meter.is_over:
        call = stub(channel, methods.FETCH)
        start = pb.Position(stream=stream, earliest=True)
        credit = pb.Credit(bytes=16 * MIB, messages=1000)
        await call.write(pb.FetchRequest(form=form, assign=[start], credit=credit))
        while not meter.is_over:
            answer = await call.read()
            meter.add(1, answer.credit_bytes)
            if answer.next_offset == answer.end_offset:
                break
            await call.write(pb.FetchRequest(credit=pb.Credit(bytes=answer.credit_bytes, messages=1)))
        call.cancel()


class Meter:
    """Counts from the end of the warm-up to the end, with the server's CPU time."""

    def __init__(self, process, seconds, size_bytes):
        self.process, self.seconds, self.size_bytes = process, seconds, size_bytes
        self.begin = time.monotonic()
        self.since = None
        self.count = self.bytes = 0
        self.is_over = False
        self.result = {}

    def add(self, count, size_bytes=None):
        """Count `count` messages; the first call after the warm-up starts the measurement."""
        now = time.monotonic()
        if self.since is None:
            if now - self.begin > WARM_UP_S:
                self.since, self.cpu = now, self.cpu_s()
            return
        self.count += count
        self.bytes += self.size_bytes * count if size_bytes is None else size_bytes
        if now - self.since > self.seconds and not self.is_over:
            self.is_over = True
            cpu, wall = self.cpu_s() - self.cpu, now - self.since
            self.result = {
                "MB_per_core_second": round(self.bytes / cpu / 1e6, 1),
                "messages_per_core_second": round(self.count / cpu),
                "MB_per_second": round(self.bytes / wall / 1e6, 1),
                "cores": round(cpu / wall, 2),
            }

    def cpu_s(self):
        """Return the server's CPU time so far, in seconds."""
        times = self.process.cpu_times()
        return times.user + times.system


async def measure(process, address, seconds, requested):
    """All cases, printed one per line."""
    watched = psutil.Process(process.pid)
    options = [("grpc.max_receive_message_length", -1)]
    raw_1m, raw_16k = batch_of(MIB - 1024), batch_of(16 * 1024)
    records_16k = pb.Records(records=[pb.Record(key=b"key", value=bytes(16 * 1024))])
    cases = {
        "ProduceStream, 1 MiB batches": lambda channel, meter: produce(
            channel, "large", pb.Payload(record_batches=raw_1m), meter, 16
        ),
        "ProduceStream, 16 KiB batches": lambda channel, meter: produce(
            channel, "small", pb.Payload(record_batches=raw_16k), meter, 512
        ),
        "ProduceStream, 16 KiB records": lambda channel, meter: produce(
            channel, "small", pb.Payload(records=records_16k), meter, 512
        ),
        "ProduceStream, 100 B records": lambda channel, meter: produce(
            channel, "small", pb.Payload(records=small_records()), meter, 16
        ),
        "ProduceStream, 100 B records in Arrow": lambda channel, meter: produce(
            channel, "small", pb.Payload(arrow=small_arrow()), meter, 16
        ),
        "Fetch, 1 MiB of batches": lambda channel, meter: fetch(channel, "read", pb.FORM_RECORD_BATCHES, meter),
        "Fetch, 16 KiB records": lambda channel, meter: fetch(channel, "read_small", pb.FORM_RECORDS, meter),
        "Fetch, 100 B records": lambda channel, meter: fetch(channel, "read_tiny", pb.FORM_RECORDS, meter),
        "Fetch, 100 B records in Arrow": lambda channel, meter: fetch(channel, "read_tiny", pb.FORM_ARROW, meter),
    }
    tiny = codec.encode([codec.Record(key=b"key", value=bytes(100), timestamp=1)] * SMALL_COUNT)
    sizes = {"ProduceStream, 1 MiB batches": len(raw_1m)}
    sizes |= dict.fromkeys(["ProduceStream, 100 B records", "ProduceStream, 100 B records in Arrow"], len(tiny))
    async with grpc.aio.insecure_channel(address, options) as channel:
        for name in ("large", "small", "read", "read_small", "read_tiny"):
            await channel.unary_unary(
                methods.CREATE_STREAM.path,
                request_serializer=pb.CreateStreamRequest.SerializeToString,
                response_deserializer=pb.Stream.FromString,
            )(pb.CreateStreamRequest(name=name, partition_count=1, configs={"max.message.bytes": str(4 * MIB)}))
        for name, batch in (("read", raw_1m), ("read_small", raw_16k), ("read_tiny", tiny)):
            call = stub(channel, methods.PRODUCE_STREAM)
            for _ in range(READ_BYTES // len(batch)):
                await call.write(pb.ProduceStreamRequest(stream=name, payload=pb.Payload(record_batches=batch)))
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
        for name, run in cases.items():
            if requested in name:
                meter = Meter(watched, seconds, sizes.get(name, len(raw_16k)))
                await run(channel, meter)
                print(json.dumps({"case": name, **meter.result}), flush=True)


@contextlib.contextmanager
def server(folder):
    """(process, address) of `bearlake serve grpc` on stores in the folder."""
    ready = folder / "ready.json"
    (folder / "objects").mkdir()
    words = [sys.executable, "-m", "bearlake", "serve", "grpc", "--grpc-port", "0", "--admin-port", "0"]
    words += ["--metadata-url", f"sqlite:///{folder}/metadata.db", "--object-store-url", f"file://{folder}/objects"]
    process = subprocess.Popen([*words, "--ready-file", ready], stdout=subprocess.DEVNULL)
    try:
        for _ in range(2000):
            if ready.exists() or process.poll() is not None:
                break
            time.sleep(0.01)
        yield process, json.loads(ready.read_text())["grpc"]
    finally:
        process.kill()
        process.wait()


def main():
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as (process, address):
        asyncio.run(measure(process, address, asked.seconds, asked.case))


if __name__ == "__main__":
    main()
