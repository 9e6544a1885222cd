"""A server that starts before its stores waits for them, and reports permanent errors at once."""

import asyncio
import json
import random
import signal
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bearlake.app.startup import Startup
from bearlake.app.stop import Stop, Stopped
from bearlake.errors import Denied, OutOfRoom, Unavailable
from fixtures.ports import free_port
from fixtures.postgresql import PostgresqlServer
from fixtures.s3 import S3Server
from fixtures.server_process import clean_environment, command, finished
from fixtures.waiting import WAIT_S, until
from nemesis.stores import Disk
from nemesis.tools import can_mount
from simulator.loop import virtual_time

PAUSE_S = 0.02
STARTUP_WAIT_MS = 600_000
"""Longer than a test may last: on a busy machine, a store may need a minute to start."""


@dataclass
class Starting:
    """A server that may not be ready yet; `admin` is its admin API's URL, `output` what it logs, as JSON lines."""

    process: subprocess.Popen[bytes]
    admin: str
    output: Path

    async def until(self, path: str, status: int) -> Any:
        """The answer of the admin API as soon as it has this status."""
        async with asyncio.timeout(WAIT_S):
            while True:
                assert self.process.poll() is None, self.output.read_text()
                found, answer = await asyncio.to_thread(ask, self.admin + path)
                if found == status:
                    return answer
                await asyncio.sleep(PAUSE_S)

    def waits(self) -> list[dict[str, Any]]:
        """The lines that name the awaited store and the longest wait."""
        lines = [json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if "wait_ms" in line]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


def ask(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)
    except OSError:
        return 0, None


@contextmanager
def starting(folder: Path, words: Sequence[object], environ: dict[str, str] | None = None) -> Iterator[Starting]:
    port = free_port()
    output = folder / "server.log"
    line = [*command(["serve", "kafka", *words]), "--kafka-port", "0", "--admin-port", str(port)]
    with output.open("wb") as out:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=clean_environment({"BEARLAKE_SERVER__STARTUP_WAIT_MS": str(STARTUP_WAIT_MS), **(environ or {})}),
        )
    try:
        yield Starting(process, f"http://127.0.0.1:{port}", output)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(WAIT_S)


# -- the wait itself -------------------------------------------------------------------------------------------------


def failing(*errors: Exception) -> Any:
    """A step that fails with these errors in turn, then returns "there"."""
    left = list(errors)

    async def step() -> str:
        if left:
            raise left.pop(0)
        return "there"

    return step


def patience(wait_ms: int, stop: Stop | None = None) -> Startup:
    return Startup(stop or Stop(), wait_ms, random.Random(1))


@virtual_time
async def test_startup_asks_again_with_growing_pauses_until_the_store_answers() -> None:
    loop = asyncio.get_running_loop()
    patient = patience(60_000)
    start_s = loop.time()

    found = await patient.until_there("the store", "x://y", failing(*[Unavailable("not yet")] * 10))

    assert found == "there"
    assert 15 < loop.time() - start_s < 35
    assert patient.waiting_for == ""


@virtual_time
async def test_startup_gives_up_at_the_end_of_the_startup_wait_and_names_the_store() -> None:
    loop = asyncio.get_running_loop()
    patient = patience(10_000)
    start_s = loop.time()

    with pytest.raises(Unavailable, match=r"the store .*x://me:\*\*\*@y .*10000 ms.*not yet"):
        await patient.until_there("the store", "x://me:secret@y", failing(*[Unavailable("not yet")] * 100))

    assert loop.time() - start_s <= 10
    assert patient.waiting_for == "the store"


@virtual_time
async def test_a_first_attempt_that_takes_the_whole_time_also_names_the_store() -> None:
    async def slow() -> None:
        await asyncio.sleep(2)
        raise Unavailable("not yet")

    with pytest.raises(Unavailable, match=r"the store .*x://me:\*\*\*@y .*1000 ms.*not yet"):
        await patience(1_000).until_there("the store", "x://me:secret@y", slow)


@virtual_time
async def test_two_stores_share_the_time_of_one_start() -> None:
    loop = asyncio.get_running_loop()
    patient = patience(8_000)
    start_s = loop.time()
    await patient.until_there("one", "x://y", failing(*[Unavailable("not yet")] * 4))

    with pytest.raises(Unavailable):
        await patient.until_there("two", "x://y", failing(*[Unavailable("not yet")] * 100))

    assert loop.time() - start_s <= 8


@virtual_time
async def test_errors_that_waiting_cannot_fix_are_reported_at_once() -> None:
    start_s = asyncio.get_running_loop().time()

    with pytest.raises(Denied):
        await patience(60_000).until_there("the store", "x://y", failing(Denied("wrong password")))
    with pytest.raises(Unavailable, match=r"^not there$"):
        await patience(0).until_there("the store", "x://y", failing(Unavailable("not there")))

    assert asyncio.get_running_loop().time() == start_s


@virtual_time
async def test_a_full_disk_is_named_while_the_start_waits_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    patient = patience(10_000)
    full = OutOfRoom("the disk is full")

    assert await patient.until_there("the store", "x://y", failing(full, full), OutOfRoom) == "there"
    with pytest.raises(
        OutOfRoom, match=r"^the store at x://y had no room within 10000 ms of the start: the disk is full$"
    ):
        await patient.until_there("the store", "x://y", failing(*[full] * 100), OutOfRoom)

    assert patient.waiting_for == "room on the disk of the store"
    lines = [(line.levelname, line.message) for line in caplog.records if line.levelname != "DEBUG"]
    out_of_room = ("ERROR", "a store is out of room; retrying")
    assert lines == [out_of_room, ("INFO", "the store answers"), out_of_room]


