"""How far a copy is, by partition and in all; and what it needs of its topics and its target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from bearlake.importing.batches import Piece
from bearlake.importing.cluster import SourceTopic


class Named(Protocol):
    """What the target has for a topic."""

    @property
    def name(self) -> str:
        """Its name: the topic's."""


class Bounds(Protocol):
    """What the target has of a partition: `[start, end)`, in offsets of the source."""

    @property
    def start(self) -> int:
        """The first offset."""

    @property
    def end(self) -> int:
        """The offset at which the copy goes on."""


ViewT = TypeVar("ViewT", bound=Named)


class CopyTarget(Protocol[ViewT]):
    """Where a copy goes. `target.Target` has the contract: streams here; an export has topics elsewhere."""

    async def ensure(self, topic: SourceTopic, configs: Mapping[str, str], *, may_create: bool = True) -> ViewT:
        """Return what the target has for the topic; creates it."""

    async def find(self, topic: SourceTopic) -> ViewT:
        """Return what the target has for the topic, if the copy may still append there."""

    async def bounds(self, topic: SourceTopic, view: ViewT) -> Sequence[Bounds]:
        """Return the bounds of each partition."""

    async def append(self, batches: Sequence[tuple[ViewT, int, Piece]]) -> None:
        """Append pieces to partitions."""

    async def trim(self, topic: SourceTopic, view: ViewT, index: int, start: int) -> None:
        """Follow the source's start."""


class Topics(Protocol):
    """The topics of a copy, as `selection.Selection`."""

    @property
    def configs(self) -> Mapping[str, Mapping[str, str]]:
        """Configs that the target's topics get, by topic."""

    async def look(self) -> Sequence[SourceTopic]:
        """Return the topics that match now."""


@dataclass(slots=True, kw_only=True)
class PartitionCopy(Generic[ViewT]):
    """One partition: how far the copy is. Offsets of the source."""

    topic: SourceTopic
    view: ViewT
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
