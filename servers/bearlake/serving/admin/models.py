"""Bodies of the admin API, as models: they check the bodies, and describe them in the OpenAPI document.

A batch is checked item by item: one that does not fit fails alone.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

from bearlake.serving.http.models import UNSET, Meta, Model, Raw, Reader, UnsetType, field

T = TypeVar("T")


class NewStream(Model):
    """A stream to create."""

    name: str
    partition_count: int | None = None
    configs: dict[str, str] = field(default_factory=dict)


class StreamChange(Model):
    """A stream to alter: configs to set, configs to give their defaults, and a larger number of partitions."""

    name: str
    partition_count: int | None = None
    set: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)


class StreamToDelete(Model):
    """A stream to delete; with an `id`, only the stream that has it."""

    name: str
    id: str | UnsetType = UNSET


class Batch(Model, Generic[T]):
    """Streams, in the order in which they are worked through."""

    streams: Annotated[list[T], Meta(min_length=1, description="a list of objects with at least one item")]


class Problem(Model):
    """Why a request, or an item of a batch, failed (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Stream(Model):
    """A stream."""

    name: str
    id: str
    partition_count: int
    configs: Mapping[str, str]
    created_ms: int


class Result(Model):
    """What became of an item of a batch."""

    name: str | None
    status: int
    stream: Stream | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class Results(Model):
    """What became of a batch, item by item."""

    results: list[Result]


NEW_STREAM = Reader[NewStream](NewStream)
STREAM_CHANGE = Reader[StreamChange](StreamChange)
STREAM_TO_DELETE = Reader[StreamToDelete](StreamToDelete)
ITEMS: Reader[Batch[Raw]] = Reader(Batch[Raw])
NAMED: Reader[Any] = Reader(Any)
"""Reads any item; for its name, whether or not the item fits."""
