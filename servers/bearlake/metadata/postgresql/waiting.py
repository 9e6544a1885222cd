"""Reports which lock a connection waits for and who holds it: in the log during the wait, and in the error if the wait times out.

PostgreSQL reports neither in its error, and after the error it is too late to ask. So a second connection looks while the first waits.
It is opened only if a step takes longer than `LOOK_S`. It only adds information: the step has the same outcome without it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Self

from bearlake.errors import BearlakeError, Unavailable

log = logging.getLogger(__name__)

LOOK_S = 1.0

HOLDERS = """
select format('%s on %s, held by %s', l.mode, coalesce(l.relation::regclass::text, l.locktype),
              string_agg(format('process %s (%s at %s, %s, transaction of %s s)', b.pid, nullif(a.application_name, ''),
                                coalesce(host(a.client_addr), 'a local socket'), a.state,
                                extract(epoch from clock_timestamp() - a.xact_start)::bigint), ', '))
  from pg_locks l
 cross join unnest(pg_blocking_pids(l.pid)) b (pid)
  left join pg_stat_activity a on a.pid = b.pid
 where l.pid = $1 and not l.granted
 group by l.mode, l.relation, l.locktype"""
"""The lock that process $1 waits for; no row: none."""


class Waiting:
    """`async with`: if the block raises `Unavailable`, the error names the lock that was last seen to be awaited, and its holders."""

    def __init__(self, look: Callable[[], Awaitable[Sequence[str]]], *, look_s: float = LOOK_S) -> None:
        """`look` returns the awaited locks with their holders; it runs every `look_s` seconds until the block ends."""
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
                    log.warning("a change of the layout waits for a lock", extra={"lock": seen})
                    self._seen = seen
