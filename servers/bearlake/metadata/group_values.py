"""Values of consumer groups, as the metadata store has them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A group's committed position: next offset to read, its leader epoch (-1: unknown), free text, and commit time (ms, store's clock)."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """A group's membership as its coordinator saved it; `state` is the coordinator's own encoding (`streams/groups`)."""

    group: str
    protocol_type: str
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a listing; `protocol_type` is empty if the group only has committed offsets."""

    group: str
    protocol_type: str
