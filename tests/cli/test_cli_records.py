"""`consume` and `produce` as kcat and rpk do it: positions, partitions, times, filters, keys, delimiters, files, nulls; and `drain`."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from bearlake.cli.filters import record_filter
from bearlake.cli.main import run
from bearlake.cli.positions import Positions, parse_positions, time_ms
from bearlake.cli.record_format import Record
from bearlake.cli.record_source import RecordSource, delimiter_of
from bearlake.errors import Invalid
from fixtures.cli_process import Cli
from fixtures.server_process import PROGRAM, ServerProcess, clean_environment, started
from fixtures.waiting import WAIT_S

BASE_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("texts", "from_beginning", "expected"),
    [
        ([], False, Positions()),
        ([], True, Positions(is_beginning=True)),
        (["beginning"], False, Positions(is_beginning=True)),
        (["end"], False, Positions()),
        (["1200"], False, Positions(offset=1200)),
        (["-5"], False, Positions(offset=-5)),
        (["s@1000", "e@1970-01-01T00:00:02"], False, Positions(start_ms=1000, end_ms=2000)),
        (["e@2000"], True, Positions(is_beginning=True, end_ms=2000)),
    ],
)
def test_positions_are_parsed(texts: list[str], from_beginning: bool, expected: Positions) -> None:
    assert parse_positions(texts, from_beginning) == expected


@pytest.mark.parametrize("texts", [["middle"], ["s@noon"], ["1", "2"], ["e@"], ["s@"]])
def test_unknown_positions_are_wrong_usage(texts: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse_positions(texts, False)


def test_times_are_utc_without_a_zone() -> None:
    assert time_ms("2023-11-14T22:13:20") == BASE_MS
    assert time_ms("2023-11-14T23:13:20+01:00") == BASE_MS
    assert time_ms(str(BASE_MS)) == BASE_MS


@pytest.mark.parametrize(
    ("key", "value", "headers", "passes"),
    [
        ("^k1$", None, [], True),
        ("k2", None, [], False),
        (None, r"\xff", [], True),
        (None, None, ["a"], True),
        (None, None, ["a=^1$", "b"], True),
        (None, None, ["a=2"], False),
        (None, None, ["b=."], False),
        ("k", "nothing", [], False),
    ],
)
def test_filters_match_bytes_of_keys_values_and_headers(
    key: str | None, value: str | None, headers: list[str], passes: bool
) -> None:
    record = Record(stream="s", key=b"k1", value=b"v\xff", headers=[("a", b"1"), ("b", None)])

    found = record_filter(key, value, headers)

    assert found is not None
    assert found(record) is passes


def test_no_filter_is_none_and_null_matches_nothing() -> None:
    assert record_filter(None, None, []) is None
    found = record_filter(None, ".*", [])
    assert found is not None
    assert not found(Record(stream="s"))


@pytest.mark.parametrize(
    ("text", "expected"), [(r"\n", b"\n"), (r"\0", b"\0"), (r"\t", b"\t"), ("::", b"::"), ("→", "→".encode())]
)
def test_delimiters_have_escapes(text: str, expected: bytes) -> None:
    assert delimiter_of(text, "-D") == expected


@pytest.mark.parametrize("text", ["", "\\"])
def test_delimiters_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        delimiter_of(text, "-D")


class Chunks:
    """A pipe that returns what was written, piece by piece."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    def read1(self, size: int) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""

    def fileno(self) -> int:
        raise OSError


def test_delimiters_are_found_across_reads() -> None:
    source: Any = Chunks(b"a:", b":b::", b":c:", b":")

    values = [record.value for record in RecordSource("s").of_pieces(source, "text", b"::", None)]

    assert values == [b"a", b"b", b":c"]


