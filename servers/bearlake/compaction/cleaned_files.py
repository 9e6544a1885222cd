"""Data files that key compaction wrote: how their names and footers say so.

The name tells the planner which files were cleaned, without a read: `<location>/data/<task>-<epoch>-<c or h><item>-<attempt>.parquet`.
`c`: the file is also in the table. `h`: only the log has it, and the table keeps the rows of the files that it replaced
(`table.on_compaction=history`, decision 176).

The footer's metadata `bearlake.cleaned` tells when the file's tombstones were cleaned for the first time, as JSON, version 1:
`{"version": 1, "tombstones": {"<partition index>": [[first offset, last offset, time in ms], …]}}`. A range may also cover records that are
not tombstones. A tombstone may go `delete.retention.ms` after that time: by then no older record of its key is left.
Source: KIP-534 (delete horizon).
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from bearlake.errors import Corrupt

FOOTER_NAME = "bearlake.cleaned"
VERSION = 1
STEPS_PER_RETENTION = 16
"""Times of cleanings are rounded up to this fraction of `delete.retention.ms`, so that a footer has few ranges. A tombstone may stay longer
by that much."""

_CLEANED = re.compile(r".*/data/[0-9a-f]{16}-\d+-([ch])\d+-[^/]+\.parquet")


def item_prefix(task_prefix: str, number: int, *, is_in_table: bool) -> str:
    """Return the `output_prefix` of a task's item of this number; `task_prefix` is `<location>/data/<task>-<epoch>`."""
    return f"{task_prefix}-{'c' if is_in_table else 'h'}{number}"


def is_cleaned(key: str) -> bool:
    """Return whether key compaction wrote the file."""
    return _CLEANED.fullmatch(key) is not None


def is_only_in_log(key: str) -> bool:
    """Return whether the file is not in the table, by its name."""
    found = _CLEANED.fullmatch(key)
    return found is not None and found.group(1) == "h"


class Stamp(NamedTuple):
    """The tombstones with offsets `[first, last]` were cleaned for the first time at `cleaned_ms`."""

    first: int
    last: int
    cleaned_ms: int


Stamps: TypeAlias = Mapping[int, Sequence[Stamp]]
"""By partition index, in offset order."""


def rounded_up(now_ms: int, keep_ms: int) -> int:
    """Return the time that a cleaning at `now_ms` writes, if tombstones stay for `keep_ms`."""
    step = max(1, keep_ms // STEPS_PER_RETENTION)
    return now_ms + -now_ms % step


class StampBook:
    """Finds and collects stamps."""

    def __init__(self, *given: Stamps) -> None:
        """`given` are stamps of different files. Ranges of one partition overlap if the files' offsets alternate."""
        self._ranges: dict[int, list[Stamp]] = {}
        for partition in {partition for stamps in given for partition in stamps}:
            ranges = self._ranges[partition] = []
            for stamp in sorted(stamp for stamps in given for stamp in stamps.get(partition, ())):
                if ranges and stamp.first <= ranges[-1].last:
                    ranges[-1] = _joined(ranges[-1], stamp)
                else:
                    ranges.append(stamp)

    def find(self, partition: int, offset: int) -> int | None:
        """Return when the tombstone was cleaned for the first time (ms), or None if it never was."""
        ranges = self._ranges.get(partition, [])
        at = bisect_right(ranges, offset, key=_first) - 1
        return ranges[at].cleaned_ms if at >= 0 and offset <= ranges[at].last else None

    def add(self, partition: int, offset: int, cleaned_ms: int) -> None:
        """Add a tombstone; offsets of a partition are added in ascending order."""
        ranges = self._ranges.setdefault(partition, [])
        if ranges and ranges[-1].cleaned_ms == cleaned_ms:
            ranges[-1] = ranges[-1]._replace(last=offset)
        else:
            ranges.append(Stamp(offset, offset, cleaned_ms))

    def encoded(self) -> dict[str, str]:
        """Return the stamps as metadata for a footer."""
        stamps = {str(partition): ranges for partition, ranges in self._ranges.items()}
        return {FOOTER_NAME: json.dumps({"version": VERSION, "tombstones": stamps}, separators=(",", ":"))}


def read_stamps(text: bytes | None) -> Stamps:
    """Read a footer's metadata; None: the file has none.

    Raises:
        Corrupt: not metadata of this version.
    """
    if text is None:
        return {}
    try:
        fields = json.loads(text)
        if fields["version"] != VERSION:
            raise Corrupt(f"{FOOTER_NAME} has version {fields['version']}; expected {VERSION}")
        return {
            int(partition): [Stamp(int(first), int(last), int(time_ms)) for first, last, time_ms in ranges]
            for partition, ranges in fields["tombstones"].items()
        }
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Corrupt(f"{FOOTER_NAME} in a footer: {error!r}") from error


def _joined(left: Stamp, right: Stamp) -> Stamp:
    """Join overlapping ranges. Later offsets are never cleaned before earlier ones, so both have the same time, or nearly."""
    return Stamp(left.first, max(left.last, right.last), max(left.cleaned_ms, right.cleaned_ms))


def _first(stamp: Stamp) -> int:
    return stamp.first
