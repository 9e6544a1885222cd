"""Requests to another server's coordinator: the client side of `routes`.

Connections are pooled per server. Joins and syncs, which wait, have a separate pool, so heartbeats and commits never wait
behind them. Heartbeats that become due during a request with heartbeats go together in the next request.
This client only retries outdated requests. For other errors, callers look for the coordinator again (`streams/groups/shared.py`).

A join, a sync, a leave and a commit name the group's revision, so that the coordinator refuses a request that was given up here and
arrives late. If the coordinator refuses a request as outdated while its caller still waits, the request is sent again, with the
revision in the response. The first repeat is immediate: this server had not heard of the coordinator's term, or of a request through
another server. Later repeats pause first, because servers that concurrently send requests about one partition outdate each other's
requests.
"""

import asyncio
import json
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import aiohttp
from typing_extensions import override

from bearlake.errors import Corrupt
from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups import packing
from bearlake.serving.groups.packing import Document
from bearlake.serving.groups.routes import WAIT_S
from bearlake.serving.trust import PeerTrust
from bearlake.streams.groups.model import Group, Joined, JoinRequest, MemberRef, Synced
from bearlake.streams.groups.peers import Coordination
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.revisions import Outdated, later, member_subject
from bearlake.streams.groups.settings import GroupSettings
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import noticed

log = logging.getLogger(__name__)

_QUICK_COUNT = 16
"""Connections to one server for requests that do not wait."""
RESEND_COUNT_MAX = 16
"""Number of repeats with a newer revision, after which the coordinator counts as unavailable."""
RESEND_PAUSE_BOUND_FIRST_MS = 4
"""Bound (ms) of the pause before the second repeat; doubles with each further repeat. A pause is random, from 0 up to its bound."""
RESEND_PAUSE_BOUND_MAX_MS = 256
"""Largest bound (ms) of a pause."""
REVISION_COUNT_MAX = 65_536
"""Number of groups whose revision is remembered; for other groups, a request costs an extra round trip."""

_Group = tuple[str, str]
"""Server, group."""
_Line = tuple[str, str, str]
"""Server, group, and the subject of requests that are sent one after the other."""

T = TypeVar("T")


