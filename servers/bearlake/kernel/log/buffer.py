"""The write buffer: the batches of one WAL object, from their arrival to their outcomes."""

import logging
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct

from bearlake.kernel.batch.checksum import crc32c
from bearlake.kernel.buffers import view_of
from bearlake.kernel.log import BATCH_NAMED, PARTITION_BITS, Append, BatchCommit, Hold, ProduceOutcome
from bearlake.kernel.log.results import Results
from bearlake.kernel.log.rows import CommitRows

_log = logging.getLogger(__name__)

COUNT_MAX = 2**31 - 1
"""Most batches of a buffer."""

_ENTRY = Struct(">16sIIQII")


class WriteBuffer:
    """Batches for one WAL object. Batches of one partition keep their order of arrival (I3).

    add … add ─┬─ join, which copies the batches and releases their memory → index, commits ────────────────┬─ resolve
               └─ arrange, which leaves them where they arrived → index, commits → (put) → release, of their memory ─┘
    """

    def __init__(self, size_max: int, count_max: int = COUNT_MAX, /) -> None:
        """The buffer is full at `size_max` bytes or `count_max` batches; it takes one batch that is larger."""
        if size_max < 0 or not 0 < count_max <= COUNT_MAX:
            raise ValueError("a buffer has a size, and room for a batch")
        self.size_max = size_max
        """Bytes at which the buffer is full."""
        self.count_max = count_max
        """Batches at which the buffer is full."""
        self._slices: dict[tuple[bytes, int], list[_Queued]] = {}
        self._holds: list[tuple[Hold | None, int]] = []
        self._order: list[_Queued] | None = None
        self.size = 0
        """Bytes of the batches."""
        self.count = 0
        """Batches."""
        self.flags = 0
        """The flags that any of the batches has."""
        self.seen = 0
        """Log position that the server knew before it received any batch that may be its producer's first (decision 94)."""

    @property
    def slice_count(self) -> int:
        """Partitions that have batches."""
        return len(self._slices)

    def add(self, results: Results, appends: Sequence[Append], start: int, seen: int, /) -> int:
        """Add `appends[start:]` until the buffer is full, and acquire their holds; their outcomes go to `results`.

        If a batch may be its producer's first, `seen` lowers the buffer's. Returns the index of the first batch that was not added.
        """
        self.check_open()
        if not isinstance(results, Results):
            raise TypeError("add() takes the results of the batches")
        if start < 0 or len(appends) != len(results):
            raise ValueError("add() takes one append per result, and an index")
        for at in range(start, len(appends)):
            item = appends[at]
            if not isinstance(item, tuple) or len(item) != len(Append._fields):
                raise ValueError(f"an append is not a tuple of {len(Append._fields)}")
            if not self.fits(len(item.batch)):
                return at
            view = view_of(item.batch)
            if len(view) == 0 or len(view) != len(item.batch):
                raise ValueError("a batch is a buffer of bytes that is not empty")
            self.keep(item.hold, 1)
            self.push(results, at, item._replace(batch=view), seen)
        return max(start, len(appends))

    def join(self, front: int, back: int, /) -> bytearray:
        """Copy the batches into a new buffer, between `front` and `back` zero bytes, and release their memory. At most once.

        Slices are in order of stream id and partition. A hold whose release fails is reported, and the others are released. Raises
        `ValueError` for a buffer without batches.
        """
        self.check_open()
        if front < 0 or back < 0 or not self.count:
            raise ValueError("join() takes sizes, and the buffer must have batches")
        parts = [bytes(front), *self._place(front)]
        target = bytearray().join([*parts, bytes(back)])
        parts.clear()
        self.release()
        return target

    @property
    def can_arrange(self) -> bool:
        """Whether `index` can join the checksums of arranged batches: native code needs a processor with carry-less multiplication."""
        return True

    def arrange(self, front: int, /) -> list[memoryview]:
        """Place the batches behind `front` bytes, as `join` does, but do not copy them; returns their bytes, in the order of the object.

        Their memory stays held until `release`, which the caller calls once it has no more use for the bytes, also after an error. At most
        one of `join` and `arrange` is called. Raises `ValueError` for a buffer without batches, and for memory that is not of bytes.
        """
        self.check_open()
        if front < 0 or not self.count:
            raise ValueError("arrange() takes a size, and the buffer must have batches")
        parts = self._place(front)
        return [memoryview(part) for part in parts]

    def release(self) -> None:
        """Release the memory of the batches; safe to repeat, and after `join`. Raises `ValueError` if the batches are not placed."""
        for queued in self._joined():
            queued.item = queued.item._replace(batch=b"", hold=None)
        holds, self._holds = self._holds, []
        for hold, run in groupby(holds, key=lambda pair: pair[0]):
            if hold is not None:
                _release(hold, sum(count for _, count in run))

    def _place(self, position: int) -> list[bytes | bytearray | memoryview]:
        """Give the batches their positions; returns their bytes."""
        self._order = [queued for owner in sorted(self._slices) for queued in self._slices[owner]]
        for queued in self._order:
            queued.position = position
            queued.length = len(queued.item.batch)
            position += queued.length
        return [queued.item.batch for queued in self._order]

    def index(self, object_: bytearray | None, /) -> bytes:
        """Return one entry per slice of the object that `join` made, in the layout of `wal.v1.ENTRY`, with checksums.

        None: of the batches that `arrange` placed, whose memory is still held, if it `can_arrange`. Otherwise raises `ValueError`.
        """
        entries = []
        if object_ is None and not self._holds:
            raise ValueError("index() takes the object that join() returned, or None after arrange()")
        for (stream_id, partition), run in groupby(self._joined(), key=attrgetter("owner")):
            batches = list(run)
            start, end = batches[0].position, batches[-1].position + batches[-1].length
            if object_ is None:
                content = b"".join(queued.item.batch for queued in batches)
                crc = crc32c(content, 0, len(content))
            elif end <= len(object_):
                crc = crc32c(object_, start, end)
            else:
                raise ValueError("index(): a slice is not in the object, or has 4 GiB or more")
            number = partition & ((1 << PARTITION_BITS) - 1)
            entries.append(_ENTRY.pack(stream_id, number, len(batches), start, end - start, crc))
        return b"".join(entries)

    def commits(self) -> CommitRows:
        """Return the batches as `join` placed them."""
        commits = []
        for queued in self._joined():
            partition, _, _, _, *rest = queued.item
            commits.append(BatchCommit(partition, queued.position, queued.length, *rest))
        return CommitRows.of(commits)

    def resolve(self, outcomes: Sequence[ProduceOutcome], /) -> list[Results]:
        """Set the outcome of each batch, in the order of `commits`; returns the calls that have all their outcomes now.

        Calls that are answered already are left alone. Raises `ValueError`, with nothing done, if the numbers differ.
        """
        batches = self._joined()
        if len(outcomes) != len(batches):
            raise ValueError(f"{len(outcomes)} results for {len(batches)} batches")
        return [
            queued.results
            for queued, outcome in zip(batches, outcomes, strict=True)
            if queued.results.set_one(queued.place, outcome)
        ]

    # -- for `take_produces` -------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise `ValueError` if the buffer is joined."""
        if self._order is not None:
            raise ValueError("the buffer is joined already")

    def fits(self, size: int) -> bool:
        """Whether the buffer may take one more batch, of `size` bytes."""
        return self.size == 0 or (self.size + size <= self.size_max and self.count < self.count_max)

    def keep(self, hold: Hold | None, count: int) -> None:
        """Hold the memory of `count` batches until `join`. Raises `ValueError` if acquiring the hold joined the buffer."""
        if hold is not None:
            hold.acquire(count)
        if self._order is not None and hold is not None:
            _release(hold, count)
        self.check_open()
        self._holds.append((hold, count))

    def push(self, results: Results, place: int, item: Append, seen: int) -> None:
        """Add a batch, whose memory is held."""
        queued = _Queued(results, place, item)
        self._slices.setdefault(queued.owner, []).append(queued)
        self.count += 1
        self.size += len(item.batch)
        self.flags |= item.flags
        if seen < self.seen and _may_begin(item):
            self.seen = seen

    def _joined(self) -> list["_Queued"]:
        if self._order is None:
            raise ValueError("the buffer is not joined yet")
        return self._order


class _Queued:
    """A batch of a buffer."""

    __slots__ = ("item", "length", "owner", "place", "position", "results")

    def __init__(self, results: Results, place: int, item: Append) -> None:
        self.results = results
        self.place = place
        self.item = item
        self.owner = item.stream_id, item.partition
        self.position = 0
        self.length = 0


def _release(hold: Hold, count: int) -> None:
    try:
        hold.release(count)
    except Exception as error:  # noqa: BLE001 - boundary: the batches are copied, and other holds must be released
        _log.error("a hold was not released", exc_info=error)


def _may_begin(item: Append) -> bool:
    """Whether the batch may be its producer's first; only first batches can be UNSURE (`metadata/producers.py`).

    Other batches must not lower the buffer's `seen`: one old call would make other calls' batches in the same object UNSURE.
    """
    is_first = item.base_sequence == 0 or bool(item.flags & BATCH_NAMED and item.after_sequence < 0)
    return item.producer_id >= 0 and is_first
