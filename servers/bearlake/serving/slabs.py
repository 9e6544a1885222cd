"""Pooled receive buffers: memory that is already resident, with a bound on its total size.

The first touch of fresh anonymous memory costs 2.5-7.5 us per 4 KiB, which is slower than the network. So sockets are read into recycled
slabs, and batches stay there, as views, until they are copied into a WAL object. A slab returns to the pool when its last
holder has released it.

Slabs come in three sizes. A quiet connection owns a small slab, which is always granted at once (the number of connections bounds the
number of small slabs). A busy connection grows into larger slabs. A request above the largest size gets its own slab, which is not kept.
Such a slab reserves addresses for the whole request and grows in place, so that its bytes are never moved: to move 64 MiB takes 50 ms.
Only its size counts; addresses that were never touched use no memory.

A connection that ends or moves to another slab leaves its small slab to the batches in it, until they are sealed. Such slabs are not
bounded by the number of connections, so they count like larger ones. While they alone reach the bound, no connection gets another small
slab, and the server accepts no connection (`serving/connections.py`).

Larger slabs are bounded by `bytes_max`, and one client, by user or address, has at most as many bytes as it leaves free: a client that
is alone has half of the bound, two have a third each. So a client whose frames never end leaves half of what was free to all others,
however many clients do so (decision 363). Beyond that, connections wait, each in the line of its client, and clients take turns.

The next one gets a slab over its client's part if its client has no such slab, and holds it for one frame (`serving/receiving.py`). There
are two of them in all, which the bound does not count: one for a client that has no other larger slab, and one for all others. So requests
that were begun always finish: no connection waits for memory that only waiting connections hold.
"""

import logging
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bearlake.telemetry.containment import contained

log = logging.getLogger(__name__)

SIZES = (64 * 1024, 1024 * 1024, 4 * 1024 * 1024)
SMALL_BYTES = SIZES[0]


