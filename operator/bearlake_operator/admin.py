"""A data layer's admin API, as far as the operator needs it: streams in batches, and what waits for compaction.

Any server of the data layer answers. The token is read for every request, so that a new one is used as soon as the file has it; where
it is not accepted yet, the one before is: a rotated Secret reaches pods within a minute or two, each at its own time.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from bearlake_operator.errors import Invalid, Unavailable
from bearlake_operator.metrics import DATA_PLANE_REQUESTS

BATCH_COUNT = 200
PAGE_COUNT = 1000
PATTERN_COUNT = 28
"""In the line of one request, which servers take up to 8 KiB of."""
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 3.0
"""A server that does not take a connection for so long has gone with its node: the next one is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStream:
    """A stream as the data layer has it. `configs` are those that differ from the defaults."""

    name: str
    id: str
    partitions: int
    configs: Mapping[str, str]
    record_count: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What of a stream (or of all) waits for compaction; `age_ms` is that of the oldest record."""

    size_bytes: int = 0
    age_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlogs:
    """The backlog in all, of the streams that have one, and how many tasks were set aside after failing again and again."""

    whole: Backlog
    streams: Mapping[str, Backlog]
    aside_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCommits:
    """How often a stream was compacted or merged, and when last (Unix ms)."""

    stream: str
    count: int
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """Commits in all, and of the streams that have any, the newest first."""

    count: int
    streams: Sequence[StreamCommits]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChange:
    """What shall become of a stream. `is_new`: it is created with all of this; else only what is named is changed."""

    name: str
    is_new: bool
    partitions: int | None
    set_configs: Mapping[str, str]
    unset_configs: Collection[str] = ()


class AdminClient:
    """A client of one data layer. `close` comes last."""

    def __init__(self, urls: Callable[[], Sequence[str]], token: Callable[[], str]) -> None:
        """`urls` gives the addresses to try, in order; `token` the present token, and raises `OSError` when there is none."""
        self._urls = urls
        self._token = token
        self._accepted = ""
        """The token that was accepted last."""
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def streams(self) -> dict[str, ObservedStream]:
        """All streams by name, with what they hold. Raises `Unavailable`."""
        found: dict[str, ObservedStream] = {}
        after = ""
        while True:
            query = {"limit": str(PAGE_COUNT), "after": after, "usage": "true"}
            page = await self._ask("GET", "/v1/streams", query=query)
            for item in page["streams"]:
                found[item["name"]] = ObservedStream(
                    name=item["name"],
                    id=item["id"],
                    partitions=item["partition_count"],
                    configs=item["configs"],
                    record_count=item.get("record_count", 0),
                    size_bytes=item.get("size_bytes", 0),
                )
            if page["next"] is None:
                return found
            after = page["next"]

    async def backlogs(self, patterns: Sequence[str] = ()) -> Backlogs:
        """What waits for compaction, of streams that fit one of the patterns (none: of all). Raises `Unavailable`."""
        pages = await self._pages("/v1/compaction/backlog", patterns)
        return Backlogs(
            whole=Backlog(
                size_bytes=sum(page["size_bytes"] for page in pages), age_ms=max(page["age_ms"] for page in pages)
            ),
            streams={
                item["stream"]: Backlog(size_bytes=item["size_bytes"], age_ms=item["age_ms"])
                for page in pages
                for item in page["streams"]
                if item["stream"] is not None
            },
            aside_count=sum(page["aside_count"] for page in pages),
        )

    async def commits(self, patterns: Sequence[str] = ()) -> Commits:
        """What was compacted, of streams that fit one of the patterns (none: of all). Raises `Unavailable`."""
        pages = await self._pages("/v1/compaction/commits", patterns)
        found = [
            StreamCommits(stream=item["stream"], count=item["commit_count"], time_ms=item["last_commit_ms"])
            for page in pages
            for item in page["streams"]
        ]
        newest = sorted(found, key=lambda one: (-one.time_ms, one.stream))
        return Commits(count=sum(page["commit_count"] for page in pages), streams=newest)

    async def _pages(self, path: str, patterns: Sequence[str]) -> list[Any]:
        """The answers for as many patterns at once as a request's line holds; no stream may fit patterns of two requests."""
        pages = []
        for start in range(0, len(patterns) or 1, PATTERN_COUNT):
            part = [("streams", pattern) for pattern in patterns[start : start + PATTERN_COUNT]]
            pages.append(await self._ask("GET", path, query=[("limit", str(PAGE_COUNT)), *part]))
        return pages

    async def change(self, changes: Sequence[StreamChange]) -> dict[str, str]:
        """Make the changes; returns the problems by stream. Raises `Unavailable`: some may be done, all can be asked again."""
        created = [_creation(change) for change in changes if change.is_new]
        altered = [_alteration(change) for change in changes if not change.is_new]
        return await self._in_batches("POST", created) | await self._in_batches("PATCH", altered)

    async def delete(self, ids: Mapping[str, str]) -> dict[str, str]:
        """Delete the streams that have these names and ids; returns the problems by stream. Raises `Unavailable`.

        One that is gone is no problem, nor is another one that has its name by now and stays.
        """
        doomed = [{"name": name, "id": id_} for name, id_ in ids.items()]
        return await self._in_batches("DELETE", doomed, fine=(404,))

    async def _in_batches(
        self, verb: str, items: Sequence[Mapping[str, Any]], fine: Collection[int] = ()
    ) -> dict[str, str]:
        """The problems by stream, but for those whose status is `fine`. Raises `Unavailable`."""
        problems: dict[str, str] = {}
        for start in range(0, len(items), BATCH_COUNT):
            answer = await self._ask(verb, "/v1/streams", body={"streams": items[start : start + BATCH_COUNT]})
            problems |= _problems(answer, fine)
        return problems

    async def _ask(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """The answer of the first server that gives one. Raises `Unavailable`, `Invalid`."""
        problem = "it has no server yet"
        for url in self._urls():
            try:
                status, answer = await self._answer(verb, f"{url}{path}", query, body)
            except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, ValueError, OSError) as error:
                DATA_PLANE_REQUESTS.labels("failed").inc()
                problem = f"{url}: {str(error) or type(error).__name__}"
                continue
            if status < 300:
                return answer
            problem = f"{url}: {answer.get('title', '')}: {answer.get('detail', '')}"
            if status < 500 and status not in (401, 408, 429):
                raise Invalid(problem)
        raise Unavailable(f"the data layer does not answer: {problem}")

    async def _answer(
        self,
        verb: str,
        url: str,
        query: Mapping[str, str] | Sequence[tuple[str, str]],
        body: Mapping[str, Any] | None,
    ) -> tuple[int, Any]:
        """Status and answer of one server, with the present token or else the one before."""
        token = self._token()
        for one in dict.fromkeys((token, self._accepted or token)):
            headers = {"Authorization": f"Bearer {one}"}
            async with self._session.request(verb, url, params=query or None, json=body, headers=headers) as response:
                status, answer = response.status, json.loads(await response.read())
            DATA_PLANE_REQUESTS.labels(f"{status // 100}xx").inc()
            if status != 401:
                self._accepted = one
                break
        return status, answer


def _creation(change: StreamChange) -> Mapping[str, Any]:
    return {"name": change.name, "partition_count": change.partitions, "configs": dict(change.set_configs)}


def _alteration(change: StreamChange) -> Mapping[str, Any]:
    item: dict[str, Any] = {
        "name": change.name,
        "set": dict(change.set_configs),
        "unset": sorted(change.unset_configs),
    }
    if change.partitions is not None:
        item["partition_count"] = change.partitions
    return item


def _problems(answer: Mapping[str, Any], fine: Collection[int] = ()) -> dict[str, str]:
    return {
        result["name"]: result["problem"]["detail"]
        for result in answer["results"]
        if "problem" in result and result["status"] not in fine
    }
