"""Examines the live servers, and what waits for compaction, for an operator or for the end of a transaction."""

import asyncio
import email.utils
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence

from bearlake import __version__
from bearlake.app.doctor.clocks import Clocks, now_ms
from bearlake.errors import Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import TaskState
from bearlake.metadata.formats import ELIDED_VALUES, TYPED_KEYS, registered_version, too_old
from bearlake.metadata.inspection import Finding, failure, ok, skipped, warning
from bearlake.metadata.model import Server

SERVER_COUNT_MAX = 50
"""Servers that are asked; the others are counted only."""

ANSWER_BYTES_MAX = 64 * 1024
HEALTH_MS_MAX = 1_000.0
BACKLOG_AGE_MS_MAX = 120_000
"""A record is in its table ten seconds after its acknowledgement by default. Two minutes are no short burst any more."""

PAGE_COUNT = 1_000


async def examine_servers(
    metadata: Metadata, clocks: Clocks, timeout_s: float, tls: ssl.SSLContext | None
) -> Sequence[Finding]:
    """Ask the live servers for their health. Needs no token."""
    servers = await metadata.servers.live()
    if not servers:
        return [warning("live servers", "none", "start one: bearlake up, or bearlake serve kafka --config …")]
    findings = [ok("live servers", f"{len(servers)}", server_count=len(servers)), *_of_versions(servers)]
    asked = [server for server in servers if "admin" in server.endpoints][:SERVER_COUNT_MAX]
    findings += await asyncio.gather(*(_health(server, clocks, timeout_s / 2, tls) for server in asked))
    return findings


def _of_versions(servers: Sequence[Server]) -> Sequence[Finding]:
    own = registered_version(__version__)
    others = [f"{server.name}: {server.version}" for server in servers if server.version != own]
    if not others:
        return [ok("versions", f"all servers have {own}")]
    findings = [
        warning(
            "versions",
            f"this program has {own}; {', '.join(others)}",
            "finish the upgrade: versions side by side are meant for its time only",
        )
    ]
    if old := too_old(servers, ELIDED_VALUES):
        findings.append(
            warning(
                "left out values",
                f"{', '.join(server.name for server in old)} cannot read files that leave values out: streams with"
                " table.value.mode=elide keep their values until then",
                "upgrade these servers and workers",
            )
        )
    elif old := too_old(servers, TYPED_KEYS):
        findings.append(
            warning(
                "typed keys",
                f"{', '.join(server.name for server in old)} cannot read files with columns of keys: streams with"
                " table.key.mode=keep or elide get their first ones after that",
                "upgrade these servers and workers",
            )
        )
    return findings


async def _health(server: Server, clocks: Clocks, timeout_s: float, tls: ssl.SSLContext | None) -> Finding:
    subject = f"server {server.name}"
    if server.is_draining:
        return ok(subject, "drains, and ends when its clients have left")
    endpoint = server.endpoints["admin"]
    url = endpoint if endpoint.startswith("https://") else f"http://{endpoint}"
    start = now_ms()
    try:
        status, date, body = await asyncio.to_thread(_get, f"{url}/healthz", timeout_s, tls)
    except Unavailable as error:
        return warning(
            subject,
            f"{url} does not answer: {error}",
            "is the address reachable from this machine? A server that died is listed until others notice",
        )
    end = now_ms()
    seen = email.utils.parsedate_to_datetime(date) if date else None
    if seen is not None:  # whole seconds: on average half a second behind
        clocks.add(subject, seen.timestamp() * 1000 + 500, start, end, precision_ms=500)
    if status != 200:
        return failure(subject, f"unhealthy: {body.get('detail', status)}", "see its log; is its metadata store up?")
    took_ms = float(str(body.get("metadata_ms", 0.0)))
    detail = f"healthy; its metadata store answers in {took_ms:.1f} ms"
    if took_ms > HEALTH_MS_MAX:
        return warning(subject, detail, "its metadata store, or its way there, is slow", metadata_ms=took_ms)
    return ok(subject, detail, metadata_ms=took_ms)


def _get(url: str, timeout_s: float, tls: ssl.SSLContext | None) -> tuple[int, str, dict[str, object]]:
    """Return status, Date header and JSON body. Without a proxy. Raises `Unavailable`."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if tls is not None:
        handlers.append(urllib.request.HTTPSHandler(context=tls))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=timeout_s) as response:
            return response.status, response.headers.get("Date", ""), _json(response.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Date", ""), _json(error.read(ANSWER_BYTES_MAX))
    except (OSError, ValueError) as error:
        raise Unavailable(str(getattr(error, "reason", error))) from error


def _json(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def examine_compaction(metadata: Metadata) -> Sequence[Finding]:
    """Look for quarantined tasks, an old backlog, and transactions that hang."""
    return [await _quarantined(metadata), await _backlog(metadata), await _transactions(metadata)]


async def _quarantined(metadata: Metadata) -> Finding:
    ids: list[int] = []
    after = 0
    while page := await metadata.tasks.list(after=after, limit=PAGE_COUNT):
        ids += [task.id for task in page if task.state is TaskState.QUARANTINED]
        after = page[-1].id
        if len(page) < PAGE_COUNT:
            break
    if not ids:
        return ok("quarantined tasks", "none")
    shown = ", ".join(map(str, ids[:5])) + (", …" if len(ids) > 5 else "")
    return failure(
        "quarantined tasks",
        f"{len(ids)} (task {shown}): their records are not in the table",
        "bearlake compaction tasks shows the errors; remove the cause, then: bearlake compaction retry TASK",
    )


async def _backlog(metadata: Metadata) -> Finding:
    waiting = await metadata.tasks.backlog()
    records, age_ms = sum(row.record_count for row in waiting), max((row.age_ms for row in waiting), default=0)
    if not records:
        return ok("backlog", "every committed record is in its table")
    detail = f"{records:,} records of {len(waiting)} streams wait, the oldest for {age_ms / 1000:.1f} s"
    if age_ms <= BACKLOG_AGE_MS_MAX:
        return ok("backlog", detail, record_count=records, age_ms=age_ms)
    return warning(
        "backlog",
        detail,
        "is a compaction worker running (bearlake serve compactor)? Does a transaction hang? Else add workers",
        record_count=records,
        age_ms=age_ms,
    )


async def _transactions(metadata: Metadata) -> Finding:
    open_ones = await metadata.transactions.list(limit=PAGE_COUNT, is_ongoing=True)
    if not open_ones:
        return ok("transactions", "none is open")
    now = await metadata.now_ms()
    hanging = [row.transactional_id for row in open_ones if now - row.started_ms > 2 * row.timeout_ms]
    if not hanging:
        return ok("transactions", f"{len(open_ones)} open, all younger than their timeouts allow")
    return warning(
        "transactions",
        f"{len(hanging)} open for more than twice their timeout, such as {hanging[0]!r}: they hold back readers and compaction",
        "bearlake transaction describe ID, then: bearlake transaction abort ID",
    )


UNKNOWN = skipped("servers", "the metadata store knows them, and it cannot be used")
"""The finding about servers if the metadata store cannot be opened."""
