"""Gives clients temporary keys for the files of a table that they load (`X-Iceberg-Access-Delegation: vended-credentials`).

The keys are of a role that the server assumes for the client, restricted to the table's folder, and to reading unless the client may write
to the stream. Signing for clients (`remote-signing`) is not offered; a request that asks for both gets keys.

Source: Apache Iceberg REST specification, `data-access`, `LoadTableResult` ("Storage Credentials"), `LoadCredentialsResponse`.
"""

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from bearlake.clock import Clock
from bearlake.metadata.model import Stream
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.sts import RoleKeys, Sts
from bearlake.objects.sts_settings import RoleSettings
from bearlake.protocols.rest.iceberg.answers import json_answer
from bearlake.protocols.rest.iceberg.session_policy import Grant, place_of, session_policy
from bearlake.streams.principal import Principal
from bearlake.table.warehouse.model import Answer, Refused
from bearlake.telemetry import catalog_metrics as metrics

HEADER: Final = "X-Iceberg-Access-Delegation"
_VENDED: Final = "vended-credentials"
_NO_CONFIG: Final = b'"config":{}}'
_PARTITIONS: Final = ("aws", "aws-cn", "aws-us-gov", "aws-eusc", "aws-iso", "aws-iso-b")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    keys: RoleKeys
    until_ms: int


class Vending:
    """Keys for the clients of one server. Belongs to one event loop; the caller closes `sts`."""

    def __init__(self, sts: Sts, settings: RoleSettings, cloud: CloudSettings, store_url: str, clock: Clock) -> None:
        """`store_url`: the object store's, `s3://bucket/prefix`."""
        parts = urlsplit(store_url)
        self._bucket = parts.netloc
        self._base = f"{parts.path.strip('/')}/" if parts.path.strip("/") else ""
        self._sts = sts
        self._settings = settings
        self._cloud = cloud
        self._clock = clock
        named = (settings.role_arn or "").split(":")[1:2]
        self._partition = named[0] if named and named[0] in _PARTITIONS else "aws"
        self._known: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._asking: dict[tuple[str, str], asyncio.Task[RoleKeys]] = {}
        metrics.CREDENTIALS_KEPT.set_function(lambda: len(self._known))
        metrics.CREDENTIALS_KEPT_MAX.set(settings.cached_count_max)

    async def credentials(
        self, who: Principal, location: str, stream: Stream | None, *, has_tail: bool, may_write: bool
    ) -> list[dict[str, Any]]:
        """Return the `storage-credentials` for a table at `location`; none if it is not in the object store.

        Raises `Unavailable`: STS gave none in time.
        """
        folder = place_of(location, self._bucket, self._base)
        if folder is None:
            return []
        grant = Grant(
            bucket=self._bucket, base=self._base, folder=folder, stream=stream, has_tail=has_tail, may_write=may_write
        )
        policy = session_policy(grant, self._partition)
        if policy is None:
            return []
        config = self._config(await self._keys(who, policy))
        places = [f"{location.rstrip('/')}/", *([f"s3://{self._bucket}/{self._base}tail/"] if has_tail else [])]
        return [{"prefix": place, "config": config} for place in places]

    async def _keys(self, who: Principal, policy: str) -> RoleKeys:
        """Return keys from the cache, or new ones; equal requests at the same time share theirs."""
        known, now_ms = (str(who), policy), self._clock.now_ms()
        if (entry := self._known.get(known)) is not None and now_ms < entry.until_ms:
            self._known.move_to_end(known)
            return entry.keys
        if (asking := self._asking.get(known)) is None:
            asking = self._asking[known] = asyncio.create_task(self._ask(known, who.name))
            asking.add_done_callback(lambda task: None if task.cancelled() else task.exception() and None)
        return await asyncio.shield(asking)

    async def _ask(self, known: tuple[str, str], name: str) -> RoleKeys:
        outcome = "failed"
        try:
            keys = await self._sts.assume(name, known[1])
            outcome = "given"
        finally:
            self._asking.pop(known, None)
            metrics.CREDENTIALS.labels(outcome).inc()
        until_ms = min(self._clock.now_ms() + self._settings.duration_s * 500, keys.expires_ms)
        self._known[known] = _Entry(keys=keys, until_ms=until_ms)
        self._known.move_to_end(known)
        while len(self._known) > self._settings.cached_count_max:
            self._known.popitem(last=False)
        return keys

    def _config(self, keys: RoleKeys) -> dict[str, str]:
        endpoint = self._settings.client_endpoint or self._cloud.endpoint
        found = {
            "s3.access-key-id": keys.access_key_id,
            "s3.secret-access-key": keys.secret_access_key,
            "s3.session-token": keys.session_token,
            "s3.session-token-expires-at-ms": str(keys.expires_ms),
        }
        if endpoint is not None:
            found |= {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
        if self._cloud.region is not None:
            found |= {"client.region": self._cloud.region, "s3.region": self._cloud.region}
        return found


def asks(request: web.Request) -> bool:
    """Whether a client takes keys: it lists this mechanism, maybe beside others."""
    listed = ",".join(request.headers.getall(HEADER, [])).lower().split(",")
    return _VENDED in [name.strip() for name in listed]


def vended_answer(answer: Answer, credentials: list[dict[str, Any]]) -> web.Response:
    """Answer with a table and keys. It has no version: a client that keeps the table would keep keys that end."""
    assert answer.body.endswith(_NO_CONFIG), "bodies of tables end with an empty config"
    config = {key: value for found in credentials[:1] for key, value in found["config"].items()}
    extra = f'"config":{json.dumps(config)},"storage-credentials":{json.dumps(credentials)}}}'
    body = answer.body.removesuffix(_NO_CONFIG) + extra.encode()
    return web.Response(body=body, content_type="application/json", headers={hdrs.CACHE_CONTROL: "no-store"})


def credentials_answer(credentials: list[dict[str, Any]]) -> web.Response:
    """Answer with keys alone."""
    response = json_answer({"storage-credentials": credentials})
    response.headers[hdrs.CACHE_CONTROL] = "no-store"
    return response


def not_offered() -> Refused:
    """Return the refusal of a request for keys on a server that gives none."""
    return Refused(
        406, "UnsupportedOperationException", "This server gives no credentials (catalog.credentials.role_arn)"
    )
