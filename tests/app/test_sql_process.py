"""Statements of clients run in processes of their own: what they see, and what ends them; by the catalog of `bearlake up`."""

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.logins import basic
from fixtures.server_process import ServerProcess, finished, started
from fixtures.waiting import WAIT_S, until

pytestmark = [pytest.mark.integration]

PASSWORDS = {"alice": "of one stream", "bob": "of nothing"}
SETTINGS = {
    "authentication": {"mechanisms": ["PLAIN"]},
    "access": {"super_users": ["User:root"], "allow_if_no_rule": False},
    "catalog": {"sql": {"process_bytes_max": 800_000_000, "deadline_ms": 110_000, "row_count_max": 5}},
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`bearlake up` with the streams `hers`, which alice may read and write, and `secret`."""
    folder = tmp_path_factory.mktemp("sql")
    config = folder / "settings.yaml"
    config.write_text(yaml.safe_dump(SETTINGS))
    words = ("up", "--data-dir", folder / "data", "--config", config, "--no-tour")
    temporary = folder / "temporary"
    temporary.mkdir()
    with started(*words, ready_file=folder / "ready.json", environ={"TMPDIR": str(temporary)}) as process:
        stores = ("--data-dir", folder / "data", "--config", config)
        for name, password in PASSWORDS.items():
            done = finished("user", "create", name, "--password-file", "-", *stores, stdin=password.encode())
            assert done.returncode == 0, done.stderr
        rule = ("--principal", "User:alice", "--operation", "All", "--resource", "Topic:hers")
        assert finished("access", "allow", *rule, *stores).returncode == 0
        assert finished("stream", "create", "hers", "secret", "--admin", process.admin).returncode == 0
        value = {"records": [{"value": {"n": 1}}, {"value": {"n": 2}}]}
        ask(str(process.ready["rest"]) + "/topics/hers", value, kind="application/vnd.kafka.json.v2+json")
        yield process


def ask(url: str, body: Any, user: str = "alice", kind: str = "application/json") -> tuple[int, Any]:
    headers = {"Content-Type": kind, **basic(user, PASSWORDS[user])}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def run(lake: ServerProcess, statement: str, user: str = "alice", **more: Any) -> tuple[int, Any]:
    return ask(str(lake.ready["catalog"]) + "/v1/sql", {"statement": statement, **more}, user)


def test_a_statement_sees_every_record_with_exact_values(lake: ServerProcess) -> None:
    statement = """select decode(_value) as value, 9007199254740993 as big, 'NaN'::double as none, '\\xff'::blob as octets,
        [1, null] as list, timestamptz '2026-01-01 00:00:00+00' as moment, _offset from hers order by _offset"""
    status, answer = run(lake, statement)

    assert status == 200, answer
    assert [column["name"] for column in answer["columns"]][:2] == ["value", "big"]
    assert [row[0] for row in answer["rows"]] == ['{"n":1}', '{"n":2}']
    assert answer["rows"][0][1:] == [
        "9007199254740993",
        "nan",
        "base64:/w==",
        [1, None],
        "2026-01-01T00:00:00+00:00",
        0,
    ]


def test_streams_that_the_caller_may_not_read_do_not_exist_for_it(lake: ServerProcess) -> None:
    refused, of_bob = run(lake, "select * from hers", "bob")
    hidden, of_alice = run(lake, "select * from secret")
    absent, of_none = run(lake, "select * from nothing")

    assert (refused, hidden, absent) == (400, 400, 400)
    assert "hers does not exist" in of_bob["error"]["message"]
    for name, answer in (
        ("secret", of_alice),
        ("nothing", of_none),
    ):  # the engine adds names of its own tables that are alike
        assert f"Table with name {name} does not exist" in answer["error"]["message"]
        assert answer["error"]["message"].endswith("Streams with a table: none")


def test_a_value_that_the_engine_does_not_count_ends_the_process_and_not_the_server(lake: ServerProcess) -> None:
    status, answer = run(lake, "select repeat('x', 1500000000) as a")

    assert status == 503, answer
    assert run(lake, "select 1 as one")[1]["rows"] == [[1]]


def test_rows_and_bytes_beyond_the_limits_are_left_out_or_refused(lake: ServerProcess) -> None:
    status, answer = run(lake, "select * from range(10)")
    large, refusal = run(lake, "select repeat('x', 9000000) as a")

    assert (status, len(answer["rows"]), answer["is_truncated"]) == (200, 5, True)
    assert (large, "answer_bytes_max" in refusal["error"]["message"]) == (503, True)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("copy (select 1) to '/tmp/x'", "expected one SELECT"),
        ("select 1; select 2", "expected one SELECT"),
        ("select * from read_text('/etc/passwd')", "cannot be a table"),
        ("from 'https://example.com/a.parquet'", "disabled"),
        ("select * from '/etc/passwd'", "does not exist"),
    ],
)
def test_no_statement_reaches_files(lake: ServerProcess, statement: str, reason: str) -> None:
    status, answer = run(lake, statement)

    assert (status, reason in answer["error"]["message"]) == (400, True), answer


def test_a_process_leaves_no_files_behind(lake: ServerProcess) -> None:
    run(lake, "select * from hers")
    temporary = lake.output.parent / "temporary"

    assert temporary.is_dir()
    assert list(temporary.glob("bearlake-sql-*")) == []


def processes_of(lake: ServerProcess) -> tuple[list[int], list[int]]:
    """The helper of statements, and the processes that it has started."""
    helpers = [pid for pid in children(lake.process.pid) if b"sql_helper" in command_line(pid)]
    return helpers, [child for helper in helpers for child in children(helper)]


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # the thread has ended; its children are another one's
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


ENDLESS = "select count(*) from range(100000000) a, range(100000000) b where a.range + b.range = -1"


def send(lake: ServerProcess, statement: str) -> socket.socket:
    """Send a statement of alice; return the connection without waiting for the answer."""
    host, _, port = str(lake.ready["catalog"]).removeprefix("http://").rpartition(":")
    body = json.dumps({"statement": statement}).encode()
    head = f"POST /v1/sql HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    login = f"Authorization: {basic('alice', PASSWORDS['alice'])['Authorization']}\r\n\r\n"
    connection = socket.create_connection((host, int(port)), WAIT_S)
    connection.sendall((head + login).encode() + body)
    return connection


async def test_a_statement_whose_client_has_gone_ends_at_once(lake: ServerProcess) -> None:
    with send(lake, ENDLESS), send(lake, ENDLESS):  # the second waits for the place of the first
        await until(lambda: processes_of(lake)[1], "the statement runs")
    await until(lambda: not processes_of(lake)[1], "its process has ended")

    assert run(lake, "select 1 as one")[1]["rows"] == [[1]]


async def test_a_helper_that_has_ended_is_replaced(lake: ServerProcess) -> None:
    with send(lake, ENDLESS) as connection:
        await until(lambda: processes_of(lake)[1], "the statement runs")
        (former,), (running,) = processes_of(lake)
        os.kill(former, signal.SIGKILL)
        assert b"the helper of statements has ended" in connection.recv(1024)
    await until(lambda: not Path(f"/proc/{running}").exists(), "the kernel has ended its process")

    assert run(lake, "select 1 as one")[1]["rows"] == [[1]]
    assert processes_of(lake)[0] != [former]
