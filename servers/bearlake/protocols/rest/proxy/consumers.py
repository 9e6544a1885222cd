"""The consumer instances of this server: creation, lookup, heartbeats, and expiry of idle instances.

An instance belongs to the principal that created it. For every other principal it does not exist, and its name is free.

One background task sends heartbeats for all instances, and owns the tasks in which they join their groups.
"""

import asyncio
import logging
from collections.abc import Coroutine

from bearlake.errors import BearlakeError
from bearlake.protocols.rest import problems
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy.consumer import Consumer, ConsumerConfig
from bearlake.protocols.rest.proxy.membership import GroupMember
from bearlake.protocols.rest.settings import RestSettings
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.principal import Principal
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import fault, noticed

log = logging.getLogger(__name__)

_CLOSE_S = 5.0
_POLL_S = 0.02

_Owned = tuple[str, str, str]
"""Owner (`kind:name`, because groups may change while a user is logged in), group and name of an instance."""


class Consumers:
    """All consumer instances of one server. Use from the event loop's thread only."""

    def __init__(self, streams: Streams, settings: RestSettings) -> None:
        self._streams = streams
        self._settings = settings
        self._instances: dict[_Owned, Consumer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._committed_at = 0.0
        self.is_draining = False
        """Whether the server drains and creates no new instances."""
        metrics.REST_CONSUMERS.set_function(lambda: len(self._instances))
        metrics.REST_CONSUMERS_MAX.set(settings.consumer_count_max)

    @property
    def count(self) -> int:
        """Number of open instances."""
        return sum(not consumer.is_closed for consumer in self._instances.values())

    def create(self, who: Principal, config: ConsumerConfig, client_host: str) -> Consumer:
        """Create an instance. Raises `Problem` (40902: the name is taken; 429: too many instances; 50003: this server drains)."""
        key = (str(who), config.group, config.name)
        if self.has(who, config.group, config.name):
            raise name_taken(config.name)
        if self.is_draining:
            raise Problem(503, 50003, "this server is stopping, and no other server is available")
        if len(self._instances) >= self._settings.consumer_count_max:
            raise Problem(429, 429, f"this server has reached its limit of {len(self._instances)} consumer instances")
        client = (f"rest-{config.name}", client_host)
        member = GroupMember(self._streams, config.group, client, self._settings)
        consumer = self._instances[key] = Consumer(self._streams, config, member, self._settings, self._spawn)
        return consumer

    def has(self, who: Principal, group: str, name: str) -> bool:
        """Return whether this server has the instance; does not count as use."""
        consumer = self._instances.get((str(who), group, name))
        return consumer is not None and not consumer.is_closed

    def find(self, who: Principal, group: str, name: str) -> Consumer:
        """Return an instance and mark it as used. Raises `Problem` (40403)."""
        consumer = self._instances.get((str(who), group, name))
        if consumer is None:
            raise problems.consumer_not_found()
        consumer.last_used = asyncio.get_running_loop().time()
        return consumer

    async def delete(self, who: Principal, group: str, name: str) -> None:
        """Delete an instance: it commits if automatic commits are on, and leaves its group. Raises `Problem`, `GroupRefusal`."""
        consumer = self.find(who, group, name)
        async with consumer.lock:
            if self._instances.pop((str(who), group, name), None) is not None:
                await consumer.close()

    async def run(self) -> None:
        """Send heartbeats, commit and expire instances. Ends only by cancellation."""
        while True:
            await asyncio.sleep(self._settings.consumer_beat_ms / 1000)
            await self.beat()

    async def beat(self) -> None:
        """Run one round of `run`. Each instance has its own task, so that an unreachable coordinator delays only its own members."""
        now = asyncio.get_running_loop().time()
        is_commit_due = (now - self._committed_at) * 1000 >= self._settings.consumer_commit_ms
        if is_commit_due:
            self._committed_at = now
        for key, consumer in list(self._instances.items()):
            if consumer.lock.locked():
                consumer.last_used = now
            elif (now - consumer.last_used) * 1000 > self._settings.consumer_idle_ms:
                del self._instances[key]
                metrics.REST_CONSUMERS_EXPIRED.inc()
                self._spawn(self._close(consumer))
                continue
            if consumer.beating is None or consumer.beating.done():
                consumer.beating = self._spawn(self._beat(consumer, is_commit_due))

    async def _beat(self, consumer: Consumer, is_commit_due: bool) -> None:
        try:
            await consumer.beat()
            if is_commit_due and consumer.config.is_auto_commit:
                await consumer.commit_acknowledged()
        except (BearlakeError, GroupRefusal) as error:
            if not consumer.is_away:
                group = consumer.config.group
                log.warning("a consumer instance cannot reach its group", extra={"group": group, "error": repr(error)})
            consumer.is_away = True
        else:
            consumer.is_away = False

    def begin_drain(self) -> None:
        """Create no more instances. Existing instances end at their next request for records, so that clients can commit first."""
        self.is_draining = True
        for consumer in self._instances.values():
            consumer.is_ending = True

    async def drain(self) -> None:
        """End all instances, after their open requests and, for an instance that just returned records, after its commit."""
        await asyncio.gather(*(self._end(key, consumer) for key, consumer in list(self._instances.items())))

    async def _end(self, key: _Owned, consumer: Consumer) -> None:
        while True:
            async with consumer.lock:
                # Check only now: the request that held the lock may have returned records.
                if not consumer.is_held:
                    if self._instances.pop(key, None) is not None:
                        await self._close(consumer)
                    return
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """End all instances within a time limit."""
        instances = list(self._instances.values())
        self._instances.clear()
        await asyncio.gather(*(self._close(consumer) for consumer in instances))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _close(self, consumer: Consumer) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await consumer.close()
        except (BearlakeError, GroupRefusal, TimeoutError) as error:
            log.warning(
                "cannot close a consumer instance", extra={"group": consumer.config.group, "error": repr(error)}
            )
        except Exception as error:  # noqa: BLE001 - boundary: one instance
            fault(log, "close a consumer instance", error)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(noticed(log, "keep a consumer instance"))
        return task


def name_taken(name: str) -> Problem:
    """Error 40902."""
    return Problem(409, 40902, f"Consumer instance {name!r} with the specified consumer ID already exists")
