"""Writes of groups that this server gave up while their outcome was unknown (I12).

An abandoned write may still take effect until the next write begins. Its outcome is final when the store answers an empty write with the
group's lease. After a failed write, the server tries to reach a final outcome before it answers the error. Until the outcome is
final, the server does not return the group's offsets and lets no member join.
"""

import asyncio
import logging
from contextlib import suppress

from bearlake.errors import BearlakeError, Fenced, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.model import Lease
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.telemetry.containment import fault, noticed

log = logging.getLogger(__name__)

FINISH_MS = 1_000
"""Longest time (ms) that the answer to a failed write waits until the write's outcome is final."""


class _Write:
    """A write with an unknown outcome; compared by identity."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease


async def _ended(task: "asyncio.Task[None]") -> None:
    """Wait for a task that others wait for, too. Raises what it raised, and `Unavailable` if `close` has ended it."""
    await asyncio.wait([task])
    if task.cancelled():
        raise Unavailable("this server closes its groups")
    task.result()


class AbandonedWrites:
    """The newest abandoned write of each group, while its outcome is unknown. Use it from the event loop's thread only."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._writes: dict[str, _Write] = {}
        self._finishing: dict[str, asyncio.Task[None]] = {}

    def add(self, name: str, lease: Lease) -> None:
        """A write of the group with this lease was given up."""
        self._writes[name] = _Write(lease)

    def remove(self, name: str, lease: Lease | None = None) -> None:
        """No write of the group (None: with any lease) can still take effect; no-op without an abandoned write."""
        write = self._writes.get(name)
        if write is not None and lease in (None, write.lease):
            del self._writes[name]

    async def finish(self, name: str) -> None:
        """Return when no abandoned write of the group can still take effect. Raises `GroupRefusal`."""
        if name not in self._writes:
            return
        try:
            async with asyncio.timeout(FINISH_MS / 1000):
                while name in self._writes:
                    await _ended(self._finishing.get(name) or self._begin_to_finish(name))
        except (BearlakeError, TimeoutError) as error:
            raise GroupRefusal(
                Problem.COORDINATOR_UNAVAILABLE, f"outcome of an earlier write unknown: {error!r}"
            ) from error

    async def try_to_finish(self, name: str) -> None:
        """Like `finish`, but logs a failure."""
        try:
            await self.finish(name)
        except GroupRefusal as refusal:
            log.info("the outcome of a failed write is still unknown", extra={"group": name, "why": str(refusal)})

    async def try_to_finish_all(self) -> None:
        """Try once for each group."""
        for name in list(self._writes):
            try:
                await self.try_to_finish(name)
            except Exception as error:  # noqa: BLE001 - boundary: one group
                fault(log, "finish an abandoned write", error)

    async def close(self) -> None:
        """Stop all tasks."""
        tasks = list(self._finishing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin_to_finish(self, name: str) -> "asyncio.Task[None]":
        task = self._finishing[name] = asyncio.get_running_loop().create_task(self._write_nothing(name))
        task.add_done_callback(noticed(log, "finish an abandoned write"))
        return task

    async def _write_nothing(self, name: str) -> None:
        try:
            write = self._writes.get(name)
            if write is None:  # removed since this task was created
                return
            with suppress(Fenced):  # the lease is lost, so the store refuses the abandoned write as well
                await self._metadata.groups.commit_offsets(name, {}, write.lease)
            if self._writes.get(name) is write:
                del self._writes[name]
        finally:
            # Not in a callback: before it runs, `finish` would await the ended task in an endless loop that lets nothing else run.
            del self._finishing[name]
