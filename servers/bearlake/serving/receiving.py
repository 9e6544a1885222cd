"""The receive buffer of a connection: a slab, the part of it that holds unconsumed bytes, and its growth.

    slab   …consumed… | low: bytes of frames that are not consumed … high | room for new bytes

A connection begins with a small slab and grows with its traffic. When it moves to another slab, the bytes of an incomplete frame move
along, at most 4 MiB; consumed bytes stay while there are holders of the old slab. A frame above the largest size gets a slab of its own,
which grows in place with the bytes received. When memory is short, a frame that needs more waits in line (`serving/slabs.py`), and its
socket is not read meanwhile.

A request must not appear newer than it is (`AppendCall.seen`, decision 94), even if it waited unread in the socket. Bytes therefore count
as arrived when the socket was last known to be empty. A read that returns fewer bytes than requested has emptied the socket.

A connection that may have to wait long is frugal: it reads no further than the frame whose size it knows, and keeps what it has read in a
small slab meanwhile. So it holds no memory for which other connections wait.

A slab over the pool's bound is for one frame: the connection reads no further than the end of the frame, and then gives the slab back.
Otherwise it could begin another frame there that needs a larger slab, and wait in line for the slab that it holds itself.
"""

import asyncio
import fcntl
import struct
import termios
from typing import Protocol

from bearlake.serving.slabs import SIZES, SMALL_BYTES, Slab, SlabPool, Wish

READ_BYTES = 1024 * 1024
"""Largest read of a socket."""
ROOM_BYTES_MIN = 16 * 1024
"""Room of a slab below which another one is needed, unless the size of the incomplete frame is known."""
_UNREAD = struct.Struct("i")


class LogPosition(Protocol):
    """The newest log position that this server knows of: `streams.outcomes.Seen`."""

    @property
    def position(self) -> int:
        """A position that the log has reached."""


