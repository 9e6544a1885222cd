"""How the receive buffer grows with a large request: few bytes move, and only bytes received count."""

from bearlake.serving.receiving import Receiver
from bearlake.serving.slabs import SIZES, Slab, SlabPool, SlabSettings

MIB = 1024 * 1024
_PAGE = 4096


class Log:
    position = 0


class Client(Receiver):
    """A connection whose client sends one frame of `need` bytes."""

    def __init__(self, pool: SlabPool, need: int) -> None:
        super().__init__(pool, Log())
        self._need = need
        self.moved_bytes = 0
        self.resumed = 0

    def send(self, count: int) -> int:
        """Receive up to `count` bytes, each page with a value of its own; returns how many fit before the frame had to wait."""
        sent = 0
        while sent < count and self._wish is None:
            room = self.get_buffer(-1)
            if self._wish is not None:
                break
            size = min(len(room), count - sent)
            first = -self._high % _PAGE
            room[first:size:_PAGE] = bytes((self._high + at) // _PAGE % 251 for at in range(first, size, _PAGE))
            self._received(size)
            sent += size
            self._prepare()
        return sent

    def is_intact(self) -> bool:
        assert self._slab is not None
        part = self._slab.view[self._low : self._high : _PAGE]
        return bytes(part) == bytes(at % 251 for at in range(len(part)))

    @property
    def slab(self) -> Slab:
        """Only after the first bytes."""
        assert self._slab is not None
        return self._slab

    @property
    def is_waiting(self) -> bool:
        """Whether the frame waits in line for memory."""
        return self._wish is not None

    @property
    def received_bytes(self) -> int:
        return self._high

    def close(self) -> None:
        self._release()

    def _move(self, fresh: Slab) -> None:
        if fresh is not self._slab:
            self.moved_bytes = max(self.moved_bytes, self._high - self._low)
        super()._move(fresh)

    def _resume(self) -> None:
        self.resumed += 1


def test_a_very_large_frame_moves_no_more_bytes_than_the_largest_slab_has():
    pool = SlabPool(SlabSettings())
    client = Client(pool, 100 * MIB)

    assert client.send(100 * MIB) == 100 * MIB

    assert client.moved_bytes <= SIZES[-1]
    assert client.is_intact()
    assert pool.used_bytes == client.slab.size == 100 * MIB
    client.close()
    assert pool.used_bytes == 0


def test_a_frame_counts_as_its_received_bytes_not_as_announced():
    pool = SlabPool(SlabSettings())
    client = Client(pool, 100 * MIB)
    for received_mib in range(1, 25):
        client.send(MIB)

        assert pool.used_bytes <= max(SIZES[-1], 4 * received_mib * MIB)


def test_no_bytes_are_received_beyond_the_counted_size():
    client = Client(SlabPool(SlabSettings()), 100 * MIB)
    client.send(MIB)
    while client.slab.size <= SIZES[-1]:
        client.send(MIB)
    client.send(client.slab.size - client.received_bytes - 100_000)

    assert client.slab.size < client.slab.room
    assert len(client.get_buffer(-1)) == 100_000


def test_a_frame_that_cannot_grow_waits_and_continues_in_place():
    pool = SlabPool(SlabSettings(bytes_max=64 * MIB))
    client, other, extra = Client(pool, 48 * MIB), pool.try_take(40 * MIB), Client(pool, 20 * MIB)
    client.send(SIZES[-1] + 1)  # has 16 MiB
    assert client.slab.room == 48 * MIB
    extra.send(20 * MIB)  # the slab over the bound
    slab = client.slab
    client.send(48 * MIB)

    assert client.is_waiting
    assert slab.size == 16 * MIB
    other.release()
    assert client.resumed == 1
    assert not client.is_waiting
    extra.close()
    client.send(48 * MIB - client.received_bytes)
    assert client.slab is slab
    assert client.is_intact()
    client.close()
    assert pool.used_bytes == 0


def test_a_frame_that_needs_memory_over_the_bound_grows_once_to_its_end():
    pool = SlabPool(SlabSettings(bytes_max=16 * MIB))
    client = Client(pool, 100 * MIB)

    assert client.send(100 * MIB) == 100 * MIB

    assert client.is_intact()
    assert client.slab.is_extra
    client.close()
    second = Client(pool, 100 * MIB)
    assert second.send(100 * MIB) == 100 * MIB


def test_a_waiting_frame_whose_client_goes_leaves_the_line():
    pool = SlabPool(SlabSettings(bytes_max=24 * MIB))
    client, other = Client(pool, 48 * MIB), pool.try_take(MIB)
    client.send(SIZES[-1] + 1)
    extra = pool.try_take(10 * MIB, is_needed=True)
    client.send(48 * MIB)
    assert pool.has_waiters

    client.close()

    assert not pool.has_waiters
    other.release()
    extra.release()
    assert pool.used_bytes == 0


class Framed(Receiver):
    """A connection that takes frames of the given sizes, one after another, when all their bytes have arrived."""

    def __init__(self, pool: SlabPool, *sizes: int) -> None:
        super().__init__(pool, Log())
        self.sizes = list(sizes)
        self.unsent = sum(sizes)
        self.taken: list[Slab] = []

    def send(self, count: int) -> None:
        """Receive up to `count` bytes, until there is no room for the next frame."""
        while count and self.unsent and self._wish is None:
            size = min(len(self.get_buffer(-1)), count, self.unsent)
            self._received(size)
            self.unsent -= size
            count -= size
            self._process()

    def _process(self) -> None:
        while self.sizes and self._high - self._low >= self.sizes[0]:
            assert self._slab is not None
            self.taken.append(self._slab)
            self._slab.acquire()
            self._low += self.sizes.pop(0)
        self._need = self.sizes[0] if self.sizes and self._high > self._low else 0
        self._release_consumed()
        self._prepare()

    def _resume(self) -> None:
        self._process()


def test_a_connection_with_the_slab_over_the_bound_does_not_wait_in_line_for_itself() -> None:
    """Its next request may need a larger slab, which was granted only once the slab over the bound had been given back."""
    pool = SlabPool(SlabSettings(bytes_max=MIB))
    other = Framed(pool, MIB)
    other.send(MIB - 1)
    client = Framed(pool, MIB // 2, 3 * MIB, 10)
    client.send(MIB)
    other.send(1)
    for slab in (*other.taken, *client.taken):
        slab.release()
    client.taken.clear()

    client.send(4 * MIB)

    assert client.sizes == []
    assert not pool.has_waiters
    for slab in client.taken:
        slab.release()
    client._release()  # noqa: SLF001
    other._release()  # noqa: SLF001
    assert pool.used_bytes == 0
    assert pool.try_take(MIB, is_needed=True) is not None


def test_the_slab_over_the_bound_is_given_back_after_one_frame() -> None:
    pool = SlabPool(SlabSettings(bytes_max=MIB))
    other = Framed(pool, MIB)
    other.send(MIB - 1)
    client = Framed(pool, MIB // 2, MIB // 2)

    client.send(MIB // 2)
    (extra,) = client.taken
    assert extra.is_extra
    extra.release()

    assert not extra.is_extra
