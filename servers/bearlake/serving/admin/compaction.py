"""Compaction over HTTP: what waits, which tasks are under way or set aside, and a way to try them again.

Every kind of server answers, from the metadata store, whether or not a worker lives: an autoscaler that starts workers from zero
asks here. The backlog is read at most once per `BACKLOG_AGE_MAX_S`, however many ask.
"""

import time
from collections.abc import Mapping, Sequence

from aiohttp import web

from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import StreamBacklog, Task, TaskKind, TaskState

BACKLOG_AGE_MAX_S = 1.0
PAGE_COUNT_MAX = 1000


class CompactionRoutes:
    """The handlers under `/v1/compaction`."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._backlog: Sequence[StreamBacklog] = ()
        self._aside_count = 0
        self._read_at: float | None = None

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get("/v1/compaction/backlog", self.backlog)
        router.add_get("/v1/compaction/tasks", self.tasks)
        router.add_post("/v1/compaction/tasks/{id}/retry", self.retry)

    async def backlog(self, request: web.Request) -> web.Response:
        """Bytes, records and seconds that wait for compaction, in all and per stream (largest first)."""
        limit = _number(request, "limit", 100, 1, PAGE_COUNT_MAX)
        now = time.monotonic()
        if self._read_at is None or now - self._read_at > BACKLOG_AGE_MAX_S:
            self._backlog, self._aside_count = await self._metadata.tasks.backlog(), await self._count_aside()
            self._read_at = now
        waiting = sorted(self._backlog, key=lambda one: (-one.size_bytes, one.stream_number))
        names = await self._names([one.stream_number for one in waiting[:limit]])
        return web.json_response(
            {
                "size_bytes": sum(one.size_bytes for one in waiting),
                "record_count": sum(one.record_count for one in waiting),
                "age_ms": max((one.age_ms for one in waiting), default=0),
                "stream_count": len(waiting),
                "aside_count": self._aside_count,
                "streams": [
                    {
                        "stream": names.get(one.stream_number),
                        "size_bytes": one.size_bytes,
                        "record_count": one.record_count,
                        "partition_count": one.partition_count,
                        "age_ms": one.age_ms,
                    }
                    for one in waiting[:limit]
                ],
            }
        )

    async def _count_aside(self) -> int:
        """Tasks that were set aside after failing again and again."""
        count, after = 0, 0
        while page := await self._metadata.tasks.list(after=after, limit=PAGE_COUNT_MAX):
            count += sum(task.state is TaskState.ASIDE for task in page)
            after = page[-1].id
        return count

    async def tasks(self, request: web.Request) -> web.Response:
        """One page of tasks by id; `next` is the `after` of the next page, null behind the last one."""
        limit = _number(request, "limit", 100, 1, PAGE_COUNT_MAX)
        after = _number(request, "after", 0, 0, 2**62)
        name = request.query.get("stream")
        number = (await self._metadata.streams.get(name)).number if name else None
        found = await self._metadata.tasks.list(stream_number=number, after=after, limit=limit)
        names = await self._names([task.stream_number for task in found])
        return web.json_response(
            {
                "tasks": [_shown(task, names.get(task.stream_number)) for task in found],
                "next": found[-1].id if len(found) == limit else None,
            }
        )

    async def retry(self, request: web.Request) -> web.Response:
        """Let a task that was set aside be claimed again."""
        text = request.match_info["id"]
        if not text.isdecimal():
            raise Invalid(f"task {text}: expected a number")
        task = await self._metadata.tasks.retry(int(text))
        names = await self._names([task.stream_number])
        return web.json_response(_shown(task, names.get(task.stream_number)))

    async def _names(self, numbers: Sequence[int]) -> Mapping[int, str]:
        return {stream.number: stream.name for stream in await self._metadata.streams.by_numbers(set(numbers))}


def _shown(task: Task, stream: str | None) -> dict[str, object]:
    state = "aside" if task.state is TaskState.ASIDE else "running" if task.holder else "waiting"
    return {
        "id": task.id,
        "kind": "compact" if task.kind is TaskKind.COMPACT else "merge",
        "stream": stream,
        "state": state,
        "partition_count": len(task.ranges),
        "input_count": len(task.inputs),
        "size_bytes": task.size_bytes,
        "record_count": task.record_count,
        "age_ms": task.age_ms,
        "epoch": task.epoch,
        "node_id": task.holder.node_id if task.holder else None,
        "attempt_count": task.attempt_count,
        "wait_ms": task.wait_ms,
        "error": task.error or None,
    }


def _number(request: web.Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query.get(name, str(default))
    if not text.lstrip("-").isdecimal() or not low <= int(text) <= high:
        raise Invalid(f"{name}={text}: expected a number from {low} to {high}")
    return int(text)
