"""A fault of one subject stops only that subject: it is counted and logged once per change, and the round continues."""

import asyncio
import logging
from collections.abc import Mapping

import pytest

from bearlake.errors import BearlakeError, Conflict, Corrupt, Denied, Fenced, Invalid, NotFound, Overloaded, Unavailable
from bearlake.telemetry import metrics
from bearlake.telemetry.fault_isolation import FaultIsolation

log = logging.getLogger("bearlake.isolation_test")


class Store:
    def __init__(self) -> None:
        self.is_up = True

    async def probe(self) -> None:
        if not self.is_up:
            raise Unavailable("the metadata store is down")


async def a_round(isolation: FaultIsolation, faults: Mapping[str, BaseException], names: str = "abc") -> list[str]:
    done = []
    for name in names:
        async with isolation.of(name):
            if name in faults:
                raise faults[name]
            done.append(name)
    isolation.end_round()
    return done


@pytest.mark.parametrize("kind", [Invalid, Corrupt, NotFound, Conflict, Fenced, Denied, Overloaded, Unavailable])
async def test_a_failure_of_one_subject_does_not_stop_the_others(kind: type[BearlakeError]) -> None:
    isolation = FaultIsolation(log, "test", Store().probe)

    assert await a_round(isolation, {"a": kind("broken")}) == ["b", "c"]
    assert isolation.failing == ["a"]


async def test_an_unavailable_metadata_store_ends_the_round() -> None:
    store = Store()
    isolation = FaultIsolation(log, "test", store.probe)
    store.is_up = False

    with pytest.raises(Unavailable, match="metadata store"):
        await a_round(isolation, {"a": Unavailable("of a catalog")})
    assert isolation.failing == []


async def test_a_fault_is_logged_when_it_begins_changes_or_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bearlake.isolation_test")
    isolation = FaultIsolation(log, "test", Store().probe)
    for faults in ({"a": Corrupt("1")}, {"a": Corrupt("2")}, {"a": Denied("3")}, {}, {}):
        await a_round(isolation, faults)

    said = [(record.levelname, vars(record)["subject"], vars(record).get("error")) for record in caplog.records]
    assert said == [("WARNING", "a", "Corrupt('1')"), ("WARNING", "a", "Denied('3')"), ("INFO", "a", None)]


async def test_faults_are_counted_and_a_deleted_subject_fails_no_more() -> None:
    isolation = FaultIsolation(log, "counted", Store().probe)
    for _ in range(2):
        await a_round(isolation, {"a": Corrupt("broken"), "b": Denied("denied")})

    assert metrics.UPKEEP_FAULTS.labels("counted", "Corrupt").value == 2
    assert metrics.UPKEEP_FAILING.labels("counted").value == 2
    await a_round(isolation, {}, names="c")
    assert metrics.UPKEEP_FAILING.labels("counted").value == 0


async def test_a_deleted_subject_no_longer_counts_as_failing() -> None:
    isolation = FaultIsolation(log, "test", Store().probe)
    for name in "abc":
        async with isolation.of(name):
            raise Corrupt("broken")
    isolation.forget("a", "unknown")
    assert isolation.failing == ["b", "c"]

    isolation.clear()
    assert isolation.failing == []


async def test_a_bug_in_one_step_is_counted_and_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bearlake.isolation_test")
    isolation = FaultIsolation(log, "buggy", Store().probe)
    done = [await a_round(isolation, {"a": KeyError("a bug")}) for _ in range(3)]

    assert done == [["b", "c"]] * 3
    assert isolation.failing == ["a"]
    assert metrics.UPKEEP_FAULTS.labels("buggy", "KeyError").value == 3
    assert metrics.CONTAINED_FAULTS.labels("upkeep: buggy").value == 3
    assert [(record.levelname, record.exc_info is not None) for record in caplog.records] == [("ERROR", True)]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1)], ids=repr)
async def test_a_cancellation_ends_the_round(error: BaseException) -> None:
    isolation = FaultIsolation(log, "test", Store().probe)

    with pytest.raises(type(error)):
        await a_round(isolation, {"a": error})
    assert isolation.failing == []
