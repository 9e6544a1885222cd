"""Bodies and query parameters of the admin API, as models: they check requests, and describe them in the OpenAPI document.

A batch is checked item by item: an invalid item fails without an effect on the others.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from bearlake.serving.http.models import UNSET, Meta, Model, OpenModel, Raw, Reader, UnsetType, field
from bearlake.serving.http.queries import Query

T = TypeVar("T")


PAGE_COUNT_MAX = 1_000
"""Largest number of items in a page."""

PageCount = Annotated[int, Meta(ge=1, le=PAGE_COUNT_MAX)]


class StreamPage(OpenModel):
    """Parameters of a list of streams."""

    prefix: str = ""
    after: str = ""
    """The name of the last stream of the previous page."""
    limit: PageCount = PAGE_COUNT_MAX
    usage: Literal["true", "false"] = "false"
    """`true` adds records and bytes."""


class PartitionPage(OpenModel):
    """Parameters of a list of partitions."""

    after: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    """The last partition of the previous page; -1: start with the first partition."""
    limit: PageCount = PAGE_COUNT_MAX


class TaskPage(OpenModel):
    """Parameters of a list of compaction tasks."""

    stream: str = ""
    after: Annotated[int, Meta(ge=0, le=2**62)] = 0
    """The id of the last task of the previous page."""
    limit: PageCount = 100


class CompactionPage(OpenModel):
    """Parameters of the backlog and of the last commits."""

    limit: PageCount = 100
    streams: list[str] = field(default_factory=list)
    """Patterns of names; an empty list selects all streams."""


class StreamNames(OpenModel):
    """Parameters of a request about streams without a body."""

    name: list[str] = field(default_factory=list)


class NewStream(Model):
    """A stream to create."""

    name: str
    partition_count: int | None = None
    configs: dict[str, str] = field(default_factory=dict)


class StreamChange(Model):
    """A stream to alter: configs to set, configs to reset to their defaults, and a larger number of partitions."""

    name: str
    partition_count: int | None = None
    set: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)


class StreamToDelete(Model):
    """A stream to delete; with an `id`, only the stream with this id."""

    name: str
    id: str | UnsetType = UNSET


class Batch(Model, Generic[T]):
    """Streams, in processing order."""

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
    """The result of an item of a batch."""

    name: str | None
    status: int
    stream: Stream | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class Results(Model):
    """The results of a batch, item by item."""

    results: list[Result]


STREAM_PAGE = Query(StreamPage)
PARTITION_PAGE = Query(PartitionPage)
COMPACTION_PAGE = Query(CompactionPage)
TASK_PAGE = Query(TaskPage)
STREAM_NAMES = Query(StreamNames)

NEW_STREAM = Reader[NewStream](NewStream)
STREAM_CHANGE = Reader[StreamChange](StreamChange)
STREAM_TO_DELETE = Reader[StreamToDelete](StreamToDelete)
ITEMS: Reader[Batch[Raw]] = Reader(Batch[Raw])
NAMED: Reader[Any] = Reader(Any)
"""Reads any item, valid or not, to find its name."""
