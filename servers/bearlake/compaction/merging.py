"""Chooses small data files to merge into a large one: size tiers, so that a row is rewritten at most once per tier.

Tier t holds files of `fan_in ** t` to `fan_in ** (t + 1)` bytes; a file of half the target size or more is final. When a tier has `fan_in`
files, or as many bytes as the target, its oldest files and those of lower tiers are merged into one file, at most of the target size.
With a fan-in of 8, 2 MB files reach 128 MB in two rewrites, and a table has at most 7 small files per tier that wait for a merge.

Files that key compaction wrote are not merged: the next cleaning does that (`key_compaction.py`).
`choose` is the policy, pure. `Merges` keeps the small files of streams whose index has changed, and looks up only newer ones.
Source: size-tiered compaction of LSM trees (Apache Cassandra, `SizeTieredCompactionStrategy`).
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from bearlake.compaction.cleaned_files import is_cleaned
from bearlake.compaction.settings import MergeSettings
from bearlake.metadata.compaction import ObjectRegister, Task, TaskKind, TaskOffer
from bearlake.telemetry.fault_isolation import FaultIsolation

STREAM_COUNT_MAX = 1_000
"""Number of streams whose small files are cached: those that changed last."""
PAGE_COUNT = 200
"""Data files per look-up."""
TRY_COUNT_MAX = 3
"""Failed merges after which a file is left as it is (another engine may have removed the file from the table)."""


class SmallFile(NamedTuple):
    """A data file that may be merged: its key, size in bytes, the log position of its swap, and its record count in the index."""

    key: str
    size: int
    position: int
    record_count: int


def choose(files: Collection[SmallFile], settings: MergeSettings) -> list[SmallFile]:
    """Return the files to merge now, oldest first; empty if the table needs no merge."""
    tiers: dict[int, list[SmallFile]] = {}
    for file in files:
        if file.size * 2 < settings.file_bytes:
            tiers.setdefault(_tier(file.size, settings.fan_in), []).append(file)
    for tier in sorted(tiers, reverse=True):
        found = tiers[tier]
        if len(found) >= settings.fan_in or sum(file.size for file in found) >= settings.file_bytes:
            lower = [file for other, same in tiers.items() if other <= tier for file in same]
            inputs = _take(sorted(lower, key=lambda file: (file.position, file.key)), settings)
            if len(inputs) > 1:
                return inputs
    return []


def _tier(size: int, fan_in: int) -> int:
    return int(math.log(max(size, 1), fan_in))


def _take(files: list[SmallFile], settings: MergeSettings) -> list[SmallFile]:
    inputs: list[SmallFile] = []
    room = settings.file_bytes
    for file in files:
        if len(inputs) >= settings.input_count_max:
            break
        if file.size <= room:
            inputs.append(file)
            room -= file.size
    return inputs


class _Files:
    """The small files of one stream: those of swaps up to `position`, and whether there may be newer ones."""

    def __init__(self) -> None:
        self.small: dict[str, SmallFile] = {}
        self.position = 0
        self.swap_count = 0
        self.is_known = False


class Merges:
    """Offers merges for streams passed to `swapped`. Used by the planner."""

    def __init__(self, objects: ObjectRegister, settings: MergeSettings, isolation: FaultIsolation) -> None:
        self._isolation = isolation
        self._objects = objects
        self._settings = settings
        self._files: OrderedDict[int, _Files] = OrderedDict()
        self._open: dict[int, Task] = {}
        self._tries: OrderedDict[str, int] = OrderedDict()

    def reset(self) -> None:
        """Forget everything, because another planner was active."""
        self._files.clear()
        self._open.clear()
        self._tries.clear()

    def swapped(self, number: int) -> bool:
        """Note new data files in a stream's index. Returns whether the stream has an open merge, which may be done now."""
        files = self._files.pop(number, None) or _Files()
        files.swap_count += 1
        self._files[number] = files
        while len(self._files) > STREAM_COUNT_MAX:
            forgotten, _ = self._files.popitem(last=False)
            self._isolation.forget(_subject(forgotten))
        return any(task.stream_number == number for task in self._open.values())

    def opened(self, task: Task) -> None:
        """Note an open merge, whose inputs are taken."""
        if task.kind is TaskKind.MERGE:
            self._open[task.id] = task
            files = self._files.get(task.stream_number)
            if files is not None:
                for key in task.inputs:
                    files.small.pop(key, None)

    def busy_streams(self) -> set[int]:
        """Return the streams with an open merge or cleaning."""
        return {task.stream_number for task in self._open.values()}

    @property
    def open(self) -> Mapping[int, Task]:
        """The merges and cleanings that were open at the last look-up, by id."""
        return self._open

    def closed(self, task_id: int) -> None:
        """Note that a merge is done or dropped; its stream is looked up again in both cases."""
        task = self._open.pop(task_id, None)
        if task is not None:
            for key in task.inputs:  # inputs that reappear were not merged: the table refused them, perhaps permanently
                self._tries[key] = self._tries.pop(key, 0) + 1
            while len(self._tries) > self._settings.file_count_remembered:
                self._tries.popitem(last=False)
            self.forget(task.stream_number)
            self.swapped(task.stream_number)

    def forget(self, number: int) -> None:
        """Look the stream's files up again at its next turn."""
        self._files.pop(number, None)
        self._isolation.forget(_subject(number))

    async def offers(self, cleaning_count: int = 0) -> list[TaskOffer]:
        """Return at most one merge per stream without an open merge, up to the total limit of open merges. Raises `Unavailable`.

        `cleaning_count` of the open merges are cleanings, which have a limit of their own. Delayed merges count for neither limit (I11).
        """
        settings = self._settings
        open_count = sum(not task.is_delayed for task in self._open.values())
        room = settings.open_task_count_max - (open_count - cleaning_count)
        if not settings.is_enabled or room <= 0:
            return []
        busy = self.busy_streams()
        found: list[TaskOffer] = []
        for number, files in list(self._files.items()):
            is_due = files.swap_count >= settings.fan_in or (files.swap_count > 0 and not files.is_known)
            if number in busy or not is_due:
                continue
            async with self._isolation.of(_subject(number)):
                await self._look_up(number, files)
            inputs = choose(files.small.values(), settings)
            if inputs:
                found.append(_offer(number, inputs))
                files.swap_count = settings.fan_in  # there may be more files to merge
            if len(found) >= room:
                break
        return found

    async def _look_up(self, number: int, files: _Files) -> None:
        settings = self._settings
        taken = {key for task in self._open.values() for key in task.inputs}
        swap_count, files.swap_count = files.swap_count, 0
        while len(files.small) < settings.file_count_remembered:
            page = await self._objects.data_files(number, after=files.position, limit=PAGE_COUNT)
            for entry in page:
                files.position = max(files.position, entry.position)
                key, size, _ = entry.object
                is_mergeable = key not in taken and not is_cleaned(key) and self._tries.get(key, 0) < TRY_COUNT_MAX
                if size * 2 < settings.file_bytes and is_mergeable:
                    count = sum(piece.record_count for piece in entry.segments)
                    files.small[key] = SmallFile(key, size, entry.position, count)
            if len(page) < PAGE_COUNT:
                files.is_known = True
                return
        files.swap_count = swap_count  # the remaining files follow after this merge


def _subject(number: int) -> str:
    return f"merges of stream {number}"


def _offer(number: int, inputs: list[SmallFile]) -> TaskOffer:
    return TaskOffer(
        kind=TaskKind.MERGE,
        stream_number=number,
        inputs=[file.key for file in inputs],
        size_bytes=sum(file.size for file in inputs),
        record_count=sum(file.record_count for file in inputs),
        age_ms=0,
    )
