"""`produce` and `consume` serialize and show records by the schemas of the registry, as kcat and rpk do."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.cli_process import Cli
from fixtures.server_process import started
from fixtures.waiting import WAIT_S

pytestmark = pytest.mark.integration

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "bear", "type": "string"}],
}
PROTOBUF = 'syntax = "proto3"; message Order { int64 id = 1; string bear = 2; }'


class Registered(Cli):
    """The command line, which also finds the registry of `bearlake up`."""

    def __init__(self, process: Any) -> None:
        super().__init__(process)
        self._registry = str(process.ready["registry"])
        self.environ["BEARLAKE_REGISTRY"] = self._registry

    def register(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema; return its id."""
        body = {"schema": schema, "schemaType": kind, "references": list(references)}
        request = urllib.request.Request(
            f"{self._registry}/subjects/{subject}/versions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            return int(json.load(response)["id"])


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registered]:
    folder: Path = tmp_path_factory.mktemp("schemas")
    words = ("up", "--data-dir", folder / "data", "--no-tour", "--no-compaction")
    with started(*words, ready_file=folder / "ready.json") as process:
        yield Registered(process)


READ = ("--from-beginning", "--exit-at-end")


@pytest.mark.parametrize(
    ("kind", "schema"),
    [("AVRO", json.dumps(AVRO)), ("PROTOBUF", PROTOBUF), ("JSON", '{"type": "object"}')],
    ids=["avro", "protobuf", "json"],
)
def test_records_are_written_and_shown_by_the_newest_schema(cli: Registered, kind: str, schema: str) -> None:
    stream = f"orders-{kind.lower()}"
    cli("stream", "create", stream)
    cli.register(f"{stream}-value", schema, kind)
    lines: list[dict[str, Any]] = [
        {"id": "7" if kind == "PROTOBUF" else 9_007_199_254_740_993, "bear": "Ursa"},
        {"id": 2, "bear": "Iorek"},
    ]
    cli("produce", stream, "--value-schema", "latest", stdin=b"\n".join(json.dumps(line).encode() for line in lines))

    raw = cli("consume", stream, *READ, "--max-messages", 1, "--format", "%V")
    shown = [json.loads(line) for line in cli("consume", stream, *READ, "--schemas").splitlines()]
    (found,) = cli("consume", stream, *READ, "--schemas", "--filter-value", '"Iorek"').splitlines()

    assert int(raw) > 5
    assert [int(row["id"]) for row in shown] == [int(str(line["id"])) for line in lines]
    assert [row["bear"] for row in shown] == ["Ursa", "Iorek"]
    assert json.loads(found) == shown[1]


def test_keys_have_schemas_and_references_are_followed(cli: Registered) -> None:
    cli("stream", "create", "keyed")
    cli.register("bear", json.dumps({"type": "enum", "name": "Bear", "symbols": ["URSA"]}))
    record = {"type": "record", "name": "Row", "fields": [{"name": "bear", "type": "Bear"}]}
    number = cli.register("rows", json.dumps(record), references=[{"name": "Bear", "subject": "bear", "version": 1}])
    cli.register("keyed-key", '"string"')
    schemas = ("--value-schema", number, "--key-schema", "latest")
    cli("produce", "keyed", *schemas, "--key-separator", "|", stdin=b'"k"|{"bear": "URSA"}\n')

    assert cli("consume", "keyed", *READ, "--schemas", "--format", "%k %v") == '"k" {"bear":"URSA"}'


def test_what_no_schema_explains_is_shown_as_it_is(cli: Registered) -> None:
    cli("stream", "create", "mixed")
    number = cli.register("mixed-value", json.dumps(AVRO))
    cli("produce", "mixed", stdin=b"plain text\n")
    cli("produce", "mixed", "--delimiter", "\\n", stdin=b"\0" + (10_000).to_bytes(4, "big") + b"unknown\n")
    cli("produce", "mixed", stdin=b"\0" + number.to_bytes(4, "big") + b"\xff\n")
    cli("produce", "mixed", "--null", stdin=b"\n")

    values = [json.loads(line) for line in cli("consume", "mixed", *READ, "--schemas", "--json").splitlines()]

    assert values[0]["value"] == "plain text"
    assert values[1]["value"].endswith("unknown")
    assert values[2]["value_base64"]
    assert values[3]["value"] is None


@pytest.mark.parametrize(
    ("words", "line", "code", "reason"),
    [
        (("--value-schema", "latest"), b'{"id": "x"}', 2, "id: expected long"),
        (("--value-schema", "latest"), b"no json", 2, "JSON"),
        (("--value-schema", "999"), b"{}", 1, "no schema 999"),
        (("--value-schema", "newest"), b"{}", 2, "expected the id of a schema, or latest"),
        (("--key-schema", "latest"), b"{}", 1, "refused-key"),
        (
            ("--value-schema", "latest", "--registry", "http://127.0.0.1:1"),
            b"{}",
            3,
            "no answer from http://127.0.0.1:1",
        ),
    ],
)
def test_what_cannot_be_written_by_a_schema_is_refused_with_the_reason(
    cli: Registered, words: tuple[str, ...], line: bytes, code: int, reason: str
) -> None:
    if not cli.json("stream", "list", "--prefix", "refused"):
        cli("stream", "create", "refused")
    cli.register("refused-value", json.dumps(AVRO))

    assert reason in cli("produce", "refused", *words, stdin=line + b"\n", code=code)
    assert cli("consume", "refused", *READ) == ""