@pytest.mark.parametrize(
    "command",
    [
        ["consume", "s", "--group", "g", "--partition", "0"],
        ["consume", "s", "--group", "g", "-o", "5"],
        ["consume", "s", "--filter-key", "("],
        ["consume", "s", "-o", "yesterday"],
        ["produce", "s", "--key", "k", "--key-separator", ":"],
        ["produce", "s", "--timestamp", "noon"],
        ["produce", "s", "--delimiter", ""],
        ["produce", "s", "--file", "/no/such/file"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_exit_code_2(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 2
    assert capsys.readouterr().err


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("records")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        yield process


@pytest.fixture
def cli(server: ServerProcess) -> Cli:
    return Cli(server)


@pytest.mark.integration
def test_consume_starts_and_stops_where_it_is_asked(cli: Cli) -> None:
    cli("stream", "create", "numbers", "--partitions", 2)
    lines = [
        json.dumps({"value": str(index), "partition": index % 2, "timestamp_ms": BASE_MS + 1000 * index})
        for index in range(20)
    ]
    cli("produce", "numbers", "--format", "json", stdin="\n".join(lines).encode())

    def values(*words: object) -> list[int]:
        return sorted(map(int, cli("consume", "numbers", "-e", *words).split()))

    assert values("-o", "beginning", "-p", 1) == list(range(1, 20, 2))
    assert values("-o", 8) == [16, 17, 18, 19]
    assert values("-o", -3, "-p", 0) == [14, 16, 18]
    assert values("-o", f"s@{BASE_MS + 15_500}") == [16, 17, 18, 19]
    assert values("-o", f"s@{BASE_MS + 4_000}", "-o", f"e@{BASE_MS + 8_000}") == [4, 5, 6, 7]
    assert values("-o", "beginning", "-o", "e@2100-01-01") == list(range(20))
    assert values("-o", "end") == []
    assert values("-o", "beginning", "-p", 1, "--filter-value", "^1.$", "-c", 3) == [11, 13, 15]
    assert len(values("-o", "beginning", "--filter-value", "^1.$", "-c", 3)) == 3
    assert values("-o", "beginning", "--filter-value", "^(3|4)$") == [3, 4]
    assert "no 7" in cli("consume", "numbers", "-p", 7, code=1)


@pytest.mark.integration
def test_an_end_without_exit_at_end_stops_too(cli: Cli) -> None:
    cli("stream", "create", "bounded", "--partitions", 3)
    cli("produce", "bounded", "-p", 0, "--timestamp", BASE_MS, stdin=b"a\nb\n")

    shown = cli("consume", "bounded", "--from-beginning", "-o", f"e@{BASE_MS + 1}")

    assert shown == "a\nb\n"


@pytest.mark.integration
def test_produce_takes_keys_files_delimiters_nulls_and_times(cli: Cli, tmp_path: Path) -> None:
    cli("stream", "create", "parts")
    document = tmp_path / "document.bin"
    document.write_bytes(b"two\nlines")
    form = ["-f", r"%k=%V@%T\n"]

    cli("produce", "parts", "-k", "fixed", "-D", "|", "-Z", "--timestamp", "2023-11-14T22:13:20", stdin=b"a||c")
    cli("produce", "parts", "--file", document, "--key", "f", "--timestamp", 5)

    assert cli("consume", "parts", "--from-beginning", "-e", *form).splitlines() == [
        f"fixed=1@{BASE_MS}",
        f"fixed=-1@{BASE_MS}",
        f"fixed=1@{BASE_MS}",
        "f=9@5",
    ]
    assert cli("consume", "parts", "-o", 3, "-e") == "two\nlines\n"


@pytest.mark.integration
def test_a_terminal_gets_no_control_characters_of_records(cli: Cli) -> None:
    cli("stream", "create", "hostile")
    cli("produce", "hostile", "-k", "k\x1b[1m", stdin=b"\x1b]0;owned\x07\n")

    def on_terminal(*words: str) -> bytes:
        ours, theirs = pty.openpty()
        command = [*PROGRAM, "consume", "hostile", "--from-beginning", "-e", "-f", r"%k:%v\n", *words]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, env=clean_environment(cli.environ))
        os.close(theirs)
        assert process.wait(WAIT_S) == 0
        shown = os.read(ours, 65_536)
        os.close(ours)
        return shown

    assert on_terminal() == b"k\\x1b[1m:\\x1b]0;owned\\x07\r\n"
    assert on_terminal("--raw") == b"k\x1b[1m:\x1b]0;owned\x07\r\n"
    assert cli("consume", "hostile", "--from-beginning", "-e") == "\x1b]0;owned\x07\n"


@pytest.mark.integration
def test_drain_ends_when_nothing_waits_and_says_what_may_hinder_it(cli: Cli) -> None:
    cli("stream", "create", "waiting", "empty")
    assert cli("compaction", "drain", "empty") == "empty: nothing waits\n"
    cli("produce", "waiting", stdin=b"x\n" * 10)

    message = cli("compaction", "drain", "waiting", "--timeout-ms", 600, code=3)

    assert "10 of 10 records are not in their tables" in message
    assert "bearlake compaction tasks" in message
    assert "absent" in cli("compaction", "drain", "absent", code=1)
    cli("stream", "delete", "waiting")


@pytest.mark.integration
def test_commands_that_change_something_print_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--metadata-url", f"sqlite://{tmp_path}/metadata.db", "--object-store-url", f"file://{tmp_path}/objects"]
    password = tmp_path / "password"
    password.write_text("a long password")

    def answered(*words: str) -> Any:
        assert run([*words, "--json", *where]) == 0
        return json.loads(capsys.readouterr().out)

    assert answered("user", "create", "alice", "--password-file", str(password)) == {
        "name": "alice",
        "result": "created",
    }
    rule = ["--principal", "User:alice", "--operation", "Read", "--resource", "Topic:orders"]
    assert answered("access", "allow", *rule)[0]["permission"] == "Allow"
    assert answered("access", "deny", *rule)[0]["permission"] == "Deny"
    quota = {"user": "alice", "client_id": "", "ip": "", "quota": "producer_byte_rate"}
    assert answered("quota", "set", "--user", "alice", "producer_byte_rate=10") == [{**quota, "value": 10}]
    assert answered("quota", "delete", "--user", "alice", "producer_byte_rate") == [{**quota, "value": None}]
    assert answered("user", "delete", "alice")["result"] == "deleted"
