"""Requests to the dispatchers of other servers: the client side of `routes`.

A request is sent once. If it gets no answer, records that were acquired by it are released when their locks expire.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import aiohttp
from typing_extensions import override

from bearlake.errors import Unavailable
from bearlake.metadata.model import PartitionKey, ServerRef
from bearlake.serving.addresses import url_of
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups.client import GroupClient
from bearlake.serving.live_servers import LiveServers
from bearlake.serving.shares import packing
from bearlake.serving.shares.packing import WAIT_MS_MAX, Document
from bearlake.serving.trust import PeerTrust
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.shares import ShareReach
from bearlake.streams.subscriptions.share.acknowledgements import ShareAck
from bearlake.streams.subscriptions.share.terms import ShareAnswer, ShareAsk
from bearlake.streams.subscriptions.share_dispatch import ShareDispatch

_ADMIN = "admin"


class SharePeers(ShareReach):
    """`ShareReach` by the endpoints of the live servers."""

    def __init__(
        self, servers: LiveServers, settings: GroupSettings, token: AdminToken | None, trust: PeerTrust | None = None
    ) -> None:
        """`token` and `trust`: as those of `GroupPeers`."""
        self._servers = servers
        self._client = GroupClient(settings, token, trust=trust)

    @override
    def reach_shares(self, server: ServerRef) -> ShareDispatch | None:
        for live in self._servers.live():
            if live.ref == server and _ADMIN in live.endpoints:
                return RemoteShares(self._client, url_of(live.endpoints[_ADMIN]))
        return None

    async def close(self) -> None:
        """Close connections; running requests end as unavailable."""
        await self._client.close()


class RemoteShares(ShareDispatch):
    """A `ShareDispatch` in another server; `server` is the URL of its admin API."""

    def __init__(self, client: GroupClient, server: str) -> None:
        self._client = client
        self._server = server

    @override
    async def acquire(self, ask: ShareAsk) -> list[ShareAnswer]:
        ask = replace(ask, wait_ms=min(ask.wait_ms, WAIT_MS_MAX))
        try:
            answer = await self._ask("acquire", packing.pack_ask(ask), waits=True)
            answers = {item.partition: item for item in packing.unpack_answers(answer)}
            return [answers[partition] for partition in ask.partitions]
        except (KeyError, TypeError, ValueError) as error:
            failure = Unavailable(f"{self._server} gave an answer that cannot be read: {error!r}")
        except Unavailable as error:
            failure = error
        return [ShareAnswer(partition=partition, error=failure) for partition in ask.partitions]

    @override
    async def acknowledge(self, group: str, partition: PartitionKey, member: str, acks: Sequence[ShareAck]) -> None:
        packed = [[ack.start, ack.end, list(ack.types)] for ack in acks]
        await self._ask("acknowledge", {"group": group, "partition": partition, "member": member, "acks": packed})

    @override
    async def release(self, group: str, partition: PartitionKey, member: str, via: str | None = None) -> None:
        await self._ask("release", {"group": group, "partition": partition, "member": member, "via": via})

    @override
    async def give_back(
        self, group: str, partition: PartitionKey, member: str, ranges: Sequence[tuple[int, int]]
    ) -> None:
        packed = [list(offsets) for offsets in ranges]
        await self._ask("give_back", {"group": group, "partition": partition, "member": member, "ranges": packed})

    @override
    async def reset(self, group: str, partition: PartitionKey, offset: int) -> None:
        await self._ask("reset", {"group": group, "partition": partition, "offset": offset})

    @override
    async def forget(self, group: str, partition: PartitionKey) -> None:
        await self._ask("forget", {"group": group, "partition": partition})

    @override
    async def seek(self, subscription: str, partition: PartitionKey, offset: int) -> None:
        await self._ask("seek", {"group": subscription, "partition": partition, "offset": offset})

    async def _ask(self, verb: str, document: Mapping[str, Any], *, waits: bool = False) -> Document:
        """Send a request. Raises the dispatcher's error, or `Unavailable`."""
        url = f"{self._server}/v1/shares/{verb}"
        try:
            status, content = await self._client.send(url, json.dumps(document).encode(), waits=waits)
            answer: Document = json.loads(content) if status in (200, 409) else {}
            problem = packing.unpack_problem(answer) if status == 409 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"{self._server} does not answer: {error!r}") from error
        if problem is not None:
            raise problem
        if status != 200:
            raise Unavailable(f"{self._server} answered {verb} with status {status}")
        return answer
