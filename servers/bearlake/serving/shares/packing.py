"""The JSON format of messages between servers about share groups.

    POST /v1/shares/acquire      {"group", "member", "partitions": [partition], "bytes_max", "record_count_max", "is_strict", "wait_ms",
                                  "via"}
                                 → {"answers": [{"partition", "acquired": [[start, end, delivery_count]], "error": null | Problem}]}
    POST /v1/shares/acknowledge  {"group", "partition", "member", "acks": [[start, end, [type]]]}   → {}
    POST /v1/shares/release      {"group", "partition", "member", "via": null | server}             → {}
    POST /v1/shares/give_back    {"group", "partition", "member", "ranges": [[start, end]]}         → {}
    POST /v1/shares/reset        {"group", "partition", "offset"}                                   → {}
    POST /v1/shares/forget       {"group", "partition"}                                             → {}
    POST /v1/shares/seek         {"group", "partition", "offset"}: a Pulsar subscription            → {}

A Problem is {"kind", "detail", "holder": null | [node id, epoch]}; a refusal is status 409 with a Problem. Fields are added, never changed:
servers of two versions run side by side.
"""

from typing import Annotated, Any

from bearlake.errors import BearlakeError, Fenced, Invalid, NotFound, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey, ServerRef
from bearlake.serving.http.models import Meta, OpenModel, Reader
from bearlake.streams.subscriptions.model import NotHolder
from bearlake.streams.subscriptions.share.acknowledgements import InvalidRecordState, ShareAck
from bearlake.streams.subscriptions.share.acquiring import Acquired
from bearlake.streams.subscriptions.share.terms import NoState, ShareAnswer, ShareAsk

_Int64 = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

WAIT_MS_MAX = 4_000
"""Longest wait (ms) of one request for records: its sender soon notices if the server is gone."""

Document = dict[str, Any]
"""A JSON object; Any: its values."""

_KINDS: dict[str, type[BearlakeError]] = {
    "invalid_record_state": InvalidRecordState,
    "invalid": Invalid,
    "no_state": NoState,
    "not_found": NotFound,
    "fenced": Fenced,
    "overloaded": Overloaded,
    "unavailable": Unavailable,
}
_NOT_HOLDER = "not_holder"


class Acquire(OpenModel):
    """A member asks for records."""

    group: str
    member: str
    partitions: list[_Int64]
    bytes_max: _Int32
    record_count_max: _Int32
    is_strict: bool
    wait_ms: _Int32
    via: str = ""

    def ask(self) -> ShareAsk:
        """Return the request."""
        return ShareAsk(
            group=self.group,
            member=self.member,
            partitions=[PartitionKey(key) for key in self.partitions],
            bytes_max=self.bytes_max,
            record_count_max=max(self.record_count_max, 1),
            is_strict=self.is_strict,
            wait_ms=min(self.wait_ms, WAIT_MS_MAX),
            via=self.via,
        )


class _OfGroup(OpenModel):
    """A request about a group in one partition."""

    group: str
    partition: _Int64

    def key(self) -> PartitionKey:
        """Return the partition."""
        return PartitionKey(self.partition)


class Acknowledge(_OfGroup):
    """A member acknowledges records."""

    member: str
    acks: list[tuple[_Int64, _Int64, list[int]]]

    def all(self) -> list[ShareAck]:
        """Return the acknowledgements."""
        return [ShareAck(start, end, types) for start, end, types in self.acks]


class Release(_OfGroup):
    """What a member holds becomes available."""

    member: str
    via: str | None = None


class GiveBack(_OfGroup):
    """What a member acquired was not sent to it."""

    member: str
    ranges: list[tuple[_Int64, _Int64]]


class Reset(_OfGroup):
    """The group continues at an offset."""

    offset: _Offset


class Seek(_OfGroup):
    """A subscription, which is named like a group here, continues at an offset."""

    offset: _Offset


class Forget(_OfGroup):
    """The group's state is deleted."""


ACQUIRE = Reader[Acquire](Acquire)
ACKNOWLEDGE = Reader[Acknowledge](Acknowledge)
RELEASE = Reader[Release](Release)
GIVE_BACK = Reader[GiveBack](GiveBack)
RESET = Reader[Reset](Reset)
FORGET = Reader[Forget](Forget)
SEEK = Reader[Seek](Seek)


def pack_ask(ask: ShareAsk) -> Document:
    """Encode a request for records."""
    return {
        "group": ask.group,
        "member": ask.member,
        "partitions": list(ask.partitions),
        "bytes_max": ask.bytes_max,
        "record_count_max": ask.record_count_max,
        "is_strict": ask.is_strict,
        "wait_ms": ask.wait_ms,
        "via": ask.via,
    }


def pack_answers(answers: list[ShareAnswer]) -> Document:
    """Encode the answers, without batches."""
    return {
        "answers": [
            {
                "partition": answer.partition,
                "acquired": [list(run) for run in answer.acquired],
                "error": None if answer.error is None else pack_problem(answer.error),
            }
            for answer in answers
        ]
    }


def unpack_answers(document: Document) -> list[ShareAnswer]:
    """Decode answers. Raises `KeyError`, `TypeError`, `ValueError`."""
    return [
        ShareAnswer(
            partition=PartitionKey(int(item["partition"])),
            acquired=[Acquired(int(start), int(end), int(count)) for start, end, count in item["acquired"]],
            error=None if item["error"] is None else unpack_problem(item["error"]),
        )
        for item in document["answers"]
    ]


def pack_problem(error: BearlakeError) -> Document:
    """Encode an error; a kind that has no name here is passed on as `Unavailable`."""
    holder = None
    kind = next((name for name, found in _KINDS.items() if isinstance(error, found)), "unavailable")
    if isinstance(error, NotHolder):
        kind, holder = _NOT_HOLDER, None if error.holder is None else [error.holder.node_id, error.holder.epoch]
    return {"kind": kind, "detail": str(error), "holder": holder}


def unpack_problem(document: Document) -> BearlakeError:
    """Decode an error. Raises `KeyError`, `TypeError`, `ValueError`."""
    detail = str(document["detail"])
    if document["kind"] == _NOT_HOLDER:
        holder = document["holder"]
        return NotHolder(detail, None if holder is None else ServerRef(node_id=int(holder[0]), epoch=int(holder[1])))
    return _KINDS.get(str(document["kind"]), Unavailable)(detail)