class GroupClient:
    """Connections to the admin APIs of other servers. Used from the event loop's thread only."""

    def __init__(
        self,
        settings: GroupSettings,
        token: AdminToken | None,
        randomness: random.Random | None = None,
        *,
        trust: PeerTrust | None = None,
    ) -> None:
        """`randomness` draws pauses; None: use a new source. `trust` verifies servers with TLS; None: by the machine's authorities."""
        self._trust = trust or PeerTrust()
        self._settings = settings
        self._token = token
        self._randomness = randomness or random.Random()  # noqa: S311 (jitter)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._beats: dict[str, list[tuple[MemberRef, asyncio.Future[Problem | None]]]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._revisions: OrderedDict[_Group, str] = OrderedDict()
        self._lines: WeakValueDictionary[_Line, asyncio.Lock] = WeakValueDictionary()

    async def close(self) -> None:
        """Close all connections; running requests fail as unavailable."""
        for sender in list(self._senders.values()):
            sender.cancel()
        await asyncio.gather(*self._senders.values(), return_exceptions=True)
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def ask(self, server: str, verb: str, document: Mapping[str, Any], *, waits: bool = False) -> Document:
        """Send one request; with `waits`, one that waits for other members, for as long as the coordinator says so.

        Raises `GroupRefusal`: the coordinator's, or COORDINATOR_UNAVAILABLE.
        """
        while (answer := await self._post(server, verb, document, waits=waits)) is None:
            pass
        return answer

    async def ask_in_line(self, server: str, verb: str, document: Mapping[str, Any], line: str) -> Document:
        """Send a request about a group that names its revision, after all others in the same `line`: concurrent requests about the same
        member or partition would outdate each other. Raises as `ask`."""
        async with self._lines.setdefault((server, document["group"], line), asyncio.Lock()):
            return await self.ask_revised(server, verb, document)

    async def ask_revised(
        self, server: str, verb: str, document: Mapping[str, Any], *, waits: bool = False
    ) -> Document:
        """Like `ask`, but the request names its group's revision."""
        group = server, document["group"]
        outdated_count = 0
        named = self._revisions.get(group, "")
        while True:
            try:
                answer = await self._post(server, verb, {**document, "revision": named}, waits=waits, group=group)
            except Outdated as outdated:
                named = outdated.revision
                self._remember(group, named)
                outdated_count += 1
                if outdated_count > RESEND_COUNT_MAX:
                    raise GroupRefusal(
                        Problem.COORDINATOR_UNAVAILABLE, "too many concurrent requests about the group"
                    ) from outdated
                if outdated_count > 1:
                    await self._pause(outdated_count)
                    named = self._revisions.get(group, named)
                continue
            if answer is not None:
                return answer
            outdated_count = 0  # accepted; coordinators before decision 92 outdate a request each time it has waited
            named = self._revisions.get(group, named)

    async def _pause(self, outdated_count: int) -> None:
        longest_ms = min(RESEND_PAUSE_BOUND_FIRST_MS * 2 ** (outdated_count - 2), RESEND_PAUSE_BOUND_MAX_MS)
        await asyncio.sleep(self._randomness.uniform(0, longest_ms) / 1000)

    def _remember(self, group: _Group, revision: str) -> None:
        self._revisions[group] = later(self._revisions.get(group, ""), revision)
        self._revisions.move_to_end(group)
        if len(self._revisions) > REVISION_COUNT_MAX:
            self._revisions.popitem(last=False)

    async def beat(self, server: str, member: MemberRef) -> None:
        """Send a heartbeat. Raises as `ask`."""
        future: asyncio.Future[Problem | None] = asyncio.get_running_loop().create_future()
        self._beats.setdefault(server, []).append((member, future))
        if server not in self._senders:
            self._senders[server] = asyncio.get_running_loop().create_task(self._send_beats(server))
            self._senders[server].add_done_callback(noticed(log, "send heartbeats"))
        problem = await future
        if problem is not None:
            raise GroupRefusal(problem)

    async def _send_beats(self, server: str) -> None:
        try:
            while waiting := self._beats.pop(server, None):
                problems: Sequence[Problem | None] = [Problem.COORDINATOR_UNAVAILABLE] * len(waiting)
                try:
                    answer = await self.ask(
                        server, "heartbeat", {"beats": [packing.pack_beat(member) for member, _ in waiting]}
                    )
                    problems = _read(packing.unpack_problems, answer)
                    if len(problems) != len(waiting):
                        raise GroupRefusal(
                            Problem.COORDINATOR_UNAVAILABLE, f"{len(problems)} answers to {len(waiting)} heartbeats"
                        )
                except GroupRefusal as refusal:
                    problems = [refusal.problem] * len(waiting)
                finally:
                    for (_, future), problem in zip(waiting, problems, strict=True):
                        if not future.done():
                            future.set_result(problem)
        finally:
            del self._senders[server]
            for _, future in self._beats.pop(server, ()):  # after a bug: these came meanwhile, and no sender is left
                if not future.done():
                    future.set_result(Problem.COORDINATOR_UNAVAILABLE)

    async def _post(
        self, server: str, verb: str, document: Mapping[str, Any], *, waits: bool, group: _Group | None = None
    ) -> Document | None:
        """Return the response, or None if the request must be repeated. Raises `GroupRefusal`, and `Outdated` for a `group`."""
        outcome = "failed"
        try:
            status, content = await self._send(f"{server}/v1/groups/{verb}", json.dumps(document).encode(), waits)
            if status not in (200, 202, 409, 412):
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, f"{server} answered {verb} with status {status}")
            answer: Document = json.loads(content)
            if status == 409:
                outcome = "refused"
                raise packing.unpack_refusal(answer)
            if status == 412:
                outcome = "outdated"
                raise Outdated(answer["revision"])
            if group is not None and "revision" in answer:
                self._remember(group, answer["revision"])
            if status == 202:
                outcome = "waiting"
                return None
            outcome = "answered"
            return answer
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, f"{server} does not answer: {error!r}") from error
        finally:
            metrics.GROUP_PEER_REQUESTS.labels(verb, outcome).inc()

    async def send(self, url: str, body: bytes, *, waits: bool) -> tuple[int, bytes]:
        """Send any request to a server's admin API; returns status and content. Raises aiohttp's errors, `TimeoutError`, `OSError`."""
        return await self._send(url, body, waits)

    async def _send(self, url: str, body: bytes, waits: bool) -> tuple[int, bytes]:
        """Return status and content of the response. If a server does not know the newest token yet, try the previous token."""
        found = 401, b""
        for token in [None] if self._token is None else self._token.accepted():
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            async with self._session(waits).post(
                url,
                data=body,
                headers=headers,
                allow_redirects=False,  # to another server, perhaps without TLS
                ssl=self._trust.context(),
                server_hostname=self._trust.server_name,
            ) as response:
                found = response.status, await response.read()
            if found[0] != 401:
                break
        return found

    def _session(self, waits: bool) -> aiohttp.ClientSession:
        session = self._sessions.get(waits)
        if session is None:
            answer_s = self._settings.peer_answer_ms / 1000
            # Requests that wait anyway have no limit on the wait for a connection: each returns its connection after `WAIT_S`.
            limits = (
                aiohttp.ClientTimeout(sock_connect=answer_s, sock_read=answer_s + WAIT_S, total=None)
                if waits
                else aiohttp.ClientTimeout(total=answer_s)
            )
            count = self._settings.peer_waits_max if waits else _QUICK_COUNT
            session = self._sessions[waits] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=count), timeout=limits
            )
        return session


