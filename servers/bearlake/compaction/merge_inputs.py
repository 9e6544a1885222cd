"""What a merge reads: the data files of its task that the index still names, with the index's segments in them."""

from bearlake.compaction.commit import Work
from bearlake.errors import Conflict
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import LocatedSlice, ObjectRef


class Outdated(Conflict):
    """A merge is no longer possible; nothing was attempted."""


async def read_inputs(work: Work, metadata: Metadata) -> None:
    """Set `slices` and `inputs` of a merge: the files to merge, and the index's segments in them. Raises `Outdated`, `Unavailable`."""
    task = work.task
    missing_keys = set(task.inputs)
    slices: list[LocatedSlice] = []
    inputs: list[ObjectRef] = []
    after = 0
    while missing_keys:
        page = await metadata.objects.data_files(work.stream.number, after=after)
        if not page:
            raise Outdated(f"merge {task.id}: {len(missing_keys)} of its files are no longer in the index")
        for entry in page:
            after = max(after, entry.position)
            if entry.object.key in missing_keys:
                missing_keys.remove(entry.object.key)
                inputs.append(entry.object)
                slices += [LocatedSlice(piece, *entry.object) for piece in entry.segments]
    slices.sort()
    # A file may still be listed for rows that are trimmed but not yet forgotten, after an earlier merge has
    # moved all of its other rows to another file.
    ranges = [OffsetRange(piece.partition, piece.base_offset, piece.end_offset) for piece, *_ in slices]
    current = {found.object_key for found in await metadata.log.slices(ranges)}
    if not current.issuperset(task.inputs):
        raise Outdated(f"merge {task.id}: the index no longer references one of its files")
    work.slices, work.inputs = slices, inputs
