"""Reports what a connection waits for: a lock and who holds it, or a standby. In the log during the wait, and in the error if it times out.

PostgreSQL reports none of these in its error, and after the error it is too late to ask. So a second connection looks while the first
waits. It is opened only if a step takes longer than `LOOK_S`. It only adds information: the step has the same outcome without it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Self

from bearlake.errors import BearlakeError, Unavailable

log = logging.getLogger(__name__)

LOOK_S = 1.0

LOCKS = """
select format('%s on %s, held by %s', l.mode, coalesce(l.relation::regclass::text, l.locktype),
              string_agg(format('process %s (%s at %s, %s, transaction of %s s)', b.pid, nullif(a.application_name, ''),
                                coalesce(host(a.client_addr), 'a local socket'),
                                case when a.wait_event = 'SyncRep' then 'waits for a synchronous standby' else a.state end,
                                extract(epoch from clock_timestamp() - a.xact_start)::bigint), ', '))
  from pg_locks l
 cross join unnest(pg_blocking_pids(l.pid)) b (pid)
  left join pg_stat_activity a on a.pid = b.pid
 where l.pid = $1 and not l.granted
 group by l.mode, l.relation, l.locktype"""
"""The lock that process $1 waits for; no row: none."""

STANDBYS = """
select format('a synchronous standby: synchronous_standby_names is ''%s'', connected standbys: %s',
              current_setting('synchronous_standby_names'),
              case when exists (select from pg_stat_replication)
                   then coalesce((select string_agg(r.application_name, ', ') from pg_stat_replication r), 'hidden from this user')
                   else 'none' end)
  from pg_stat_activity a
 where a.wait_event = 'SyncRep' and (a.pid = $1 or a.pid = any (pg_blocking_pids($1)))
 limit 1"""
"""The standbys that delay the commit of process $1, or of a process whose lock $1 awaits. No row: none."""

AWAITED = (LOCKS, STANDBYS)
"""What process $1 waits for, as text."""


class Waiting:
    """`async with`: if the block raises `Unavailable`, the error names what was last seen to be awaited."""

    def __init__(self, look: Callable[[], Awaitable[Sequence[str]]], *, look_s: float = LOOK_S) -> None:
        """`look` returns what is awaited, as text; it runs every `look_s` seconds until the block ends."""
        self._look = look
        self._look_s = look_s
        self._seen = ""

    async def __aenter__(self) -> Self:
        self._is_over = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._is_over.set()
        if isinstance(error, asyncio.CancelledError):
            self._task.cancel()
        await asyncio.wait([self._task])
        if isinstance(error, Unavailable) and self._seen:
            raise Unavailable(f"{error} (waited for {self._seen})") from error

    async def _watch(self) -> None:
        while not self._is_over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look_s):
                    await self._is_over.wait()
                    return
            with suppress(BearlakeError):
                seen = "; ".join(await self._look())
                if seen and seen != self._seen:
                    log.warning("a change of the layout waits", extra={"awaited": seen})
                    self._seen = seen
