"""Seals WAL objects (layout: `wal/format.py`).

The native kernel copies the batches once into a new `bytearray` (`seal_batches`). The receive buffers are free afterwards, and the server
can later write offsets into the copy (`kernel.rebase`) and serve readers from it. Or it leaves the batches in the receive buffers until the
object is stored (`arrange_batches`): then the server has no copy for readers. The checksums in the index cover the bytes as sealed: they
hold for the stored object, not for a rebased copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from bearlake import kernel
from bearlake.errors import TooLarge
from bearlake.kernel import Append, PartitionKey
from bearlake.wal import v1
from bearlake.wal.format import TRAILER_BYTES, Part

_NO_OUTCOME = (0, -1, -1)
_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A WAL object's bytes, and the position of each part.

    `positions[i]` is the position in the object of the first batch of part i, in the order of the arguments; the part's other batches
    follow back to back.
    """

    buffer: bytearray
    positions: Sequence[int]


def seal(parts: Sequence[Part], *, node_id: int, server_epoch: int) -> Sealed:
    """Build one WAL object from `parts`: at least one part, each with at least one batch, each buffer one whole non-empty batch.

    Slices are sorted by (stream id, partition). Several parts of one partition become one slice, in the given order. If the parts are
    already in that order, their positions ascend.

    Raises:
        TooLarge: the batches have 4 GiB or more, or there are more than 2**20 partitions.
    """
    assert parts
    _check_size(sum(sum(map(len, part.batches)) for part in parts))
    appends = [
        Append(PartitionKey(part.partition), part.stream_id, batch, None, 0, 0, -1, -1, -1, 0)
        for part in parts
        for batch in part.batches
    ]
    batches = kernel.WriteBuffer(_UNBOUNDED)
    batches.add(kernel.Results(len(appends), _NO_OUTCOME), appends, 0, 0)
    buffer = seal_batches(batches, node_id=node_id, server_epoch=server_epoch)
    owners = [(item.stream_id, item.partition) for item in appends]
    order = sorted(range(len(owners)), key=owners.__getitem__)
    position = dict(zip(order, (commit.position for commit in batches.commits()), strict=True))
    firsts = accumulate((len(part.batches) for part in parts), initial=0)
    return Sealed(buffer=buffer, positions=[position[first] for first, _ in zip(firsts, parts, strict=False)])


def seal_batches(batches: kernel.WriteBuffer, *, node_id: int, server_epoch: int) -> bytearray:
    """Build one WAL object from a buffer that has batches; joins the buffer. Raises `TooLarge` as `seal`."""
    target = batches.join(_checked_front(batches), TRAILER_BYTES)
    v1.fill_in(target, batches.index(target), node_id, server_epoch)
    return target


def arrange_batches(
    batches: kernel.WriteBuffer, *, node_id: int, server_epoch: int
) -> list[bytes | bytearray | memoryview]:
    """Return the parts of one WAL object of a buffer that has batches; the batches stay where they are, held until `batches.release`.

    The buffer `can_arrange`. Raises `TooLarge` as `seal`, before anything is arranged.
    """
    front_bytes = _checked_front(batches)
    parts: list[bytes | bytearray | memoryview] = [b"", *batches.arrange(front_bytes)]
    size = front_bytes + batches.size + TRAILER_BYTES
    parts[0], back = v1.around(size, batches.index(None), node_id, server_epoch)
    parts.append(back)
    return parts


def _checked_front(batches: kernel.WriteBuffer) -> int:
    """Return the bytes before the slices. Raises `TooLarge`."""
    slice_count = batches.slice_count
    if slice_count > v1.SLICE_COUNT_MAX:
        raise TooLarge("index of a WAL object", v1.index_bytes(slice_count), v1.index_bytes(v1.SLICE_COUNT_MAX))
    _check_size(batches.size)
    return v1.index_bytes(slice_count)


def _check_size(size: int) -> None:
    if size > v1.LENGTH_MAX:
        raise TooLarge("batches of a WAL object", size, v1.LENGTH_MAX)
