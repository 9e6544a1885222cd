"""How far a copy is: by partition, and in all."""

from dataclasses import dataclass

from bearlake.importing.cluster import SourceTopic
from bearlake.streams.catalog import StreamView


@dataclass(slots=True, kw_only=True)
class PartitionCopy:
    """One partition: how far the copy is. Offsets."""

    topic: SourceTopic
    view: StreamView
    index: int
    end: int
    """End of the target: everything below it is durable."""
    next: int
    """End of what was read and handed to the target."""
    source_start: int
    source_stable: int
    """The source's last stable offset, as of the newest response."""
    stop: int | None
    """Where the copy ends; None: nowhere."""
    start: int = 0
    """Start of the target."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read."""
        return self.stop is not None and self.next >= self.stop

    @property
    def lag(self) -> int:
        """Offsets that the source has and the target does not, as of the newest response."""
        return max(0, self.source_stable - self.end)


@dataclass(slots=True)
class Copied:
    """What this run has copied."""

    bytes: int = 0
    batches: int = 0
    """Batches, those in place of offsets without records not counted."""
