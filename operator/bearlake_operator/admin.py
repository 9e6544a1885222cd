"""Client of a data layer's admin API: streams in batches, access rules, and the compaction backlog.

Any server of the data layer can answer a request. The token file is read for every request, so a rotated token is used at once. If a
server rejects the new token, the previous one is tried: a rotated Secret reaches each pod at a different time, within a minute or two.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from bearlake_operator.api import AccessRule
from bearlake_operator.errors import Conflict, Invalid, Unavailable
from bearlake_operator.metrics import DATA_PLANE_REQUESTS
from bearlake_operator.trust import Trust

BATCH_COUNT = 200
BATCH_BYTES = 1_000_000
"""Size of the streams in a request. The servers accept 1 MiB."""
RULE_COUNT = 500
"""Access rules per request. The servers accept 1,000, and 1 MiB."""
PAGE_COUNT = 1000
PATTERN_COUNT = 28
"""Patterns per request: the servers limit a request line to 8 KiB."""
LIST_ATTEMPTS_MAX = 5
"""Attempts to list access rules while they change."""
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 3.0
"""A server that does not accept a connection in this time is gone with its node; the next server is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStream:
    """A stream as it exists in the data layer. `configs` are those that differ from the defaults."""

    name: str
    id: str
    partitions: int
    configs: Mapping[str, str]
    record_count: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRules:
    """The access rules on single streams as of one revision, by stream. Rules on prefixes and on all streams are left out."""

    revision: int
    streams: Mapping[str, Collection[AccessRule]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Records that are not compacted yet, of one or several streams; `age_ms` is the age of the oldest record."""

    size_bytes: int = 0
    age_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlogs:
    """The total backlog, the backlog of each stream that has one, and the number of tasks quarantined after repeated failures."""

    total: Backlog
    streams: Mapping[str, Backlog]
    quarantined_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCommits:
    """The number of compaction commits of a stream, and the time of the last one (Unix ms)."""

    stream: str
    count: int
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The total number of compaction commits, and those of each stream that has any, newest first."""

    count: int
    streams: Sequence[StreamCommits]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChange:
    """A change of one stream. `is_new`: create the stream with these values; else set and unset these values only."""

    name: str
    is_new: bool
    partitions: int | None
    set_configs: Mapping[str, str]
    unset_configs: Collection[str] = ()


class AdminClient:
    """A client of one data layer. Call `close` when done."""

    def __init__(self, urls: Callable[[], Sequence[str]], token: Callable[[], str], trust: Trust | None = None) -> None:
        """`urls` returns the URLs to try, in order. `token` returns the current token; it raises `OSError` if there is none.

        `trust` verifies servers with TLS; None: by the image's authorities.
        """
        self._trust = trust or Trust()
        self._urls = urls
        self._token = token
        self._accepted = ""
        """The last token that a server accepted."""
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def streams(self) -> dict[str, ObservedStream]:
        """All streams by name, with their record counts and sizes. Raises `Unavailable`, `Invalid`."""
        found: dict[str, ObservedStream] = {}
        after = ""
        while True:
            query = {"limit": str(PAGE_COUNT), "after": after, "usage": "true"}
            page = await self._request("GET", "/v1/streams", query=query)
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
        """The backlogs of streams that match one of the patterns (none: of all streams). Raises `Unavailable`, `Invalid`."""
        pages = await self._pages("/v1/compaction/backlog", patterns)
        return Backlogs(
            total=Backlog(
                size_bytes=sum(page["size_bytes"] for page in pages), age_ms=max(page["age_ms"] for page in pages)
            ),
            streams={
                item["stream"]: Backlog(size_bytes=item["size_bytes"], age_ms=item["age_ms"])
                for page in pages
                for item in page["streams"]
                if item["stream"] is not None
            },
            quarantined_count=sum(page["quarantined_count"] for page in pages),
        )

    async def commits(self, patterns: Sequence[str] = ()) -> Commits:
        """The commits of streams that match one of the patterns (none: of all streams). Raises `Unavailable`, `Invalid`."""
        pages = await self._pages("/v1/compaction/commits", patterns)
        found = [
            StreamCommits(stream=item["stream"], count=item["commit_count"], time_ms=item["last_commit_ms"])
            for page in pages
            for item in page["streams"]
        ]
        newest_first = sorted(found, key=lambda commits: (-commits.time_ms, commits.stream))
        return Commits(count=sum(page["commit_count"] for page in pages), streams=newest_first)

    async def _pages(self, path: str, patterns: Sequence[str]) -> list[Any]:
        """One response per `PATTERN_COUNT` patterns. No stream may match patterns of two requests, or it would be counted twice."""
        pages = []
        for start in range(0, len(patterns) or 1, PATTERN_COUNT):
            selected = [("streams", pattern) for pattern in patterns[start : start + PATTERN_COUNT]]
            pages.append(await self._request("GET", path, query=[("limit", str(PAGE_COUNT)), *selected]))
        return pages

    async def change(self, changes: Sequence[StreamChange]) -> dict[str, str]:
        """Make the changes; returns the problems by stream.

        Raises `Unavailable`, `Invalid`: some changes may be done; all of them can be repeated.
        """
        created = [_create_item(change) for change in changes if change.is_new]
        updated = [_update_item(change) for change in changes if not change.is_new]
        return await self._in_batches("POST", created) | await self._in_batches("PATCH", updated)

    async def delete(self, ids: Mapping[str, str]) -> dict[str, str]:
        """Delete the streams with these names and ids; returns the problems by stream. Raises `Unavailable`, `Invalid`.

        A missing stream is not a problem. A new stream of the same name has another id, and stays.
        """
        deleted = [{"name": name, "id": id_} for name, id_ in ids.items()]
        return await self._in_batches("DELETE", deleted, ignored=(404,))

    async def access_rules(self) -> ObservedRules:
        """The access rules on single streams. Raises `Unavailable`, `Invalid`."""
        for _ in range(LIST_ATTEMPTS_MAX):
            query = {"resource": "Topic", "limit": str(PAGE_COUNT)}
            first = page = await self._request("GET", "/v1/access", query=query)
            rows = [*page["rules"]]
            while page["next"] is not None and page["revision"] == first["revision"]:
                page = await self._request("GET", "/v1/access", query={**query, "after": str(page["next"])})
                rows += page["rules"]
            if page["revision"] == first["revision"]:
                return ObservedRules(revision=first["revision"], streams=_by_stream(rows))
        raise Unavailable("The access rules of the data layer change all the time")

    async def create_rules(self, stream_rules: Sequence[tuple[str, AccessRule]], revision: int) -> int:
        """Create access rules on streams, all or none, if the revision is the present one; returns the new revision.

        At most `RULE_COUNT`. The revision grows even if nothing changes. Then no request that names an older revision takes effect.

        Raises `Conflict` (the rules have another revision), `Unavailable` (the rules may or may not be created), `Invalid`.
        """
        return await self._change_rules("POST", stream_rules, revision)

    async def delete_rules(self, stream_rules: Sequence[tuple[str, AccessRule]], revision: int) -> int:
        """Delete exactly these access rules; missing rules are ignored. Otherwise as `create_rules`."""
        return await self._change_rules("DELETE", stream_rules, revision)

    async def _change_rules(self, verb: str, stream_rules: Sequence[tuple[str, AccessRule]], revision: int) -> int:
        rows = [
            {"resource": "Topic", "pattern": "Literal", "name": stream, **rule._asdict()}
            for stream, rule in stream_rules
        ]
        response = await self._request(verb, "/v1/access", body={"rules": rows, "revision": revision})
        changed: int = response["revision"]
        return changed

    async def _in_batches(
        self, verb: str, items: Sequence[Mapping[str, Any]], ignored: Collection[int] = ()
    ) -> dict[str, str]:
        """Send the items in several requests. Returns the problems by stream, without those of an `ignored` status."""
        problems: dict[str, str] = {}
        for batch in _batches(items):
            if _size(batch[0]) > BATCH_BYTES:  # it is alone
                text = f"the change of the stream has {_size(batch[0])} bytes; a request has at most {BATCH_BYTES}"
                problems[batch[0]["name"]] = text
                continue
            response = await self._request(verb, "/v1/streams", body={"streams": batch})
            problems |= _problems(response, ignored)
        return problems

    async def _request(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """The response of the first server that answers. Raises `Unavailable`, `Invalid`, `Conflict` (409)."""
        problem = "it has no ready server"
        for url in self._urls():
            try:
                status, response = await self._send(verb, f"{url}{path}", query, body)
            except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, ValueError, OSError) as error:
                DATA_PLANE_REQUESTS.labels("failed").inc()
                problem = f"{url}: {str(error) or type(error).__name__}"
                continue
            if status < 300:
                return response
            problem = f"{url}: {response.get('title', '')}: {response.get('detail', '')}"
            if status == 409:
                raise Conflict(problem)
            if status < 500 and status not in (401, 408, 429):
                raise Invalid(problem)
        raise Unavailable(f"The data layer is not reachable: {problem}")

    async def _send(
        self,
        verb: str,
        url: str,
        query: Mapping[str, str] | Sequence[tuple[str, str]],
        body: Mapping[str, Any] | None,
    ) -> tuple[int, Any]:
        """Send a request to one server with the current token, or if it is rejected with the previous one.

        Returns the status and the decoded body.
        """
        current, tls = self._token(), self._trust.context()
        for token in dict.fromkeys((current, self._accepted or current)):
            headers = {"Authorization": f"Bearer {token}"}
            async with self._session.request(
                verb,
                url,
                params=query or None,
                json=body,
                headers=headers,
                allow_redirects=False,  # to another server, perhaps without TLS
                ssl=tls,
                server_hostname=self._trust.server_name,
            ) as response:
                status, content = response.status, json.loads(await response.read())
            DATA_PLANE_REQUESTS.labels(f"{status // 100}xx").inc()
            if status != 401:
                self._accepted = token
                break
        return status, content


def _by_stream(rows: Sequence[Mapping[str, str]]) -> Mapping[str, Collection[AccessRule]]:
    found: dict[str, set[AccessRule]] = {}
    for row in rows:
        if row["pattern"] == "Literal":
            rule = AccessRule(row["principal"], row["host"], row["operation"], row["permission"])
            found.setdefault(row["name"], set()).add(rule)
    return found


def _batches(items: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The items, at most `BATCH_COUNT` and `BATCH_BYTES` in a batch; a larger item is alone in its batch."""
    batches: list[list[Mapping[str, Any]]] = []
    batch_bytes = 0
    for item in items:
        if not batches or len(batches[-1]) == BATCH_COUNT or batch_bytes + _size(item) > BATCH_BYTES:
            batches.append([])
            batch_bytes = 0
        batches[-1].append(item)
        batch_bytes += _size(item)
    return batches


def _size(item: Mapping[str, Any]) -> int:
    """The bytes of an item in a request, with the separator."""
    return len(json.dumps(item)) + len(", ")


def _create_item(change: StreamChange) -> Mapping[str, Any]:
    return {"name": change.name, "partition_count": change.partitions, "configs": dict(change.set_configs)}


def _update_item(change: StreamChange) -> Mapping[str, Any]:
    item: dict[str, Any] = {
        "name": change.name,
        "set": dict(change.set_configs),
        "unset": sorted(change.unset_configs),
    }
    if change.partitions is not None:
        item["partition_count"] = change.partitions
    return item


def _problems(response: Mapping[str, Any], ignored: Collection[int] = ()) -> dict[str, str]:
    return {
        result["name"]: result["problem"]["detail"]
        for result in response["results"]
        if "problem" in result and result["status"] not in ignored
    }