class Receiver(asyncio.BufferedProtocol):
    """The receiving half of a connection; a protocol's `Connection` adds the handling of frames."""

    def __init__(self, slabs: SlabPool, seen: LogPosition) -> None:
        self.arrived = 0
        """A log position that this server knew before the first unconsumed byte arrived; 0: none."""
        self._seen = seen
        self._emptied = 0  # the position when the socket was last known to be empty
        self._last_arrived = 0  # as `arrived`, for the bytes of the last read
        self._last_bytes = 0  # number of these bytes
        self._descriptor = -1  # the socket's; -1: not known
        self._is_encrypted = False
        self._slabs = slabs
        self._slab: Slab | None = None
        self._low = 0  # first unconsumed byte
        self._high = 0  # first byte after those received
        self._need = 0  # size of the incomplete frame, counted from _low; 0 while unknown
        self._size_class = 0
        self._wish: Wish | None = None
        self._asked = 0  # bytes requested by the last read
        self._is_frugal = False

    @property
    def client(self) -> str:
        """What counts as one client: its larger slabs have a bound (`client_of`)."""
        return ""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the event loop; returns the memory for the next bytes."""
        slab = self._slab
        if slab is None:
            slab = self._slab = self._slabs.take_small()
        elif self._low == self._high and slab.holders == 1:
            self._low = self._high = 0
        if self._lacks_room(slab):
            self._make_room()
            slab = self._slab
            assert slab is not None
        end = self._frugal_end() if self._is_frugal or slab.is_extra else self._high + READ_BYTES
        asked = slab.view[self._high : min(end, slab.size)]
        self._asked = len(asked)
        return asked

    def _frugal_end(self) -> int:
        """The position in the slab behind which nothing is read now: the end of the frame, or of a small slab."""
        unread = self._low + self._need - self._high
        return self._high + min(READ_BYTES, unread if unread > 0 else max(SMALL_BYTES - (self._high - self._low), 1))

    def _received(self, nbytes: int) -> None:
        """Record that the slab has `nbytes` more bytes."""
        slab, high = self._slab, self._high
        if high == self._low:
            self.arrived = self._emptied
        elif high - self._low <= self._last_bytes:
            self.arrived = self._last_arrived
        self._last_arrived = self._emptied
        self._last_bytes = nbytes
        self._high = high = high + nbytes
        is_short = slab is not None and nbytes < self._asked
        if is_short and (not self._is_encrypted or self._is_socket_empty()):
            self._emptied = self._seen.position

    def _is_socket_empty(self) -> bool:
        """Ask the kernel. With TLS, bytes read from the socket may still wait for decryption."""
        if self._descriptor < 0:
            return False
        try:
            unread = fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(_UNREAD.size))
        except OSError:  # the socket is closed
            return False
        return _UNREAD.unpack(unread) == (0,)

    def _record_if_empty(self) -> None:
        """Check the socket of a quiet connection, so that its next request does not appear older than it is."""
        if not self._is_encrypted and self._is_socket_empty():
            self._emptied = self._seen.position

    def _lacks_room(self, slab: Slab) -> bool:
        need = self._need
        if need and (self._low + need <= slab.size or need <= SIZES[-1]):
            return self._low + need > slab.size
        return slab.size - self._high < ROOM_BYTES_MIN

    def _release_consumed(self) -> None:
        """After frames were consumed, release memory that is not needed."""
        slab = self._slab
        if slab is None or self._low != self._high:
            return
        if slab.is_extra or slab.size > SIZES[-1] or (slab.size > SMALL_BYTES and self._slabs.needs(slab)):
            self._release()
        elif slab.holders == 1:
            self._low = self._high = 0

    def _prepare(self) -> None:
        """Get room for the incomplete frame before more bytes arrive, or wait in line for it (then `_wish` is set)."""
        if self._slab is not None and self._lacks_room(self._slab):
            self._make_room()

    def _make_room(self) -> None:
        slab = self._slab
        assert slab is not None
        if self._wish is not None:
            return
        have = self._high - self._low
        if slab.size < slab.room:
            self._grow(slab, have)
            return
        whole = max(self._need, have + ROOM_BYTES_MIN)
        if slab.holders == 1 and whole <= slab.size and have <= slab.size // 4:
            slab.view[:have] = slab.view[self._low : self._high]
            self._low, self._high = 0, have
            return
        if self._size_class + 1 < len(SIZES) and not self._is_frugal:
            self._size_class += 1
        # Beyond the largest size, memory grows with the bytes received, not with the announced size.
        size_bytes = min(whole, max(SIZES[-1], 4 * have))
        client = self.client
        fresh = self._slabs.try_take(max(SIZES[self._size_class], size_bytes), client=client, room=whole)
        if fresh is None:  # memory is short: ask once for the whole frame, because a second wait may never end
            self._size_class = 0
            fresh = self._slabs.try_take(whole, client=client, is_needed=True)
        if fresh is None:
            self._wish = self._slabs.wish(whole, self._granted, client=client)
        else:
            self._move(fresh)

    def _grow(self, slab: Slab, have: int) -> None:
        """Grow the slab of a very large frame in place, of which `have` bytes have arrived."""
        if not self._slabs.try_grow(slab, min(slab.room, 4 * have)) and not self._slabs.try_grow(
            slab, slab.room, is_needed=True
        ):
            self._wish = self._slabs.wish_growth(slab, slab.room, self._granted)

    def _granted(self, fresh: Slab) -> None:
        self._wish = None
        self._move(fresh)
        self._resume()

    def _move(self, fresh: Slab) -> None:
        """Continue in a fresh slab, with the bytes of the incomplete frame."""
        old = self._slab
        assert old is not None
        if fresh is old:
            return
        have = self._high - self._low
        fresh.view[:have] = old.view[self._low : self._high]
        self._slab, self._low, self._high = fresh, 0, have
        old.leave()

    def _release(self) -> None:
        """Release the slab."""
        if self._wish is not None:
            self._slabs.cancel(self._wish)
            self._wish = None
        slab, self._slab = self._slab, None
        self._low = self._high = self._need = self._size_class = 0
        if slab is not None:
            slab.leave()

    def _shrink(self) -> None:
        """Keep the unconsumed bytes in a small slab, if they fit, while nothing is read."""
        slab = self._slab
        if slab is not None and slab.size > SMALL_BYTES and self._high - self._low <= SMALL_BYTES:
            self._size_class = 0
            self._move(self._slabs.take_small())

    def release_idle_memory(self) -> None:
        """Give the slab back while it is empty; for quiet connections."""
        slab = self._slab
        if slab is not None and self._low == self._high and slab.holders == 1:
            self._release()

    def _resume(self) -> None:
        """Called when there is room again."""
        raise AssertionError("a protocol overrides this method")
