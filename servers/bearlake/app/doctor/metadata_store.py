"""Examines the metadata store: what its backend says of itself, and how long a commit takes."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from bearlake.app.doctor.clocks import Clocks, now_ms
from bearlake.app.doctor.latencies import latency_finding, measured
from bearlake.app.startup import backend_settings
from bearlake.errors import Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.inspection import Finding, skipped
from bearlake.metadata.open import POSTGRESQL, inspect_metadata, open_metadata
from bearlake.settings.document import Settings
from bearlake.urls import split_store_url

COMMIT_COUNT = 7
COMMIT_MS_MAX = 50.0
"""Every acknowledgement waits for a commit. PostgreSQL in the same region takes 2 to 10 ms, an SSD's fsync 1 to 5 ms."""


async def examine(
    settings: Settings, closing: AsyncExitStack, opened: list[Metadata], clocks: Clocks
) -> Sequence[Finding]:
    """Return the findings. If the store can be used, `opened` gets it, and `closing` closes it. Raises as `open_metadata`."""
    url = settings.metadata.url
    if not url:
        raise Invalid("metadata.url is not set: pass --data-dir, --config or --metadata-url")
    backend = backend_settings(settings.metadata)
    inspection = await inspect_metadata(url, backend)
    findings = list(inspection.findings)
    if not inspection.can_open:
        return [*findings, skipped("commit", "the store cannot be used as it is")]
    metadata = await open_metadata(url, backend)
    closing.push_async_callback(metadata.close)
    opened.append(metadata)
    if split_store_url(url).scheme in POSTGRESQL:
        start = now_ms()
        their_ms = await metadata.now_ms()
        clocks.add("metadata store", their_ms, start, now_ms())
    await metadata.producers.allocate(1)  # opens a session: not part of a commit's time
    times = await measured(COMMIT_COUNT, lambda _: metadata.producers.allocate(1))
    advice = "every acknowledgement waits for this: use a database in the same region with fast disks, or a local SSD for SQLite"
    return [*findings, latency_finding("commit", times, COMMIT_MS_MAX, advice)]
