"""Compaction over HTTP: the backlog, the last commits, running and quarantined tasks, and a way to retry these.

Every kind of server answers from the metadata store, even without a live worker, so that an autoscaler can start workers from zero.
Backlog and commits are read at most once per `BACKLOG_AGE_MAX_S`, regardless of the number of requests.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from aiohttp import web

from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import StreamBacklog, Task, TaskKind, TaskState
from bearlake.metadata.patterns import check_pattern, matches
from bearlake.serving.admin import models

_TASK_MAX = 2**63 - 1
BACKLOG_AGE_MAX_S = 1.0

T = TypeVar("T")


class CompactionRoutes:
    """The handlers under `/v1/compaction`."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._backlog = _Read(self._read_backlog)
        self._commits = _Read(metadata.tasks.commits)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get("/v1/compaction/backlog", self.backlog)
        router.add_get("/v1/compaction/commits", self.commits)
        router.add_get("/v1/compaction/tasks", self.tasks)
        router.add_post("/v1/compaction/tasks/{id}/retry", self.retry)

    async def backlog(self, request: web.Request) -> web.Response:
        """Show the bytes, records and seconds that wait for compaction, in total and per stream (largest first), of all or some streams."""
        page, patterns = _page(request)
        found, quarantined_counts = await self._backlog.now()
        names = await self._names([*(backlog.stream_number for backlog in found), *quarantined_counts])
        waiting = [backlog for backlog in found if matches(names.get(backlog.stream_number, ""), patterns)]
        waiting.sort(key=lambda backlog: (-backlog.size_bytes, backlog.stream_number))
        age_ms = max((backlog.age_ms for backlog in waiting), default=0)
        return web.json_response(
            {
                "size_bytes": sum(backlog.size_bytes for backlog in waiting),
                "record_count": sum(backlog.record_count for backlog in waiting),
                "age_ms": age_ms,
                "lag_seconds": age_ms / 1000,
                "stream_count": len(waiting),
                "quarantined_count": sum(
                    count for number, count in quarantined_counts.items() if matches(names.get(number, ""), patterns)
                ),
                "streams": [
                    {
                        "stream": names.get(backlog.stream_number),
                        "size_bytes": backlog.size_bytes,
                        "record_count": backlog.record_count,
                        "partition_count": backlog.partition_count,
                        "age_ms": backlog.age_ms,
                        "lag_seconds": backlog.age_ms / 1000,
                    }
                    for backlog in waiting[: page.limit]
                ],
            }
        )

    async def commits(self, request: web.Request) -> web.Response:
        """Show how often streams were compacted or merged and when last, in total and per stream (newest first), of all or some streams."""
        page, patterns = _page(request)
        found = await self._commits.now()
        names = await self._names([commits.stream_number for commits in found])
        shown = [
            commits
            for commits in found
            if commits.stream_number in names and matches(names[commits.stream_number], patterns)
        ]
        shown.sort(key=lambda commits: (-commits.committed_ms, commits.stream_number))
        return web.json_response(
            {
                "commit_count": sum(commits.commit_count for commits in shown),
                "last_commit_ms": shown[0].committed_ms if shown else None,
                "streams": [
                    {
                        "stream": names[commits.stream_number],
                        "commit_count": commits.commit_count,
                        "last_commit_ms": commits.committed_ms,
                    }
                    for commits in shown[: page.limit]
                ],
            }
        )

    async def _read_backlog(self) -> tuple[Sequence[StreamBacklog], Mapping[int, int]]:
        """Return the backlog, and the number of quarantined tasks by stream."""
        quarantined: Counter[int] = Counter()
        after = 0
        while page := await self._metadata.tasks.list(after=after, limit=models.PAGE_COUNT_MAX):
            quarantined.update(task.stream_number for task in page if task.state is TaskState.QUARANTINED)
            after = page[-1].id
        return await self._metadata.tasks.backlog(), quarantined

    async def tasks(self, request: web.Request) -> web.Response:
        """List tasks by id, one page; `next` is the `after` of the next page, null on the last page."""
        page = models.TASK_PAGE.read(request)
        number = (await self._metadata.streams.get(page.stream)).number if page.stream else None
        found = await self._metadata.tasks.list(stream_number=number, after=page.after, limit=page.limit)
        names = await self._names([task.stream_number for task in found])
        return web.json_response(
            {
                "tasks": [_shown(task, names.get(task.stream_number)) for task in found],
                "next": found[-1].id if len(found) == page.limit else None,
            }
        )

    async def retry(self, request: web.Request) -> web.Response:
        """Retry a quarantined task."""
        text = request.match_info["id"]
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _TASK_MAX):
            raise Invalid(f"task {text[:40]!r}: expected a number")
        task = await self._metadata.tasks.retry(int(text))
        names = await self._names([task.stream_number])
        return web.json_response(_shown(task, names.get(task.stream_number)))

    async def _names(self, numbers: Sequence[int]) -> Mapping[int, str]:
        """Return the names of the streams that are not deleted."""
        return {
            stream.number: stream.name
            for stream in await self._metadata.streams.by_numbers(set(numbers))
            if not stream.is_deleted
        }


class _Read(Generic[T]):
    """Caches the result of a store query for at most `BACKLOG_AGE_MAX_S`."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._found: tuple[float, T] | None = None

    async def now(self) -> T:
        """Return the result. Raises what the query raises."""
        now_s = time.monotonic()
        if self._found is None or now_s - self._found[0] > BACKLOG_AGE_MAX_S:
            self._found = now_s, await self._read()
        return self._found[1]


def _page(request: web.Request) -> tuple[models.CompactionPage, Sequence[str]]:
    """Parse `limit=10&streams=a*&streams=b`; returns the page and its patterns. Raises `Invalid`."""
    page = models.COMPACTION_PAGE.read(request)
    for pattern in page.streams:
        check_pattern("streams", pattern)
    return page, page.streams


def _shown(task: Task, stream: str | None) -> dict[str, object]:
    state = "quarantined" if task.state is TaskState.QUARANTINED else "running" if task.holder else "waiting"
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