class Slab:
    """One receive buffer with a count of holders; starts with one holder."""

    __slots__ = ("_pool", "client", "holders", "is_extra", "is_left", "room", "size", "view")

    def __init__(self, pool: "SlabPool", size: int, room: int = 0) -> None:
        self._pool = pool
        self.size = size
        """Bytes that may be used."""
        self.room = max(size, room)
        """Bytes to which the slab may grow (`SlabPool.try_grow`)."""
        self.client = ""
        """Whose part of the bound a larger slab counts in."""
        self.holders = 1
        self.is_extra = False
        """Whether the slab was granted over its client's part of the bound."""
        self.is_left = False
        """Whether the slab is small, and only batches hold it."""
        self.view = memoryview(mmap.mmap(-1, self.room))
        """The slab's `room` bytes. Those after `size` must not be touched."""

    def acquire(self, count: int = 1) -> None:
        """Add `count` holders."""
        self.holders += count

    def leave(self) -> None:
        """Remove the holder that reads into the slab; other holders, which are batches in it, may keep it."""
        if self.size == SMALL_BYTES and self.holders > 1:
            self._pool.left(self)
        self.release()

    def release(self, count: int = 1) -> None:
        """Remove `count` holders; the last one returns the slab to the pool."""
        self.holders -= count
        if self.holders == 0:
            self._pool.give_back(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabSettings:
    """Bounds of the pool."""

    bytes_max: int = 256 * 1024 * 1024
    """Bytes of slabs in use that are larger than the smallest size, or that only batches hold."""
    is_shared: bool = False
    """Whether a client has at most as many of these bytes as it leaves free; otherwise it may have all."""
    idle_bytes_max: int = 64 * 1024 * 1024
    """Bytes of unused slabs that are kept for reuse."""


class Wish:
    """A client's place in the line for a slab of `size` bytes; `grant` takes the slab, with one holder, unless it raises.

    `slab`: the wish is that this slab, which the caller holds, grows by `size` bytes.
    """

    __slots__ = ("client", "grant", "size", "slab")

    def __init__(self, client: str, size: int, grant: Callable[[Slab], None], slab: Slab | None = None) -> None:
        self.client = client
        self.size = size
        self.grant = grant
        self.slab = slab


class SlabPool:
    """Slabs by size. Used from the event loop's thread only."""

    def __init__(self, settings: SlabSettings) -> None:
        self._settings = settings
        self._free: dict[int, list[Slab]] = {size: [] for size in SIZES}
        self._lines: dict[str, dict[Wish, None]] = {}  # wishes by client, in order; the next client is the first
        self._is_serving = False
        # Slabs over the parts of clients: that of a client without another larger slab (True), and that of one with others.
        self._extras: dict[bool, Slab] = {}
        self._client_extras: dict[str, Slab] = {}  # the same slabs by client
        self._client_bytes: dict[str, int] = {}  # of slabs above the smallest size
        self._bound_bytes = 0  # of slabs that the bound counts
        self._left_bytes = 0
        self.used_bytes = 0
        """Bytes of slabs that have holders."""
        self.idle_bytes = 0
        """Bytes of slabs that wait for reuse."""

    @property
    def has_waiters(self) -> bool:
        """Whether a connection waits for a slab."""
        return bool(self._lines)

    def needs(self, slab: Slab) -> bool:
        """Whether the slab should be returned when it is empty: a connection of its client waits, or of a client that has less."""
        return slab.client in self._lines or self._poorer_waits(slab.client)

    def _poorer_waits(self, client: str) -> bool:
        own = self._client_bytes.get(client, 0)
        return own > 0 and any(self._client_bytes.get(other, 0) < own for other in self._lines)

    @property
    def is_left_to_batches(self) -> bool:
        """Whether small slabs that only batches hold reach the bound: no connection may be accepted."""
        return self._left_bytes > 0 and self._left_bytes >= self._settings.bytes_max

    def left(self, slab: Slab) -> None:
        """Called by a small slab that only batches hold from now on."""
        slab.is_left = True
        self._left_bytes += slab.size
        self._bound_bytes += slab.size

    def take_small(self) -> Slab:
        """Return a slab of the smallest size; always granted at once."""
        return self._take(SMALL_BYTES)

    def try_take(self, size_min: int, *, client: str = "", is_needed: bool = False, room: int = 0) -> Slab | None:
        """Return a slab of at least `size_min` bytes; None if the caller must wait.

        `is_needed`: a request cannot finish without the slab, so the slab may be one over the client's part.
        `room`: bytes to which the slab should be able to grow, if it is larger than the largest size.
        """
        size = _size_of(size_min)
        if size == SMALL_BYTES and not self.is_left_to_batches:
            return self._take(size)
        if not self._may_grant(client, size, is_needed=is_needed):
            return None
        return self._grant(client, size, room=room)

    def try_grow(self, slab: Slab, size: int, *, is_needed: bool = False) -> bool:
        """Let a slab in use have `size` bytes, at most its `room`; False if the caller must wait. `is_needed`: as for `try_take`."""
        if not self._may_grant(slab.client, size - slab.size, slab, is_needed=is_needed):
            return False
        self._grow(slab, size - slab.size)
        if slab.is_extra and self._lines:  # the bound counts it no more
            self._serve()
        return True

    def _may_grant(self, client: str, size: int, slab: Slab | None = None, *, is_needed: bool) -> bool:
        """Whether a client may have `size` bytes more now; `slab`: as for `Wish`."""
        if client in self._lines:  # behind its other wishes
            return False
        if not is_needed:
            return self._fits(client, size) and not self._poorer_waits(client)
        return self._fits(client, size) or self._may_exceed(client, slab)

    def _fits(self, client: str, size: int) -> bool:
        """Whether a client that gets `size` bytes more keeps within its part."""
        left = self._settings.bytes_max - self._bound_bytes - size
        return left >= (self._client_bytes.get(client, 0) + size if self._settings.is_shared else 0)

    def _may_exceed(self, client: str, slab: Slab | None) -> bool:
        """Whether the slab over its part is free for a client."""
        return client not in self._client_extras and self._is_alone(client, slab) not in self._extras

    def _is_alone(self, client: str, slab: Slab | None) -> bool:
        """Whether the client has no larger slab but this one."""
        return self._client_bytes.get(client, 0) == (0 if slab is None else slab.size)

    def wish(self, size_min: int, grant: Callable[[Slab], None], *, client: str = "") -> Wish:
        """Wait in line for a slab of at least `size_min` bytes, which `try_take` refused."""
        return self._enter(Wish(client, _size_of(size_min), grant))

    def wish_growth(self, slab: Slab, size: int, grant: Callable[[Slab], None]) -> Wish:
        """Wait in line until the slab may have `size` bytes, which `try_grow` refused. `grant` is called with the slab."""
        return self._enter(Wish(slab.client, size - slab.size, grant, slab))

    def _enter(self, wish: Wish) -> Wish:
        self._lines.setdefault(wish.client, {})[wish] = None
        return wish

    def cancel(self, wish: Wish) -> None:
        """Leave the line; no effect if the wish was granted."""
        if wish in self._lines.get(wish.client, ()):
            self._leave(wish)
            self._serve()

    def _leave(self, wish: Wish) -> None:
        line = self._lines[wish.client]
        del line[wish]
        if not line:
            del self._lines[wish.client]

    def give_back(self, slab: Slab) -> None:
        """Called by a slab whose last holder released it."""
        self.used_bytes -= slab.size
        if slab.is_left or (slab.size > SMALL_BYTES and not slab.is_extra):
            self._bound_bytes -= slab.size
        if slab.is_left:
            slab.is_left = False
            self._left_bytes -= slab.size
        elif slab.size > SMALL_BYTES:
            self._count(slab, -slab.size)
        if slab.is_extra:
            self._end_extra(slab)
        free = self._free.get(slab.size)
        if free is not None and self.idle_bytes + slab.size <= self._settings.idle_bytes_max:
            self.idle_bytes += slab.size
            free.append(slab)
        if self._lines:
            self._serve()

    def _take(self, size: int, room: int = 0) -> Slab:
        free = self._free.get(size)
        if free:
            self.idle_bytes -= size
            slab = free.pop()
            slab.holders = 1
        else:
            slab = Slab(self, size, 0 if size in self._free else room)
        self.used_bytes += size
        if size > SMALL_BYTES:
            self._bound_bytes += size
        return slab

    def _grant(self, client: str, size: int, *, room: int = 0) -> Slab:
        fits, is_alone = self._fits(client, size), self._is_alone(client, None)
        slab = self._take(size, room)
        slab.client = client
        if size > SMALL_BYTES:
            self._count(slab, size)
        if not fits:
            self._begin_extra(slab, is_alone)
        return slab

    def _grow(self, slab: Slab, size: int) -> None:
        """Add `size` bytes to a slab that is larger than the largest size."""
        if not self._fits(slab.client, size):
            self._begin_extra(slab, self._is_alone(slab.client, slab))
        slab.size += size
        self.used_bytes += size
        if not slab.is_extra:
            self._bound_bytes += size
        self._count(slab, size)

    def _begin_extra(self, slab: Slab, is_alone: bool) -> None:
        """Note that the slab is over its client's part; the bound counts it no more."""
        slab.is_extra = True
        if slab.size > SMALL_BYTES:
            self._bound_bytes -= slab.size
        self._extras[is_alone] = slab
        self._client_extras[slab.client] = slab

    def _end_extra(self, slab: Slab) -> None:
        slab.is_extra = False
        self._extras = {is_alone: extra for is_alone, extra in self._extras.items() if extra is not slab}
        if self._client_extras.get(slab.client) is slab:
            del self._client_extras[slab.client]

    def _count(self, slab: Slab, size: int) -> None:
        """Count bytes of a larger slab in its client's part."""
        left = self._client_bytes.get(slab.client, 0) + size
        if left:
            self._client_bytes[slab.client] = left
        else:
            del self._client_bytes[slab.client]

    def _serve(self) -> None:
        """Grant what can be granted. A grant may return slabs and leave lines, for which this looks again."""
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while (wish := self._next()) is not None:
                self._fulfil(wish)
        finally:
            self._is_serving = False

    def _fulfil(self, wish: Wish) -> None:
        self._leave(wish)
        if wish.client in self._lines:  # the others of the client wait behind those of all clients
            self._lines[wish.client] = self._lines.pop(wish.client)
        if wish.slab is None:
            slab = self._grant(wish.client, wish.size)
            contained(log, "grant a receive buffer", partial(wish.grant, slab), partial(_take_back, slab))
        else:
            self._grow(wish.slab, wish.size)
            contained(log, "grow a receive buffer", partial(wish.grant, wish.slab))

    def _next(self) -> Wish | None:
        """The first wish of the first client that may have it now."""
        for client, line in self._lines.items():
            wish = next(iter(line))
            if self._fits(client, wish.size) or self._may_exceed(client, wish.slab):
                return wish
        return None


def _take_back(slab: Slab, _: Exception) -> None:
    slab.release()


def _size_of(size_min: int) -> int:
    return next((size for size in SIZES if size >= size_min), size_min)
