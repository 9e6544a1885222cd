"""Examines the table catalog: whether it answers, and how fast."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from bearlake.app.doctor.latencies import latency_finding, measured
from bearlake.metadata.inspection import Finding, ok, skipped, warning
from bearlake.objects.open import open_store
from bearlake.settings.document import Settings
from bearlake.urls import split_store_url

CALL_COUNT = 3
CALL_MS_MAX = 500.0


async def examine(settings: Settings, timeout_s: float) -> Sequence[Finding]:
    """Return the findings. Raises `Invalid`, `Denied`, `Unavailable` if the catalog does not answer."""
    url, store_url = settings.tables.catalog_url, settings.object_store.url
    if not url:
        advice = "set tables.catalog_url (all compaction workers and `bearlake sql` need it)"
        return [warning("URL", "not set: there are no tables", advice)]
    parts = split_store_url(url)
    if parts.scheme == "sqlite" and not await asyncio.to_thread(Path(unquote(parts.path)).is_file):
        return [ok("file", "not there yet: the first compaction worker makes it")]
    try:
        from bearlake.table.iceberg import open_tables
    except ModuleNotFoundError as error:
        return [skipped("answer", f"{error.name} is not installed here: pip install 'bearlake[sql]'")]
    store = open_store(store_url, settings.object_store)
    tables = open_tables(settings.tables, store, store_url)
    try:
        names = await tables.namespaces()  # opens the catalog: not part of a call's time
        times = await measured(CALL_COUNT, lambda _: tables.namespaces())
    finally:
        await tables.close()
        await store.close()
    advice = "every commit of a table waits for several calls: use a catalog in the same region"
    return [
        latency_finding("answer", times, CALL_MS_MAX, advice),
        ok("namespaces", ", ".join(names) if names else "none yet: the first compaction makes one"),
    ]
