"""Compares exported topics with their source: the records that both have, at the offsets that the ledger says.

Batches that are sent as the source has them have the same bytes but for the producer: their checksums (CRC32C) are computed anew with the
target's producer, and compared. Other batches, such as those that a broker has compressed anew or cleaned, are decoded and compared record
by record: timestamp, key, value, headers. If a topic is compacted by key, records that only one side still has are counted, and are no
difference.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from struct import Struct

from bearlake.exporting.batches import Sender, outgoing, sign
from bearlake.exporting.mapping import Runs
from bearlake.exporting.target import ExportedTopic, ExportTarget
from bearlake.importing.batches import Piece
from bearlake.importing.cluster import Connections, SourceCluster
from bearlake.importing.progress import PartitionCopy
from bearlake.importing.reading import pieces_of
from bearlake.importing.verifying import Compared, Comparison
from bearlake.kernel import RecordFields
from bearlake.records import codec as record_codec
from bearlake.streams.admission import UNCOMPRESSED_BYTES_MAX

_PRODUCER = Struct(">qhi")
_PRODUCER_AT = 43


async def verify(
    source: SourceCluster,
    target: SourceCluster,
    exported: ExportTarget,
    partitions: Sequence[PartitionCopy[ExportedTopic]],
    configs: Mapping[str, Mapping[str, str]],
) -> list[Compared]:
    """Compare these partitions, over the offsets of the target that this and earlier runs have exported and that are still there.

    `configs`: of each topic. Raises `Corrupt`, `Denied`, `Unavailable`: a side does not answer, or its batches cannot be read.
    """
    found = []
    for copy in partitions:
        view, index = copy.view, copy.index
        runs = exported.ledger.accounts[view.name, index].runs
        async with Connections(target) as connections:
            bounds = (await target.bounds(view.topic, connections))[index]
        first = runs.first
        end = view.parts[index].target_next
        start = min(end, max(bounds.start, first[1] if first else end))
        compared = Compared(topic=view.name, partition=index, start=start, end=end)
        found.append(compared)
        if start < end:
            sides = _Sides(
                compared, runs, is_compacted="compact" in configs.get(view.name, {}).get("cleanup.policy", "")
            )
            source_start = max(copy.source_start, runs.source_of(start) or 0)
            theirs = pieces_of(source, copy.topic, index, source_start, view.parts[index].source_next)
            await sides.run(theirs, pieces_of(target, view.topic, index, start, end))
    return found


class _Sides(Comparison):
    """Compares batches of the source with batches of the target. The offsets of differences are the target's."""

    def __init__(self, compared: Compared, runs: Runs, *, is_compacted: bool) -> None:
        super().__init__(compared, is_compacted=is_compacted)
        self._runs = runs

    async def run(self, source: AsyncIterator[Piece], target: AsyncIterator[Piece]) -> None:
        """Compare all batches, in the order of their offsets in the target."""
        theirs, ours = await anext(source, None), await anext(target, None)
        while theirs is not None or ours is not None:
            there = None if theirs is None else self._at(theirs)
            if there is None or (ours is not None and ours.start < there):
                self.compare(None, ours)
                ours = await anext(target, None)
            elif ours is None or there < ours.start:
                self.compare(theirs, None)
                theirs = await anext(source, None)
            else:
                self.compare(theirs, ours)
                theirs, ours = await anext(source, None), await anext(target, None)

    def _at(self, theirs: Piece) -> int:
        """Return the target's offset of the batch of the source."""
        return self._runs.target_of(theirs.start, self.compared.end) or 0

    def compare(self, theirs: Piece | None, ours: Piece | None) -> None:
        """Compare a batch of the source with one of the target; None: that side has none at this offset."""
        if theirs is not None and ours is not None and _is_same(theirs, ours):
            self.compared.same_batches += 1
        else:
            self.match(self._of_source(theirs), self._records(ours), "source", "target")

    def _of_source(self, piece: Piece | None) -> dict[int, RecordFields]:
        if piece is None:
            return {}
        base = piece.end - 1 - int.from_bytes(piece.batch[23:27], "big")
        found: dict[int, RecordFields] = {}
        for fields in record_codec.fields(piece.batch, UNCOMPRESSED_BYTES_MAX):
            offset = self._runs.target_of(base + fields[0], self.compared.end)
            if offset is not None and self.compared.start <= offset < self.compared.end:
                found[offset] = fields
        return found


def _is_same(theirs: Piece, ours: Piece) -> bool:
    """Whether the target has what was sent for the batch: same length and checksum with the producer of the target's batch."""
    sent = outgoing(theirs)
    if len(sent.batch) != len(ours.batch) or len(sent.stretches) != 1:
        return False
    identity, epoch, sequence = _PRODUCER.unpack_from(ours.batch, _PRODUCER_AT)
    sign(sent.batch, Sender(identity, epoch, 0), sequence)
    return sent.batch[17:21] == ours.batch[17:21]
