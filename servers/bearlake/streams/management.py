"""Creates, changes and deletes streams, for callers who have the right.

`streams.service.Streams` inherits from `Management`, and adds the records of streams: append, fetch, groups, subscriptions.
Creations and deletions that are not refused count against the caller's quota of mutations (KIP-599).
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext

from bearlake.errors import Denied, Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.model import PartitionBounds, Stream
from bearlake.metadata.quotas import QuotaKey
from bearlake.streams import configs as stream_configs
from bearlake.streams.admission import Importing
from bearlake.streams.audit import Audit
from bearlake.streams.catalog import Catalog, ConfigChanges, ConfigDecision, StreamView
from bearlake.streams.internal_topics import InternalTopic, is_reserved
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource, require
from bearlake.streams.quotas.control import QuotaControl


class Management:
    """The part of `Streams` that creates, changes and deletes streams."""

    def __init__(
        self, metadata: Metadata, catalog: Catalog, authorizer: Authorizer, quotas: QuotaControl, audit: Audit
    ) -> None:
        self.metadata = metadata
        self.catalog = catalog
        self.authorizer = authorizer
        self.quotas = quotas
        """How much clients may use."""
        self.audit = audit
        """Logs denials, and the changes of streams; the services of other resources log their own changes to it."""

    def may(self, who: Principal, operation: Operation, name: str) -> bool:
        """Whether `who` may do `operation` on the stream `name`; for requests that answer each stream separately."""
        return self.authorizer.allows(who, operation, Resource.STREAM, name)

    def sees(self, who: Principal, operation: Operation, name: str) -> bool:
        """As `may`, for what a list shows: the audit log notes no denial."""
        return self.authorizer.sees(who, operation, Resource.STREAM, name)

    def may_create(self, who: Principal, name: str) -> bool:
        """Whether `who` may create a stream of this name: by a right on the name, or by a rule for the cluster, as in Kafka."""
        return self.authorizer.administers(who, Operation.CREATE) or self.may(who, Operation.CREATE, name)

    def may_change(self, who: Principal, name: str) -> bool:
        """Whether `who` may change configs of the stream `name`. ALTER_CONFIGS is Kafka's right; outside Kafka's protocol, ALTER is the
        right for all changes."""
        return self.sees(who, Operation.ALTER_CONFIGS, name) or self.may(who, Operation.ALTER, name)

    async def create(self, who: Principal, name: str, partition_count: int, configs: Mapping[str, str]) -> StreamView:
        """Create a stream. Raises `Denied`, `Throttled`, `Invalid`, `InternalTopic`, `AlreadyExists`, `Unavailable`."""
        if not self.may_create(who, name):
            raise Denied(f"{who} may not Create Topic {name!r}")
        if is_reserved(self.catalog, name):
            raise InternalTopic(name)
        _require_no_mark({}, configs)
        details = f"partitions={partition_count} configs={','.join(configs)}"
        noted = self.audit.change(who, Operation.CREATE, Resource.STREAM.value, name, details)
        with self._admitted(who, partition_count), noted:
            return await self.catalog.create(name, partition_count, configs)

    async def resolve(self, who: Principal, operation: Operation, name: str) -> StreamView:
        """Read the stream with this name from the store, for a request that changes it. Raises `Denied`, `NotFound`, `Unavailable`."""
        self._require(who, operation, name)
        return await self.catalog.resolve(name)

    async def alter(
        self, who: Principal, stream: Stream, set_configs: Mapping[str, str], unset_configs: Collection[str]
    ) -> StreamView:
        """Set and unset configs, if `stream` is still the current version.

        Raises `Denied`, `Invalid`, `NotFound`, `Conflict`, `Unavailable`.
        """
        self._require_change(who, stream.name)
        self._require_end(who, stream.name, stream.configs, set_configs)
        _require_no_mark(stream.configs, set_configs)
        details = _configs(set_configs, unset_configs)
        with self.audit.change(who, Operation.ALTER_CONFIGS, Resource.STREAM.value, stream.name, details):
            return await self.catalog.alter(stream, set_configs, unset_configs)

    async def change(self, who: Principal, stream: Stream, decide: ConfigDecision) -> StreamView:
        """Set and unset the configs that `decide` returns; calls `decide` again after a concurrent change.

        Raises `Denied`, `Invalid`, `NotFound`, `Overloaded`, `Unavailable`, and what `decide` raises.
        """
        self._require_change(who, stream.name)

        def permitted(present: Mapping[str, str]) -> ConfigChanges:
            changed, unset = decide(present)
            details[:] = [_configs(changed, unset)]
            self._require_end(who, stream.name, present, changed)
            _require_no_mark(present, changed)
            return changed, unset

        with self.audit.change(who, Operation.ALTER_CONFIGS, Resource.STREAM.value, stream.name) as details:
            return await self.catalog.change(stream, permitted)

    async def add_partitions(self, who: Principal, stream: Stream, partition_count: int) -> StreamView:
        """Grow a stream to `partition_count` partitions.

        Raises `Denied`, `Importing`, `Throttled`, `Invalid`, `NotFound`, `Unavailable`.
        """
        self._require(who, Operation.ALTER, stream.name)
        _require_promoted(stream)
        noted = self.audit.change(
            who, Operation.ALTER, Resource.STREAM.value, stream.name, f"partitions={partition_count}"
        )
        with self._admitted(who, partition_count - stream.partition_count), noted:
            return await self.catalog.add_partitions(stream, partition_count)

    async def terminate(self, who: Principal, stream: Stream) -> StreamView:
        """Make every server refuse new batches of a stream; its end offsets are final when this returns. Idempotent.

        Raises `Denied`, `Importing`, `NotFound`, `Unavailable`.
        """
        self._require(who, Operation.ALTER, stream.name)
        _require_promoted(stream)
        with self.audit.change(who, Operation.ALTER, Resource.STREAM.value, stream.name, "terminate"):
            return await self.catalog.terminate(stream)

    async def delete(self, who: Principal, stream: Stream, *, is_unchanged: bool = False) -> Stream:
        """Soft-delete this incarnation of a stream, never another with the same name; see `Catalog.delete`.

        Raises `Denied`, `Throttled`, `NotFound`, `Conflict`, `Unavailable`.
        """
        self._require(who, Operation.DELETE, stream.name)
        view = self.catalog.peek_number(stream.number)
        noted = self.audit.change(who, Operation.DELETE, Resource.STREAM.value, stream.name, f"id={stream.id}")
        with self._admitted(who, stream.partition_count), noted:
            deleted = await self.catalog.delete(stream, is_unchanged=is_unchanged)
        if view is not None:
            self._deleted(view)
        return deleted

    async def trim(self, who: Principal, name: str, index: int, start: int) -> PartitionBounds:
        """Move the start offset of a partition forward. Raises `Denied`, `Importing`, `NotFound`, `OutOfRange`, `Unavailable`."""
        self._require(who, Operation.DELETE, name)
        view = await self.catalog.find(name)
        _require_promoted(view.stream)
        details = f"records of partition {index} before {start}"
        with self.audit.change(who, Operation.DELETE, Resource.STREAM.value, name, details):
            return await self.metadata.log.trim(view.partition(index), start)

    def _require_change(self, who: Principal, name: str) -> None:
        if not self.sees(who, Operation.ALTER_CONFIGS, name):
            self._require(who, Operation.ALTER, name)

    def _require_end(
        self, who: Principal, name: str, present: Mapping[str, str], set_configs: Mapping[str, str]
    ) -> None:
        """Servers delete streams by some of their configs: to change those is to delete."""
        if any(key in stream_configs.ENDING and present.get(key) != value for key, value in set_configs.items()):
            self._require(who, Operation.DELETE, name)

    def _admitted(self, who: Principal, partition_count: int) -> AbstractContextManager[None]:
        """Count partitions that a block creates or deletes against the caller's quota, unless it is refused. Raises `Throttled`."""
        usage = self.quotas.usage
        if usage is None:
            return nullcontext()
        return usage.admitted(who, QuotaKey.CONTROLLER_MUTATION_RATE, max(1, partition_count))

    def _deleted(self, view: StreamView) -> None:
        """Called after this server has deleted a stream; `Streams` drops its knowledge of the partitions."""

    def _require(self, who: Principal, operation: Operation, name: str) -> None:
        require(self.authorizer, who, operation, Resource.STREAM, name)


def _configs(set_configs: Mapping[str, str], unset_configs: Collection[str]) -> str:
    """Name the changed configs, without their values."""
    return f"set={','.join(set_configs)} unset={','.join(unset_configs)}"


def _require_promoted(stream: Stream) -> None:
    """Raise `Importing` if only an import may change the stream's records and partitions (decision 227)."""
    if stream_configs.value(stream.configs, stream_configs.IMPORT_SOURCE):
        raise Importing(stream.name)


def _require_no_mark(present: Mapping[str, str], set_configs: Mapping[str, str]) -> None:
    """Raise `Invalid` if the change marks a stream as imported. Callers may only remove the mark."""
    name = stream_configs.IMPORT_SOURCE
    if set_configs.get(name) and set_configs[name] != present.get(name):
        raise Invalid(f"Topic config {name} is set by imports only; it can be unset, which promotes the topic")