@virtual_time
async def test_a_step_that_may_only_lack_room_reports_other_failures_at_once() -> None:
    start_s = asyncio.get_running_loop().time()

    with pytest.raises(Unavailable, match=r"^cannot be opened$"):
        await patience(60_000).until_there("the store", "x://y", failing(Unavailable("cannot be opened")), OutOfRoom)

    assert asyncio.get_running_loop().time() == start_s


@virtual_time
async def test_a_request_to_stop_ends_the_wait_and_the_step() -> None:
    stop = Stop()
    was_cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    waiting = asyncio.create_task(patience(60_000, stop).until_there("the store", "x://y", hang))
    await asyncio.sleep(1)
    stop.request("test")

    with pytest.raises(Stopped):
        await waiting
    assert was_cancelled.is_set()


# -- real servers, real stores ---------------------------------------------------------------------------------------


@pytest.mark.integration
async def test_a_server_that_starts_before_postgresql_is_alive_and_becomes_ready_when_it_is_there(
    tmp_path: Path, postgresql_server: PostgresqlServer, postgresql_url: str
) -> None:
    postgresql_server.stop()
    with starting(tmp_path, ["--metadata-url", postgresql_url, "--object-store-url", tmp_path.as_uri()]) as server:
        assert await server.until("/livez", 200) == {"status": "alive"}
        refusal = await server.until("/readyz", 503)
        assert (await server.until("/metrics", 503))["title"] == "Not ready"

        postgresql_server.start()
        assert await server.until("/readyz", 200) == {"status": "ready"}
        assert server.stop() == 0

    assert refusal["title"] == "Not ready"
    (waiting,) = server.waits()
    assert waiting["what"] == "the metadata store"
    assert waiting["wait_ms"] == STARTUP_WAIT_MS


@pytest.mark.integration
async def test_a_server_whose_bucket_is_made_later_waits_for_it(
    tmp_path: Path, postgresql_url: str, s3_server: S3Server
) -> None:
    bucket = f"later-{uuid.uuid4().hex}"
    words = ["--metadata-url", postgresql_url, "--object-store-url", f"s3://{bucket}/lake"]
    with starting(tmp_path, words, s3_server.environment) as server:
        await until(lambda: server.waits())
        assert "object store" in (await server.until("/readyz", 503))["detail"]

        s3_server.make_bucket(bucket)
        await server.until("/readyz", 200)
        assert server.stop() == 0

    (waiting,) = server.waits()
    assert (waiting["what"], waiting["place"]) == ("the object store", f"s3://{bucket}/lake")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk", 8 << 20, can_mount=can_mount())
    try:
        if not made.can_be_full:
            pytest.skip("needs root and mount, for a disk that becomes full")
        yield made
    finally:
        made.end()


@pytest.mark.integration
@pytest.mark.parametrize("is_new", [True, False])
async def test_a_server_on_a_full_disk_is_alive_and_becomes_ready_once_there_is_room(
    tmp_path: Path, disk: Disk, is_new: bool
) -> None:
    words = ["--metadata-url", f"sqlite://{disk.folder}/m.db", "--object-store-url", (tmp_path / "objects").as_uri()]
    if not is_new:
        with starting(tmp_path, words) as server:
            await server.until("/readyz", 200)
            assert server.stop() == 0
    disk.fill()
    with starting(tmp_path, words) as server:
        await until(lambda: server.waits())
        assert await server.until("/livez", 200) == {"status": "alive"}
        detail = (await server.until("/readyz", 503))["detail"]

        disk.free()
        await server.until("/readyz", 200)
        assert server.stop() == 0

    assert detail == "the server is starting and waits for room on the disk of the metadata store"
    (waiting,) = server.waits()
    assert (waiting["level"], waiting["message"]) == ("ERROR", "a store is out of room; retrying")
    assert f"{disk.folder}/m.db is full" in waiting["error"]


@pytest.mark.integration
def test_a_missing_store_ends_the_server_with_one_line_and_exit_code_3(tmp_path: Path) -> None:
    url = f"postgresql://me:secret@127.0.0.1:{free_port()}/lake"

    result = finished(
        *("serve", "kafka", "--metadata-url", url, "--object-store-url", tmp_path.as_uri()),
        *("--kafka-port", "0", "--admin-port", "0"),
        environ={"BEARLAKE_SERVER__STARTUP_WAIT_MS": "1000"},
    )

    assert result.returncode == 3
    last = result.stderr.decode().splitlines()[-1]
    assert last.startswith("bearlake: "), last
    assert "postgresql://me:***@127.0.0.1:" in last
    assert "1000 ms" in last
    assert b"secret" not in result.stdout + result.stderr


@pytest.mark.integration
@pytest.mark.parametrize(
    ("user", "database", "code", "word"),
    [
        ("bearlake", "absent", 3, "the metadata store"),
        ("stranger:secret", "postgres", 3, "the metadata store"),
        ("bearlake", "postgres?sslmode=nonsense", 2, "sslmode"),
    ],
)
def test_a_wrong_url_is_reported_without_a_wait(
    tmp_path: Path, postgresql_server: PostgresqlServer, user: str, database: str, code: int, word: str
) -> None:
    url = f"postgresql://{user}@127.0.0.1:{postgresql_server.port}/{database}"

    result = finished(
        *("serve", "kafka", "--metadata-url", url, "--object-store-url", tmp_path.as_uri()),
        *("--kafka-port", "0", "--admin-port", "0"),
        environ={"BEARLAKE_SERVER__STARTUP_WAIT_MS": "3600000"},  # a wait would end in the test's own timeout
    )

    assert result.returncode == code, result.stderr
    assert word in result.stderr.decode()
    assert b"secret" not in result.stdout + result.stderr
