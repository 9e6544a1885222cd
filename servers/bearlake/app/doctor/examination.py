"""The examination: area after area, each with its own time limit, so that one store that hangs does not hide what the others have.

It joins no deployment. It writes a few small objects under `doctor/` and deletes them, and it takes a few producer ids from the metadata
store, which are never given out again. It does not upgrade the layout of a store.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from bearlake.app.doctor import catalog, deployment, machine, metadata_store, objects
from bearlake.app.doctor.clocks import Clocks
from bearlake.errors import BearlakeError, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.inspection import Finding, failure
from bearlake.settings.document import Settings
from bearlake.settings.show import without_password
from bearlake.urls import split_store_url

CLOSE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A part of the deployment, with what was found there."""

    name: str
    place: str
    """The URL or folder that was examined; empty if there is none. Without passwords."""
    findings: Sequence[Finding] = field(default_factory=tuple)


async def examine(settings: Settings, *, timeout_s: float, tls: Any = None) -> AsyncIterator[Area]:
    """Yield the areas in order. `timeout_s` bounds each area; `tls`: the `ssl.SSLContext` of requests to admin APIs with TLS."""
    clocks = Clocks()
    metadata_url, store_url = settings.metadata.url, settings.object_store.url
    yield Area(name="this machine", place="", findings=machine.examine(settings))
    async with AsyncExitStack() as closing:
        opened: list[Metadata] = []

        async def of_metadata() -> Sequence[Finding]:
            return await metadata_store.examine(settings, closing, opened, clocks)

        area = await _bounded("metadata store", metadata_url, of_metadata, timeout_s)
        yield area
        yield await _bounded(
            "object store", store_url, lambda: objects.examine(settings, clocks, timeout_s), 2 * timeout_s
        )
        yield await _bounded(
            "table catalog", settings.tables.catalog_url, lambda: catalog.examine(settings, timeout_s), timeout_s
        )
        if opened:
            yield await _bounded(
                "servers", "", lambda: deployment.examine_servers(opened[0], clocks, timeout_s, tls), 2 * timeout_s
            )
            yield await _bounded("compaction", "", lambda: deployment.examine_compaction(opened[0]), timeout_s)
        else:
            yield Area(name="servers", place="", findings=[deployment.UNKNOWN])
    yield Area(name="clocks", place="", findings=clocks.findings())


async def _bounded(name: str, url: str, step: Callable[[], Awaitable[Sequence[Finding]]], timeout_s: float) -> Area:
    """Run one area's step; an error of a store becomes a finding."""
    place = without_password(url) if url else ""
    try:
        async with asyncio.timeout(timeout_s):
            findings = await step()
    except TimeoutError:
        findings = [
            failure(
                "answer",
                f"no answer within {timeout_s:.0f} s",
                "is it running, and reachable from this machine (address, firewall, DNS)? --timeout-ms waits longer",
            )
        ]
    except BearlakeError as error:
        findings = [failure("answer", str(error), advice_for(error, url))]
    return Area(name=name, place=place, findings=findings)


_ADVICE: Mapping[str, str] = {
    "Denied": "check user, password and rights",
    "NotFound": "create what the URL names, or correct the URL",
    "Unavailable": "is it running, and reachable from this machine (address, firewall, DNS)?",
    "Local": "it is on this machine: see whether its disk is full or failing, or another process holds its file",
    "Unsupported": "use the version of Bearlake that the servers have, or a newer one",
}


def advice_for(error: BearlakeError, url: str) -> str:
    """Return what may help after an error of the store at this URL."""
    if isinstance(error, Unavailable) and split_store_url(url).scheme in ("sqlite", "file"):
        return _ADVICE["Local"]
    kinds = (kind.__name__ for kind in type(error).__mro__)
    return next((_ADVICE[kind] for kind in kinds if kind in _ADVICE), "correct the setting")