class RemoteCoordinator(Coordination):
    """A `streams.groups.peers.Coordination` in another server; `server` is the URL of its admin API."""

    def __init__(self, client: GroupClient, server: str) -> None:
        self._client = client
        self._server = server

    @override
    async def join(self, name: str, request: JoinRequest) -> Joined:
        document = {"group": name, "request": packing.pack_request(request)}
        is_known = request.member_id != "" or request.instance_id is not None  # otherwise the member only gets an id
        ask = self._client.ask_revised if is_known else self._client.ask
        return _read(packing.unpack_joined, await ask(self._server, "join", document, waits=True))

    @override
    async def sync(
        self,
        member: MemberRef,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Synced:
        document = {
            **packing.pack_member(member),
            "protocol": protocol,
            "assignments": {member: packing.text(value) for member, value in assignments.items()},
        }
        return _read(packing.unpack_synced, await self._client.ask_revised(self._server, "sync", document, waits=True))

    @override
    async def heartbeat(self, member: MemberRef) -> None:
        await self._client.beat(self._server, member)

    @override
    async def leave(self, member: MemberRef) -> str:
        line = member_subject(member)
        answer = await self._client.ask_in_line(self._server, "leave", packing.pack_member(member), line)
        return str(answer["member_id"])

    @override
    async def commit(
        self,
        member: MemberRef,
        offsets: Mapping[PartitionKey, CommittedOffset],
    ) -> None:
        document = {**packing.pack_member(member), "offsets": packing.pack_offsets(offsets)}
        line = member_subject(member)
        if member.is_anonymous:  # clients that manage their own assignment commit different partitions concurrently
            line = f"partition {min(offsets, default=0)}"
        await self._client.ask_in_line(self._server, "commit", document, line)

    @override
    async def delete(self, name: str) -> None:
        await self._client.ask(self._server, "delete", {"group": name})

    @override
    async def describe(self, name: str) -> Group:
        answer = await self._client.ask(self._server, "describe", {"group": name})
        return _read(lambda document: packing.unpack_group(name, document), answer)


def _read(unpack: Callable[[Document], T], answer: Document) -> T:
    try:
        return unpack(answer)
    except (KeyError, TypeError, ValueError, Corrupt) as error:
        raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, f"malformed answer of a coordinator: {error!r}") from error
