"""The way to another server's coordinator: the client's half of `routes`.

Connections are pooled per server; joins and syncs, which wait, have a pool of their own, so that heartbeats and commits never wait
behind them. Heartbeats that are due while one request with heartbeats is under way go together in the next one.
Nothing is retried here: who asks looks for the coordinator again (`streams/groups/shared.py`).

A join, a leave and a commit name the member's revision, so that the coordinator refuses one that was given up here and arrives late. What
it refuses while its caller still waits is sent again, with the revision that the coordinator told.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import aiohttp

from bearlake.errors import Corrupt
from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups import packing
from bearlake.serving.groups.packing import Document
from bearlake.serving.groups.routes import WAIT_S
from bearlake.streams.groups.coordinator import member_key
from bearlake.streams.groups.model import Group, Joined, JoinRequest, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.revisions import Outdated
from bearlake.streams.groups.settings import GroupSettings
from bearlake.telemetry import metrics

_QUICK_COUNT = 16
"""Connections to one server for what does not wait."""
RESEND_COUNT_MAX = 16
"""Times that a request is sent again with a newer revision before the coordinator counts as unavailable."""
REVISION_COUNT_MAX = 65_536
"""Revisions that are remembered; one that is not costs a round trip."""

_Member = tuple[str, str, str]
"""Server, group, key of the member."""

Beat = tuple[str, str, str | None, int]
"""Group, member id, instance id, generation."""

T = TypeVar("T")


class GroupClient:
    """Connections to the admin APIs of other servers. Used from the event loop's thread only."""

    def __init__(self, settings: GroupSettings, token: AdminToken | None) -> None:
        self._settings = settings
        self._token = token
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._beats: dict[str, list[tuple[Beat, asyncio.Future[Problem | None]]]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._revisions: OrderedDict[_Member, str] = OrderedDict()
        self._lines: WeakValueDictionary[_Member, asyncio.Lock] = WeakValueDictionary()

    async def close(self) -> None:
        """Close all connections; what is under way fails as unavailable."""
        for sender in list(self._senders.values()):
            sender.cancel()
        await asyncio.gather(*self._senders.values(), return_exceptions=True)
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def ask(
        self, server: str, verb: str, document: Mapping[str, Any], member: str | None = None, *, waits: bool = False
    ) -> Document:
        """One request; with `waits` one that waits for other members, for as long as the coordinator says so.

        With the key of a `member`, the request names the member's revision. Raises `GroupRefusal`: the coordinator's, or
        COORDINATOR_UNAVAILABLE.
        """
        if member is None:
            while (answer := await self._post(server, verb, document, waits=waits)) is None:
                pass
            return answer
        known = server, document["group"], member
        if waits:
            return await self._ask_revised(known, verb, document, waits=True)
        async with self._lines.setdefault(
            known, asyncio.Lock()
        ):  # requests side by side would make each other outdated
            return await self._ask_revised(known, verb, document, waits=False)

    async def _ask_revised(self, member: _Member, verb: str, document: Mapping[str, Any], *, waits: bool) -> Document:
        outdated_count = 0
        while True:
            revised = {**document, "revision": self._revisions.get(member, "")}
            try:
                answer = await self._post(member[0], verb, revised, waits=waits, member=member)
            except Outdated as outdated:
                self._remember(member, outdated.revision)
                outdated_count += 1
                if outdated_count > RESEND_COUNT_MAX:
                    raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, "other requests came first") from outdated
                continue
            if answer is not None:
                return answer

    def _remember(self, member: _Member, revision: str) -> None:
        self._revisions[member] = revision
        self._revisions.move_to_end(member)
        if len(self._revisions) > REVISION_COUNT_MAX:
            self._revisions.popitem(last=False)

    async def beat(self, server: str, beat: Beat) -> None:
        """A heartbeat. Raises as `ask`."""
        future: asyncio.Future[Problem | None] = asyncio.get_running_loop().create_future()
        self._beats.setdefault(server, []).append((beat, future))
        if server not in self._senders:
            self._senders[server] = asyncio.get_running_loop().create_task(self._send_beats(server))
        problem = await future
        if problem is not None:
            raise GroupRefusal(problem)

    async def _send_beats(self, server: str) -> None:
        try:
            while waiting := self._beats.pop(server, None):
                problems: Sequence[Problem | None] = [Problem.COORDINATOR_UNAVAILABLE] * len(waiting)
                try:
                    answer = await self.ask(server, "heartbeat", {"beats": [beat for beat, _ in waiting]})
                    problems = _read(packing.unpack_problems, answer)
                except GroupRefusal as refusal:
                    problems = [refusal.problem] * len(waiting)
                finally:
                    for (_, future), problem in zip(waiting, problems, strict=True):
                        if not future.done():
                            future.set_result(problem)
        finally:
            del self._senders[server]

    async def _post(
        self, server: str, verb: str, document: Mapping[str, Any], *, waits: bool, member: _Member | None = None
    ) -> Document | None:
        """The answer, or None when it has to be asked for again. Raises `GroupRefusal`, and `Outdated` for a `member`."""
        outcome = "failed"
        try:
            status, content = await self._send(f"{server}/v1/groups/{verb}", json.dumps(document).encode(), waits)
            if status not in (200, 202, 409, 412):
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, f"{server} answers {status} to {verb}")
            answer: Document = json.loads(content)
            if status == 409:
                outcome = "refused"
                raise packing.unpack_refusal(answer)
            if status == 412:
                outcome = "outdated"
                raise Outdated(answer["revision"])
            if member is not None and "revision" in answer:
                self._remember(member, answer["revision"])
            if status == 202:
                outcome = "waiting"
                return None
            outcome = "answered"
            return answer
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, f"{server} does not answer: {error!r}") from error
        finally:
            metrics.GROUP_PEER_REQUESTS.labels(verb, outcome).inc()

    async def _send(self, url: str, body: bytes, waits: bool) -> tuple[int, bytes]:
        """Status and content of the answer. A server that does not know the newest token yet is asked with the one before."""
        found = 401, b""
        for token in [None] if self._token is None else self._token.accepted():
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            async with self._session(waits).post(url, data=body, headers=headers) as response:
                found = response.status, await response.read()
            if found[0] != 401:
                break
        return found

    def _session(self, waits: bool) -> aiohttp.ClientSession:
        session = self._sessions.get(waits)
        if session is None:
            answer_s = self._settings.peer_answer_ms / 1000
            # Waiting for a connection is not limited for those that wait anyway: each of them gives its own back after `WAIT_S`.
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


