"""Offers cleanings for streams with key compaction (`key_compaction.py` says when). Used by the planner.

The planner tells which streams have key compaction (`watch`), and which of them have a changed index (`swapped`). Only these are looked at,
at most every `check_ms`, and streams with a lag in their configs once a minute. A stream with an open merge or cleaning waits.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bearlake.clock import Clock
from bearlake.compaction.all_streams import all_streams
from bearlake.compaction.key_compaction import CleaningPlan, plan
from bearlake.compaction.settings import KeyCompactionSettings
from bearlake.compaction.stream_index import read_index
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import Task, TaskChoice, TaskKind, TaskOffer
from bearlake.metadata.model import Stream
from bearlake.streams.config import LONG_MAX
from bearlake.streams.key_compaction_rules import KeyCompactionRules, key_compaction_rules
from bearlake.telemetry import metrics
from bearlake.telemetry.fault_isolation import FaultIsolation

TRY_COUNT_MAX = 3
"""Cleanings of the same files after which a stream waits for another file (another engine may have removed one from the table)."""
LAG_CHECKS = 4
"""Records of a stream with a lag become old enough without a change of its index: it is looked at every so many `check_ms`."""


@dataclass(slots=True)
class _Watched:
    """A stream with key compaction. `next_s`: earliest next look, by the loop's clock. `cleaned_s`: last offer. `try_count`: offers of the
    same inputs, one after the other."""

    stream: Stream
    rules: KeyCompactionRules
    is_changed: bool = True
    next_s: float = 0.0
    cleaned_s: float = float("-inf")
    inputs: frozenset[str] = frozenset()
    try_count: int = 0
    dirty_bytes: int = 0
    clean_bytes: int = 0
    is_too_large: bool = False

    @property
    def has_lag(self) -> bool:
        return self.rules.lag_ms_min > 0 or self.rules.lag_ms_max < LONG_MAX


class Cleanings:
    """Offers cleanings; see the module docstring."""

    def __init__(
        self, metadata: Metadata, settings: KeyCompactionSettings, isolation: FaultIsolation, clock: Clock
    ) -> None:
        """`clock` is compared with the timestamps of records."""
        self._metadata = metadata
        self._settings = settings
        self._isolation = isolation
        self._clock = clock
        self._streams: dict[int, _Watched] = {}
        self._open: set[int] = set()

    async def load(self, choice: TaskChoice, page_count: int) -> None:
        """Forget everything, and read the streams of `choice`: another planner may have been active. Raises `Unavailable`."""
        self._streams.clear()
        self._open.clear()
        if self._settings.is_enabled:
            async for stream in all_streams(self._metadata.streams, page_count):
                if choice.takes(stream.name):
                    self.watch(stream)

    def watch(self, stream: Stream) -> None:
        """Note a stream's configs: look at it from now on if they contain key compaction, else forget it."""
        rules = key_compaction_rules(stream.configs)
        if rules is None or stream.is_deleted or not self._settings.is_enabled:
            self.forget(stream.number)
            return
        known = self._streams.get(stream.number)
        if known is None:
            self._streams[stream.number] = _Watched(stream, rules)
        else:
            known.stream, known.rules, known.is_changed, known.try_count = stream, rules, True, 0

    def forget(self, number: int) -> None:
        """Forget a stream that is gone, belongs to other workers or has no key compaction."""
        if self._streams.pop(number, None) is not None:
            self._isolation.forget(_subject(number))

    def swapped(self, number: int) -> None:
        """Note a change of a stream's index."""
        watched = self._streams.get(number)
        if watched is not None:
            watched.is_changed = True

    def opened(self, tasks: Collection[Task], offers: Collection[TaskOffer]) -> None:
        """Note which offers of `offers` became tasks."""
        inputs = {tuple(offer.inputs) for offer in offers}
        self._open.update(task.id for task in tasks if tuple(task.inputs) in inputs)

    def open_count(self, open_merges: Mapping[int, Task]) -> int:
        """Return how many of these open MERGE tasks, by id, are cleanings that this planner has offered; without delayed ones."""
        self._open.intersection_update(open_merges)
        return sum(not open_merges[task_id].is_delayed for task_id in self._open)

    async def offers(self, busy: Collection[int], open_count: int, now_s: float) -> list[TaskOffer]:
        """Return cleanings that are due, of streams that are not `busy`, up to the limit of open cleanings. Raises `Unavailable`.

        `open_count` is that of `open_count`. A stream whose cleaning fails is busy, and takes no other stream's turn (I11).
        """
        room = self._settings.open_task_count_max - open_count
        found: list[TaskOffer] = []
        for number, watched in list(self._streams.items()):
            if len(found) >= room:
                break
            if number in busy or now_s < watched.next_s or not (watched.is_changed or watched.has_lag):
                continue
            async with self._isolation.of(_subject(number)):
                offer = await self._look_at(watched, now_s)
                if offer is not None:
                    found.append(offer)
        self._report()
        return found

    async def _look_at(self, watched: _Watched, now_s: float) -> TaskOffer | None:
        settings, rules, now_ms = self._settings, watched.rules, self._clock.now_ms()
        watched.is_changed = False
        watched.next_s = now_s + settings.check_ms / 1000
        located, bounds = await read_index(watched.stream, self._metadata)
        found = plan(located, bounds, rules, settings, now_ms=now_ms)
        watched.dirty_bytes, watched.is_too_large = found.dirty_bytes, found.is_too_large
        watched.clean_bytes = found.size_bytes - found.dirty_bytes
        if watched.has_lag:
            watched.next_s = now_s + LAG_CHECKS * settings.check_ms / 1000
        if not found.is_due(rules, now_ms):
            return None
        pause_s = settings.history_pause_ms / 1000 if rules.keeps_history else 0.0
        if now_s < watched.cleaned_s + pause_s and not found.is_late(rules, now_ms):
            watched.is_changed = True
            watched.next_s = watched.cleaned_s + pause_s
            return None
        inputs = frozenset(reference.key for reference in found.inputs)
        watched.try_count = watched.try_count + 1 if inputs == watched.inputs else 1
        watched.inputs = inputs
        if watched.try_count > TRY_COUNT_MAX:
            return None
        watched.cleaned_s = now_s
        watched.is_changed = True  # an offer may be left out, and a task may be dropped
        return _offer(watched.stream.number, found)

    def _report(self) -> None:
        streams = self._streams.values()
        metrics.KEY_COMPACTION_FILE_BYTES.labels("dirty").set(sum(watched.dirty_bytes for watched in streams))
        metrics.KEY_COMPACTION_FILE_BYTES.labels("clean").set(sum(watched.clean_bytes for watched in streams))
        metrics.KEY_COMPACTION_TOO_LARGE.set(sum(watched.is_too_large for watched in streams))


def _subject(number: int) -> str:
    return f"cleanings of stream {number}"


def _offer(number: int, found: CleaningPlan) -> TaskOffer:
    return TaskOffer(
        kind=TaskKind.MERGE,
        stream_number=number,
        inputs=sorted(reference.key for reference in found.inputs),
        size_bytes=found.size_bytes,
        record_count=sum(located.slice.record_count for pieces in found.inputs.values() for located in pieces),
        age_ms=0,
    )
