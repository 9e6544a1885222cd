"""Definitions that a restore lost, made up or mixed are found, and ids of schemas that are given out again."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nemesis import drill_definitions
from nemesis.clients.definitions import KINDS, LOG, Kind
from simulator.history import check
from simulator.history.format import decode_call
from simulator.history.model import Answer, Operation, Outcome
from simulator.history.reader import Events

BEGUN, ENDED = 100, 200


def commit(group: str, version: int, start: int, end: int | None, **answer: Any) -> Events:
    """A version that a client wrote from `start` to `end`; None: without an answer."""
    begun = {"e": "invoke", "i": start, "t": start, "p": "define-1", "op": "commit", "group": group, "log": [*LOG]}
    ended = None if end is None else {"e": "ok", "i": start, "t": end, **answer}
    return Events("define-1.jsonl:1", {**begun, "offset": version}, ended)


WRITTEN = [
    commit("user/one", 1, 10, 20),
    commit("user/one", 2, 110, 120),
    commit("user/one", 3, 250, 260),
    commit("schema/one", 1, 30, 40, id=1),
    commit("schema/two", 1, 210, 220, id=1),
    commit("rule/one", 1, 50, None),
]


def answering(found: Mapping[str, int]) -> Callable[[str], Mapping[str, int]]:
    return lambda _address: found


def restored_with(versions: Mapping[str, Mapping[str, int]], monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Any]:
    """Problems of the drill, and violations of the history with what it reads."""
    for kind, (protocol, write, _) in list(KINDS.items()):
        monkeypatch.setitem(KINDS, kind, Kind(protocol, write, answering(versions.get(kind, {}))))
    operations = [events.operation() for events in WRITTEN]

    def record(op: str, answer: Mapping[str, Any], **call: Any) -> None:
        decoded = decode_call({"op": op, **call})
        operations.append(
            Operation(
                process="restored", start=BEGUN, end=ENDED, outcome=Outcome.OK, call=decoded, answer=Answer(**answer)
            )
        )

    addresses = dict.fromkeys((kind.protocol for kind in KINDS.values()), "")
    problems, _ = drill_definitions.read(addresses, drill_definitions.names_of(WRITTEN), record)
    return problems, list(check.check(operations).violations)


@pytest.mark.parametrize("user", [1, 2])
@pytest.mark.parametrize("rule", [{}, {"one": 1}])
def test_each_moment_of_the_backup_is_right(
    user: int, rule: Mapping[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"user": {"one": user}, "schema": {"one": 1}, "rule": rule}

    assert restored_with(versions, monkeypatch) == ([], [])


@pytest.mark.parametrize(
    "versions",
    [
        {"schema": {"one": 1}},
        {"user": {"one": 3}, "schema": {"one": 1}},
        {"user": {"one": -1}, "schema": {"one": 1}},
        {"user": {"one": 2}},
        {"user": {"one": 2}, "schema": {"one": 1, "two": 1}},
    ],
    ids=["lost", "younger than the backup", "mixed", "a lost schema", "a schema of later"],
)
def test_another_state_is_found(versions: Mapping[str, Mapping[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    problems, violations = restored_with(versions, monkeypatch)

    assert problems == []
    assert len(violations) == 1


def test_a_definition_that_no_client_has_made_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"user": {"one": 2, "strange": 1}, "schema": {"one": 1}}

    assert restored_with(versions, monkeypatch)[0] == ["1 definitions that no client has made, as user/strange"]


def test_an_id_that_is_given_out_again_is_found() -> None:
    given = drill_definitions.ids_of(WRITTEN)

    assert given == {"one": {1}, "two": {1}}
    assert drill_definitions.repeated(given, {"one": 10_002, "two": 10_001}) == []
    assert drill_definitions.repeated(given, {"one": 10_002, "two": 1}) == [
        "the restored registry gave out the id 1 of two again"
    ]