class RemoteCoordinator:
    """`streams.groups.peers.Coordination` in another server; `server` is the URL of its admin API."""

    def __init__(self, client: GroupClient, server: str) -> None:
        self._client = client
        self._server = server

    async def join(self, name: str, request: JoinRequest) -> Joined:
        """See `Coordination.join`."""
        document = {"group": name, "request": packing.pack_request(request)}
        key = member_key(request.member_id, request.instance_id) or None
        return _read(packing.unpack_joined, await self._client.ask(self._server, "join", document, key, waits=True))

    async def sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Synced:
        """See `Coordination.sync`."""
        document = {
            **_who(name, member_id, instance_id, generation),
            "protocol": protocol,
            "assignments": {member: packing.text(value) for member, value in assignments.items()},
        }
        return _read(packing.unpack_synced, await self._client.ask(self._server, "sync", document, waits=True))

    async def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """See `Coordination.heartbeat`."""
        await self._client.beat(self._server, (name, member_id, instance_id, generation))

    async def leave(self, name: str, member_id: str, instance_id: str | None) -> str:
        """See `Coordination.leave`."""
        document = _who(name, member_id, instance_id, -1)
        answer = await self._client.ask(self._server, "leave", document, member_key(member_id, instance_id))
        return str(answer["member_id"])

    async def commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[PartitionKey, CommittedOffset],
    ) -> None:
        """See `Coordination.commit`."""
        document = {**_who(name, member_id, instance_id, generation), "offsets": packing.pack_offsets(offsets)}
        await self._client.ask(self._server, "commit", document, member_key(member_id, instance_id))

    async def describe(self, name: str) -> Group:
        """See `Coordination.describe`."""
        answer = await self._client.ask(self._server, "describe", {"group": name})
        return _read(lambda document: packing.unpack_group(name, document), answer)


def _who(name: str, member_id: str, instance_id: str | None, generation: int) -> Document:
    return {"group": name, "member_id": member_id, "instance_id": instance_id, "generation": generation}


def _read(unpack: Callable[[Document], T], answer: Document) -> T:
    try:
        return unpack(answer)
    except (KeyError, TypeError, ValueError, Corrupt) as error:
        raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, f"answer of a coordinator: {error!r}") from error
