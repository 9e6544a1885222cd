"""All parts of the model by name, in three sizes, and with guards switched off.

*small*: explored in every test run. *medium*: used to find the effect of a deleted guard. *large*: by command only.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from simulator.model import guards as guarding
from simulator.model.catalog import CatalogBounds, CatalogGuards, CatalogPart
from simulator.model.compaction import CompactionPart
from simulator.model.compaction_guards import CompactionBounds, CompactionGuards
from simulator.model.cursors import CursorBounds, CursorGuards, CursorPart
from simulator.model.exclusive import EXCLUSIVE, SHARED, ExclusiveBounds, ExclusiveGuards, ExclusivePart
from simulator.model.explorer import Report, explore
from simulator.model.leases import LeaseBounds, LeaseGuards, LeasePart
from simulator.model.offsets import OffsetBounds, OffsetGuards, OffsetPart
from simulator.model.part import Part
from simulator.model.producers import IDEMPOTENT, Client
from simulator.model.registry import RegistryBounds, RegistryGuards, RegistryPart
from simulator.model.write import WriteBounds, WriteGuards, WritePart

SIZES: Final = ("small", "medium", "large")
AnyPart = Part[Any]  # Any: each part has its own type of state


class Family(NamedTuple):
    """Parts of one subject. `build` returns the parts of a size, the cheapest first, without the named guards."""

    rules: dict[str, str]
    build: Callable[[str, Collection[str]], Sequence[AnyPart]]


def _write(size: str, off: Collection[str]) -> list[AnyPart]:
    guards = guarding.without(WriteGuards(), *off)
    calm = WriteBounds(batch_count=2, attempt_count=3, server_trouble=False, store_trouble=False)
    back = WriteBounds(batch_count=2, attempt_count=3, server_trouble=False, store_trouble=False, came_back=True)
    aged = WriteBounds(batch_count=2, attempt_count=3, server_trouble=False)
    single = WriteBounds(batch_count=1, attempt_count=2)
    replaced = WriteBounds(batch_count=2, attempt_count=3, store_trouble=False)
    longer = WriteBounds(batch_count=2, attempt_count=4, server_trouble=False, store_trouble=False)
    three = WriteBounds(batch_count=3, attempt_count=3, server_trouble=False, store_trouble=False)
    third = WriteBounds(batch_count=3, attempt_count=4, server_trouble=False, store_trouble=False, came_back=True)
    chosen = {
        "small": (calm, back, single, three),
        "medium": (replaced, aged, longer, third),
        "large": (WriteBounds(),),
    }[size]
    return [
        WritePart(client, bounds, guards)
        for bounds in chosen
        for client in (Client.LIBRDKAFKA, Client.JAVA, Client.CONDITIONAL, Client.PLAIN)
        if client in IDEMPOTENT or not bounds.came_back
    ]


def _compaction(size: str, off: Collection[str]) -> list[AnyPart]:
    guards = guarding.without(CompactionGuards(), *off)
    two = CompactionBounds(claim_count=2)
    merge = CompactionBounds(claim_count=2, is_merge=True)
    chosen = {
        "small": (two, merge),
        "medium": (two, merge),
        "large": (CompactionBounds(claim_count=3), CompactionBounds(claim_count=3, is_merge=True)),
    }[size]
    return [CompactionPart(bounds, guards) for bounds in chosen]


def _leases(size: str, off: Collection[str]) -> list[AnyPart]:
    guards = guarding.without(LeaseGuards(), *off)
    first = LeaseBounds(lapse_count=1, heartbeat_count=1, lease_epoch=2, replaced=False)
    second = LeaseBounds(lapse_count=1, heartbeat_count=1, lease_epoch=2)
    more = LeaseBounds(lapse_count=1, lease_epoch=2)
    chosen = {"small": (first, second), "medium": (more,), "large": (LeaseBounds(),)}[size]
    return [LeasePart(bounds, guards) for bounds in chosen]


def _offsets(size: str, off: Collection[str]) -> list[AnyPart]:
    guards = guarding.without(OffsetGuards(), *off)
    return [OffsetPart(OffsetBounds(lease_epoch={"small": 2, "medium": 3, "large": 4}[size]), guards)]


def _catalog(size: str, off: Collection[str]) -> list[AnyPart]:
    guards = guarding.without(CatalogGuards(), *off)
    return [CatalogPart(CatalogBounds(call_count={"small": 4, "medium": 5, "large": 6}[size]), guards)]


def _cursors(size: str, off: Collection[str]) -> list[AnyPart]:
    guards = guarding.without(CursorGuards(), *off)
    return [CursorPart(CursorBounds(call_count={"small": 4, "medium": 5, "large": 6}[size]), guards)]


def _exclusive(size: str, off: Collection[str]) -> list[AnyPart]:
    guards = guarding.without(ExclusiveGuards(), *off)
    kinds = {
        "small": (EXCLUSIVE, SHARED, EXCLUSIVE),
        "medium": (EXCLUSIVE, SHARED) * 2,
        "large": (EXCLUSIVE, SHARED) * 3,
    }[size]
    return [ExclusivePart(ExclusiveBounds(kinds=kinds, epoch=len(kinds) + 1), guards)]


def _registry(size: str, off: Collection[str]) -> list[AnyPart]:
    guards = guarding.without(RegistryGuards(), *off)
    return [RegistryPart(RegistryBounds(call_count={"small": 3, "medium": 4, "large": 5}[size]), guards)]


FAMILIES: Final[dict[str, Family]] = {
    "write": Family(guarding.rules(WriteGuards()), _write),
    "compaction": Family(guarding.rules(CompactionGuards()), _compaction),
    "leases": Family(guarding.rules(LeaseGuards()), _leases),
    "offsets": Family(guarding.rules(OffsetGuards()), _offsets),
    "catalog": Family(guarding.rules(CatalogGuards()), _catalog),
    "exclusive": Family(guarding.rules(ExclusiveGuards()), _exclusive),
    "registry": Family(guarding.rules(RegistryGuards()), _registry),
    "cursors": Family(guarding.rules(CursorGuards()), _cursors),
}

REDUNDANT: Final[dict[str, str]] = {
    "superseded_server_refused": "the token and the producers decide a commit; this check only ends a replaced process sooner",
    "claim_epoch_in_prepare": "a worker that prepares late checks its claim before its table commit, and the swap checks it again",
    "claim_epoch_in_swap": "the table's `bearlake.applied` names the winning epoch, and the first swap closes the task: every swap names"
    " the same files",
    "swap_only_own_registered_keys": "a worker swaps only prepared files that the table has, and the sweep forbids none of them",
    "ends_checked_in_table_commit": "a worker checks its claim after the load, and the table keeps the applied task while the task is open",
    "live_server_takes": "a lease that a lapsed server takes is verified at the first request",
    "count_read_before_look": "a heartbeat precedes the look-up, and its lapse count is used",
}
"""Rules that no promise needs within the bounds, and why: they are a second line of defence."""


def explore_all(name: str, size: str, *off: str, state_count_max: int = 1_000_000_000) -> list[Report]:
    """Explore each part of a family in turn, until the first violation."""
    reports: list[Report] = []
    for part in FAMILIES[name].build(size, off):
        reports.append(explore(part, state_count_max=state_count_max))
        if reports[-1].violation is not None:
            break
    return reports
