"""Bodies and query parameters of the admin API, as models: they check requests, and describe them in the OpenAPI document.

A batch is checked item by item: an invalid item fails without an effect on the others.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from bearlake.metadata.access_rules import Operation, PatternKind, Permission, Resource
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


class AccessPage(OpenModel):
    """Parameters of a list of access rules; a parameter without a value selects every rule."""

    resource: Literal["", "Topic", "Group", "Cluster", "TransactionalId", "Subject", "Namespace"] = ""
    """The kind of resource."""
    name: str = ""
    """The name in the rule, not that of a resource that the rule covers."""
    principal: str = ""
    after: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    """The index of the last rule of the previous page; -1: start with the first rule. Indexes are valid for one revision."""
    limit: PageCount = PAGE_COUNT_MAX


class Decision(OpenModel):
    """Parameters of a question: what a principal may do to a resource."""

    principal: str
    """`User:name`."""
    resource: Literal["Topic", "Group", "Cluster", "TransactionalId", "Subject", "Namespace"]
    name: str
    host: str = ""
    """The client's IP address; empty: any. Then rules that deny a host apply, and rules that allow one do not."""
    group: list[str] = field(default_factory=list)
    """The groups of the principal's token."""


class UserPage(OpenModel):
    """Parameters of a list of users."""

    after: str = ""
    """The name of the last user of the previous page."""
    limit: PageCount = PAGE_COUNT_MAX


class GroupPage(OpenModel):
    """Parameters of a list of consumer groups."""

    after: str = ""
    """The name of the last group of the previous page."""
    limit: PageCount = 100


class TransactionPage(OpenModel):
    """Parameters of a list of transactions."""

    after: str = ""
    """The transactional id of the last one of the previous page."""
    limit: PageCount = PAGE_COUNT_MAX
    open: Literal["true", "false"] = "true"
    """`false` adds transactional ids without an open transaction."""
    age_min_ms: Annotated[int, Meta(ge=0, le=2**62)] = 0
    """The least age (ms) of an open transaction; 0: any."""


class TransactionName(OpenModel):
    """Parameters of a description of a transactional id."""

    id: str


class TransactionToAbort(Model):
    """A transaction, as its description shows it."""

    transactional_id: str
    producer_id: Annotated[int, Meta(ge=0, le=2**62)]
    epoch: Annotated[int, Meta(ge=0, le=32_767)]


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


class Rule(Model, kw_only=True):
    """An access rule."""

    resource: Resource
    name: str
    """The name of a resource, `*` for all of the kind, or a prefix."""
    pattern: PatternKind = PatternKind.LITERAL
    principal: str
    """`User:name`, `Group:name` or `User:*`."""
    host: str = "*"
    """`*`, or the client's IP address."""
    operation: Operation
    permission: Permission = Permission.ALLOW


RULE_COUNT_MAX = 1_000
"""Most access rules in a request."""


class RuleChange(Model):
    """Access rules to create or to delete, all or none.

    With `revision`, they are changed only if all access rules still have that revision, which then grows even if no rule changes: a
    request that names an older revision is refused with 409, however late it arrives.
    """

    rules: Annotated[list[Rule], Meta(min_length=1, max_length=RULE_COUNT_MAX, description="a list of 1 to 1000 rules")]
    revision: Annotated[int, Meta(ge=0, le=2**62)] | UnsetType = UNSET


class RulePage(Model):
    """Access rules in a fixed order, as of one revision. `next` is the `after` of the next page, null on the last page."""

    revision: int
    rules: list[Rule]
    next: int | None


class Decided(Model):
    """What a principal may do to a resource. `rules`: those that match the resource and the principal."""

    is_super_user: bool
    """Super users may do everything, whatever the rules say."""
    has_rules: bool
    """Whether a rule of any principal matches the resource; if none does, `access.allow_if_no_rule` decides."""
    operations: dict[str, bool]
    rules: list[Rule]


class RulesChanged(Model):
    """The revision of all access rules after a change."""

    revision: int


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
ACCESS_PAGE = Query(AccessPage)
GROUP_PAGE = Query(GroupPage)
DECISION = Query(Decision)
USER_PAGE = Query(UserPage)
TRANSACTION_PAGE = Query(TransactionPage)
TRANSACTION_NAME = Query(TransactionName)
STREAM_NAMES = Query(StreamNames)

NEW_STREAM = Reader[NewStream](NewStream)
STREAM_CHANGE = Reader[StreamChange](StreamChange)
STREAM_TO_DELETE = Reader[StreamToDelete](StreamToDelete)
RULE_CHANGE = Reader[RuleChange](RuleChange)
TRANSACTION_TO_ABORT = Reader[TransactionToAbort](TransactionToAbort)
ITEMS: Reader[Batch[Raw]] = Reader(Batch[Raw])
NAMED: Reader[Any] = Reader(Any)
"""Reads any item, valid or not, to find its name."""
