"""Examines the object store: rights, latencies, and the promises on which the log depends.

An acknowledged PUT is readable and listed at once, and a PUT under a taken key is refused and replaces nothing (docs/correctness.md,
"Assumptions"). The objects lie under `doctor/`, which no server reads, and are deleted at the end.
"""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bearlake.app.doctor.clocks import Clocks, now_ms
from bearlake.app.doctor.latencies import latency_finding, measured
from bearlake.errors import AlreadyExists, BearlakeError, Invalid, NotFound
from bearlake.metadata.inspection import Finding, failure, ok, skipped, warning
from bearlake.objects import ByteRange, ObjectStore
from bearlake.objects.open import open_store
from bearlake.objects.retrying import RetrySettings
from bearlake.settings.document import Settings

PREFIX = "doctor/"
PROBE_COUNT = 5
PROBE_BYTES = 64 * 1024
_LOCAL_MS_MAX = 100.0
_CLOUD_MS_MAX = 500.0


async def examine(settings: Settings, clocks: Clocks, timeout_s: float) -> Sequence[Finding]:
    """Return the findings. Raises `Invalid`, `Denied`, `Unavailable` if the store cannot be asked at all."""
    section = settings.object_store
    if not section.url:
        raise Invalid("object_store.url is not set: pass --data-dir, --config or --object-store-url")
    parts = urlsplit(section.url)
    is_local = parts.scheme == "file"
    if is_local and not await asyncio.to_thread(Path(unquote(parts.path)).is_dir):
        absent = warning("folder", f"{unquote(parts.path)} does not exist", "the first server makes it when it starts")
        return [absent]
    once = replace(section, retry=RetrySettings(attempt_count_max=1, deadline_ms=max(1, int(timeout_s * 1000))))
    store = open_store(section.url, once)
    probe = _Probe(store, is_local)
    try:
        findings = await probe.run(clocks)
    finally:
        with suppress(BearlakeError):
            await store.delete(probe.keys)
        await store.close()
    return [*findings, *_of_settings(settings, is_local)]


class _Probe:
    """Puts, reads, lists and deletes a few objects."""

    def __init__(self, store: ObjectStore, is_local: bool) -> None:
        self._store = store
        self._is_local = is_local
        self._prefix = f"{PREFIX}{uuid.uuid4().hex}/"
        self.keys = [f"{self._prefix}{index}" for index in range(PROBE_COUNT)]
        self._content = bytes(range(256)) * (PROBE_BYTES // 256)

    async def run(self, clocks: Clocks) -> Sequence[Finding]:
        """Return the findings. Raises what the first step raises; later steps become findings."""
        limit_ms = _LOCAL_MS_MAX if self._is_local else _CLOUD_MS_MAX
        advice = "every acknowledgement waits for this: " + (
            "use a local SSD" if self._is_local else "use a bucket in the servers' region; check proxies and throttling"
        )
        start = now_ms()
        puts = await measured(PROBE_COUNT, lambda index: self._store.put(self.keys[index], [self._content]))
        end = now_ms()
        findings = [latency_finding("PUT", puts, limit_ms, advice)]
        for step in (self._read, self._conditional_put, self._list, self._delete):
            try:
                findings += await step(limit_ms, clocks, (start, end))
            except BearlakeError as error:
                name = step.__name__.strip("_").replace("_", " ")
                findings.append(failure(name, str(error), "give this user the right, or correct the credentials"))
        return findings

    async def _read(self, limit_ms: float, clocks: Clocks, times: tuple[float, float]) -> Sequence[Finding]:
        ranges = [ByteRange(0, len(self._content))]
        found: list[bytes] = []

        async def read(index: int) -> None:
            (view,) = await self._store.read(self.keys[index], ranges)
            found.append(bytes(view))

        times_ms = await measured(PROBE_COUNT, read)
        if any(content != self._content for content in found):
            return [failure("GET", "returned other bytes than were put", "do not use this store")]
        return [latency_finding("GET", times_ms, limit_ms, "consumers of older records wait for this")]

    async def _conditional_put(self, limit_ms: float, clocks: Clocks, times: tuple[float, float]) -> Sequence[Finding]:
        async def put_again(index: int) -> None:
            try:
                await self._store.put(self.keys[index], [b"other"])
            except AlreadyExists:
                return
            taken.append(self.keys[index])

        taken: list[str] = []
        times_ms = await measured(PROBE_COUNT, put_again)
        size = await self._store.size(self.keys[0])
        if taken or size != len(self._content):
            return [
                failure(
                    "conditional PUT",
                    "a PUT with If-None-Match: * replaced an object; a repeated PUT could damage the log",
                    "use a store that supports conditional writes (S3, Google Cloud Storage, Azure Blob Storage, MinIO)",
                )
            ]
        return [latency_finding("conditional PUT", times_ms, limit_ms, "retries of PUTs wait for this")]

    async def _list(self, limit_ms: float, clocks: Clocks, times: tuple[float, float]) -> Sequence[Finding]:
        listed = [found async for found in self._store.list(self._prefix)]
        missing = set(self.keys) - {found.key for found in listed}
        if missing:
            return [
                failure(
                    "LIST",
                    f"{len(missing)} of {PROBE_COUNT} new objects are not listed",
                    "use a store whose listings are consistent",
                )
            ]
        if not self._is_local and listed:
            clocks.add("object store", min(found.modified_ms for found in listed), *times, precision_ms=1000)
        return [ok("LIST", "new objects are listed at once")]

    async def _delete(self, limit_ms: float, clocks: Clocks, times: tuple[float, float]) -> Sequence[Finding]:
        await self._store.delete(self.keys)
        try:
            await self._store.size(self.keys[0])
        except NotFound:
            return [ok("DELETE", "deleted objects are gone")]
        return [
            warning(
                "DELETE",
                "a deleted object is still there",
                "allow this user to delete objects, or the log grows without end",
            )
        ]


def _of_settings(settings: Settings, is_local: bool) -> Sequence[Finding]:
    section = settings.object_store
    found = []
    if is_local and not section.local.fsync:
        found.append(
            warning("fsync", "off: a power loss loses acknowledged records", "set object_store.local.fsync to true")
        )
    if not section.faults.is_off:
        found.append(
            warning("injected faults", "object_store.faults is set", "remove object_store.faults: it is for tests")
        )
    if urlsplit(section.url).scheme == "memory":
        found.append(skipped("durability", "memory:/// is lost when its process ends"))
    return found
