"""`bearlake up` on SQLite and a folder: killed under load, and restarted on the same data.

A kill leaves everything that was written to the operating system. A power cut leaves only what was forced to the disk: the
content of the file system's device at one moment, without later writes of the operating system. (Other tests of the object store and
the metadata store check, call by call, that every byte is forced to the disk before its acknowledgement and in the right order.)
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.checking import Acknowledged
from faults.cluster import Server
from faults.java_load import JavaProducer
from faults.load import Member, Producer, Reader, create_stream
from faults.traffic import AnyProducer, Traffic, seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "faults"
PARTITION_COUNT = 4
KILL_COUNT = 3
RESUME_S_MAX = 20.0
DEVICE_BYTES = 256 * 1024 * 1024
SNAPSHOT_ATTEMPTS = 20

Tell = Callable[[object], None]


def up(folder: Path, data: Path, name: str = "up") -> Server:
    """`bearlake up` on the folder `data`."""
    settings = {
        "server.name": "up",
        "logs.level": "INFO",
        "listeners.rest.port": 0,
        "listeners.registry.port": 0,
        "listeners.grpc.port": 0,
        "console.port": 0,
    }  # one name, like one port: a new process replaces the previous one
    return Server(folder, name, settings, words=("up", "--no-compaction", "--no-tour", "--data-dir", str(data)))


@contextlib.contextmanager
def ending(server: Server) -> Iterator[Server]:
    """End the server with the block, and print its log if the block failed."""
    try:
        yield server
    except BaseException:
        print(f"--- the end of {server.log} ---\n{server.said()}")
        raise
    finally:
        server.end()


def test_a_server_with_embedded_stores_survives_repeated_kills(folder: Path, load_s: float, tell: Tell) -> None:
    with ending(up(folder, folder / "data")) as server:
        server.start()
        create_stream([server.kafka], STREAM, PARTITION_COUNT)
        producers: list[AnyProducer] = [
            Producer("p1", server.kafka, STREAM, PARTITION_COUNT),
            JavaProducer(1, server.kafka, STREAM, folder, per_second=200),
        ]
        readers = [Reader("r1", server.kafka, STREAM, PARTITION_COUNT)]
        members = [Member("m1", server.kafka, STREAM, "faults-group")]
        with Traffic(STREAM, PARTITION_COUNT, producers, readers, members) as traffic:
            traffic.resumed(time.monotonic())
            for _ in range(KILL_COUNT):
                traffic.run_on(load_s)
                server.kill()
                killed_s = time.monotonic()
                server.start()
                start_s = time.monotonic() - killed_s
                found = traffic.resumed(killed_s)
                tell(f"killed, serves again after {start_s:.1f} s; progress after: {seconds(found)}")
                assert max(found.values()) < RESUME_S_MAX
            counts = traffic.finish(server.kafka)

        tell(f"failed {dict(traffic.failed)}; {counts}")
        counts.assert_exact()
        assert not traffic.failed


def test_records_acknowledged_before_a_power_cut_are_there_afterwards(folder: Path, load_s: float, tell: Tell) -> None:
    device = folder / "device"
    with mounted(device, folder / "before", make=True) as data, ending(up(folder, data / "bearlake")) as server:
        server.start()
        create_stream([server.kafka], STREAM, PARTITION_COUNT)
        producer = Producer("p1", server.kafka, STREAM, PARTITION_COUNT)
        with Traffic(STREAM, PARTITION_COUNT, [producer]) as traffic:
            traffic.run_on(load_s)
            server.stop_running()  # the cut: from now on only the operating system writes
            acknowledged = list(producer.acknowledged)
            attempts = snapshot(device, folder / "cut")
            server.go_on()
            traffic.resumed(time.monotonic())
    with mounted(folder / "cut", folder / "after") as data, ending(up(folder, data / "bearlake", "after")) as server:
        server.start()
        reader = Reader("r1", server.kafka, STREAM, PARTITION_COUNT)
        with Traffic(STREAM, PARTITION_COUNT, [Cut(producer, acknowledged)], [reader]) as traffic:
            counts = traffic.finish(server.kafka)

    tell(f"the device as it was at the cut (attempt {attempts}): {counts}")
    counts.assert_exact()
    assert len(acknowledged) > 100


class Cut:
    """The records that a producer had sent, and those that were acknowledged, at the power cut."""

    def __init__(self, producer: Producer, acknowledged: list[Acknowledged]) -> None:
        self.name = producer.name
        self.acknowledged = acknowledged
        self.failed = producer.failed
        self.complaints = producer.complaints
        self.log = producer.log
        self.unknown = producer.unknown | {record.name for record in producer.acknowledged} - {
            record.name for record in acknowledged
        }

    def start(self) -> None:
        """Stop sending."""

    begin_stop = stop = raise_failure = start


@contextlib.contextmanager
def mounted(device: Path, place: Path, *, make: bool = False) -> Iterator[Path]:
    """Mount the file system in the file `device` at `place`; `make`: create an ext4 with default options. Skips if not permitted."""
    programs = [shutil.which(name) for name in ("mkfs.ext4", "mount", "umount")]
    if os.geteuid() != 0 or None in programs:
        pytest.skip("needs root, mkfs.ext4 and mount, to see what a power cut would leave")
    if make:
        with device.open("wb") as file:
            file.truncate(DEVICE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", device], check=True, timeout=60)
    place.mkdir()
    made = subprocess.run(["mount", "-o", "loop", device, place], capture_output=True, timeout=60, check=False)
    if made.returncode != 0:
        pytest.skip(f"needs loop devices, to see what a power cut would leave: {made.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True, timeout=60)


def snapshot(device: Path, copy: Path) -> int:
    """Copy the device as of one moment: repeat until two successive copies agree; returns the number of copies.

    The system writes back unforced data every few seconds; a copy taken during a write-back would match no moment.
    """
    other = copy.with_name("other")
    for attempt in range(1, SNAPSHOT_ATTEMPTS + 1):
        for target in (copy, other):
            shutil.copyfile(device, target)
        if subprocess.run(["cmp", "-s", copy, other], timeout=60, check=False).returncode == 0:
            other.unlink()
            return attempt
    pytest.fail(f"the device never stood still in {SNAPSHOT_ATTEMPTS} copies")
