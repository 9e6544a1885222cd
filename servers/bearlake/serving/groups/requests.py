"""Requests of other servers about groups, as typed models (`packing` describes them): a value of another type is refused.

Fields that this version does not know are ignored: a newer server may send more.
"""

from typing import Annotated

from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.serving.http.models import Meta, OpenModel, Reader
from bearlake.streams.groups.model import JoinRequest, MemberRef

_Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Request(OpenModel, kw_only=True):
    """A request about one group."""

    group: str
    revision: str | None = None
    """The newest revision of the group that the sender knows; None: a server of an older version."""


class _OfMember(_Request, kw_only=True):
    """A request of a member, or of a client outside the group protocol."""

    member_id: str
    instance_id: str | None
    generation: _Int32 = -1

    def sender(self) -> MemberRef:
        """Return who asks."""
        return MemberRef(
            group=self.group, member_id=self.member_id, instance_id=self.instance_id, generation=self.generation
        )


class _Joining(OpenModel):
    """A `JoinRequest`."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: _Int32
    rebalance_timeout_ms: _Int32
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    requires_known_id: bool
    can_skip_assignment: bool


class Join(_Request, kw_only=True):
    """A join."""

    request: _Joining

    def join_request(self) -> JoinRequest:
        """Return the request of the member."""
        return JoinRequest(
            member_id=self.request.member_id,
            instance_id=self.request.instance_id,
            client_id=self.request.client_id,
            client_host=self.request.client_host,
            session_timeout_ms=self.request.session_timeout_ms,
            rebalance_timeout_ms=self.request.rebalance_timeout_ms,
            protocol_type=self.request.protocol_type,
            protocols=tuple(self.request.protocols),
            requires_known_id=self.request.requires_known_id,
            can_skip_assignment=self.request.can_skip_assignment,
        )


class Sync(_OfMember, kw_only=True):
    """A sync."""

    protocol: tuple[str | None, str | None]
    assignments: dict[str, bytes]


class Beats(OpenModel):
    """Heartbeats."""

    beats: list[tuple[str, str, str | None, _Int32]]

    def senders(self) -> list[MemberRef]:
        """Return the members, in order."""
        return [
            MemberRef(group=group, member_id=member_id, instance_id=instance_id, generation=generation)
            for group, member_id, instance_id, generation in self.beats
        ]


class Commit(_OfMember, kw_only=True):
    """A commit."""

    offsets: list[tuple[_Int64, _Int64, _Int32, str]]

    def positions(self) -> dict[PartitionKey, CommittedOffset]:
        """Return the offsets by partition."""
        return {
            PartitionKey(key): CommittedOffset(offset=offset, leader_epoch=leader_epoch, metadata=metadata)
            for key, offset, leader_epoch, metadata in self.offsets
        }


class Leave(_OfMember, kw_only=True):
    """A leave, which is of no generation."""


class Delete(_Request, kw_only=True):
    """A deletion."""


class Describe(_Request, kw_only=True):
    """A question about a group."""


JOIN = Reader[Join](Join)
SYNC = Reader[Sync](Sync)
BEATS = Reader[Beats](Beats)
COMMIT = Reader[Commit](Commit)
LEAVE = Reader[Leave](Leave)
DELETE = Reader[Delete](Delete)
DESCRIBE = Reader[Describe](Describe)
