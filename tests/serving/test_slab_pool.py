"""The pool of receive buffers: reuse, the limit of larger buffers, and the queue of waiters."""

import random
from functools import partial

from bearlake.serving.slabs import SIZES, SMALL_BYTES, Slab, SlabPool, SlabSettings

SMALL, MEDIUM, LARGE = SIZES


def test_a_slab_is_returned_by_its_last_holder_and_reused():
    pool = SlabPool(SlabSettings())
    slab = pool.take_small()
    slab.acquire()

    slab.release()
    assert pool.used_bytes == SMALL_BYTES
    slab.release()

    assert (pool.used_bytes, pool.idle_bytes) == (0, SMALL_BYTES)
    assert pool.take_small() is slab
    assert (slab.holders, pool.idle_bytes) == (1, 0)


def test_sizes_are_rounded_up_and_the_largest_slabs_are_not_kept():
    pool = SlabPool(SlabSettings())
    slabs = [pool.try_take(size) for size in (1, SMALL + 1, MEDIUM + 1, LARGE + 1)]

    assert [slab.size for slab in slabs if slab] == [SMALL, MEDIUM, LARGE, LARGE + 1]
    for slab in slabs:
        slab.release()
    assert (pool.used_bytes, pool.idle_bytes) == (0, SMALL + MEDIUM + LARGE)


def test_unused_slabs_are_kept_up_to_their_bound():
    pool = SlabPool(SlabSettings(idle_bytes_max=2 * SMALL))
    slabs = [pool.take_small() for _ in range(5)]
    for slab in slabs:
        slab.release()

    assert pool.idle_bytes == 2 * SMALL


def test_small_slabs_are_granted_regardless_of_the_bound():
    pool = SlabPool(SlabSettings(bytes_max=0))

    assert [pool.try_take(10).size for _ in range(100)] == [SMALL] * 100


def test_above_the_bound_only_a_needed_slab_is_granted_and_only_one():
    pool = SlabPool(SlabSettings(bytes_max=LARGE))
    first = pool.try_take(LARGE)

    assert pool.try_take(MEDIUM) is None
    extra = pool.try_take(MEDIUM, is_needed=True)
    assert extra is not None
    assert pool.try_take(MEDIUM, is_needed=True) is None
    extra.release()
    assert pool.try_take(MEDIUM, is_needed=True) is not None
    first.release()


def test_waiters_are_served_in_order():
    pool = SlabPool(SlabSettings(bytes_max=LARGE))
    first, extra = pool.try_take(LARGE), pool.try_take(LARGE, is_needed=True)
    granted = []
    pool.wish(LARGE, lambda slab: granted.append(("large", slab)))
    pool.wish(MEDIUM, lambda slab: granted.append(("medium", slab)))
    assert pool.has_waiters

    first.release()
    assert [name for name, _ in granted] == ["large"]
    assert pool.try_take(MEDIUM) is None
    extra.release()

    assert [name for name, _ in granted] == ["large", "medium"]  # one slab within the bound, one extra slab
    assert not pool.has_waiters


def test_a_waiter_that_gives_up_lets_the_next_one_through():
    pool = SlabPool(SlabSettings(bytes_max=LARGE))
    first, extra = pool.try_take(MEDIUM), pool.try_take(LARGE, is_needed=True)
    granted = []
    wish = pool.wish(2 * LARGE, granted.append)
    pool.wish(MEDIUM, granted.append)
    first.release()
    extra_only = list(granted)

    pool.cancel(wish)
    pool.cancel(wish)

    assert extra_only == []
    extra.release()
    assert [slab.size for slab in granted] == [MEDIUM]


def test_a_grant_that_fails_leaves_the_slab_to_those_behind_it():
    pool = SlabPool(SlabSettings(bytes_max=MEDIUM))
    first, extra = pool.try_take(MEDIUM), pool.try_take(MEDIUM, is_needed=True)
    granted = []

    def fail(_: Slab) -> None:
        raise ValueError("a bug")

    pool.wish(LARGE, fail)
    pool.wish(LARGE, granted.append)
    first.release()
    extra.release()

    assert [slab.size for slab in granted] == [LARGE]
    assert pool.used_bytes == LARGE


def test_every_request_is_granted_and_the_bound_is_exceeded_by_at_most_one_slab():
    for seed in range(50):
        noise = random.Random(seed)
        pool = SlabPool(SlabSettings(bytes_max=2 * LARGE))
        held, wishes = [], 0
        granted = []
        for _ in range(300):
            size = noise.choice([SMALL, MEDIUM, LARGE, 2 * LARGE])
            slab = pool.try_take(size, is_needed=noise.random() < 0.5)
            if slab is not None:
                held.append(slab)
            elif noise.random() < 0.5:
                pool.wish(size, granted.append)
                wishes += 1
            if held and noise.random() < 0.6:
                held.pop(noise.randrange(len(held))).release()
            large_bytes = sum(slab.size for slab in [*held, *granted] if slab.size > SMALL and slab.holders)
            assert large_bytes <= 2 * LARGE + 2 * LARGE
        while held:
            held.pop().release()
        at = 0
        while at < len(granted):  # each release grants the next request
            granted[at].release()
            at += 1

        assert at == wishes
        assert not pool.has_waiters
        assert pool.used_bytes == 0


def left_slab(pool: SlabPool) -> Slab:
    """A small slab that only a batch holds."""
    slab = pool.take_small()
    slab.acquire()
    slab.leave()
    return slab


def test_small_slabs_that_only_batches_hold_count_like_larger_ones() -> None:
    pool = SlabPool(SlabSettings(bytes_max=LARGE))
    left = [left_slab(pool) for _ in range(LARGE // SMALL - 1)]
    assert not pool.is_left_to_batches
    assert pool.try_take(MEDIUM) is None
    assert pool.try_take(SMALL) is not None

    left.append(left_slab(pool))

    assert pool.is_left_to_batches
    assert pool.try_take(SMALL) is None, "not even a small one"
    for slab in left:
        slab.release()
    assert not pool.is_left_to_batches
    assert pool.try_take(LARGE) is not None


def test_a_small_slab_that_its_connection_leaves_empty_returns_to_the_pool() -> None:
    pool = SlabPool(SlabSettings(bytes_max=1))
    slab = pool.take_small()

    slab.leave()

    assert (pool.used_bytes, pool.idle_bytes, pool.is_left_to_batches) == (0, SMALL, False)


def test_a_connection_whose_small_slabs_are_kept_by_batches_waits_for_the_next_one() -> None:
    """Small slabs were always granted at once, because the number of connections was to bound them."""
    pool = SlabPool(SlabSettings(bytes_max=2 * SMALL))
    left = [left_slab(pool), left_slab(pool)]
    granted: list[Slab] = []

    extra = pool.try_take(SMALL, is_needed=True)
    assert extra is not None
    assert pool.try_take(SMALL, is_needed=True) is None
    pool.wish(SMALL, granted.append)
    left[0].release()

    assert len(granted) == 1
    for slab in (left[1], extra, *granted):
        slab.release()
    assert pool.used_bytes == 0


def take_all(pool: SlabPool, client: str, size: int) -> list[Slab]:
    """Take slabs for frames of this size as long as the client gets them; the last one is the slab over its part, if that is free."""
    held: list[Slab] = []
    while (slab := pool.try_take(size, client=client, is_needed=True)) is not None:
        held.append(slab)
    return held


def test_a_client_has_as_much_as_it_leaves_free_and_one_slab_more() -> None:
    pool = SlabPool(SlabSettings(bytes_max=4 * LARGE, is_shared=True))
    taken = [pool.try_take(LARGE, client="a") for _ in range(2)]

    assert None not in taken
    assert pool.try_take(MEDIUM, client="a") is None
    over = pool.try_take(MEDIUM, client="a", is_needed=True)
    assert over is not None
    assert over.is_extra  # it is for one frame: its connection must not begin another one that waits for it
    assert pool.try_take(MEDIUM, client="a", is_needed=True) is None
    over.release()
    assert not over.is_extra
    again = pool.try_take(MEDIUM, client="a", is_needed=True)
    assert again is not None
    for slab in (*taken, again):
        assert slab is not None
        slab.release()
    assert pool.try_take(LARGE, client="a") is not None


def test_clients_that_give_nothing_back_leave_room_for_many_others() -> None:
    """Two clients that began frames and did not send their ends held all buffers; all others had one at a time."""
    pool = SlabPool(SlabSettings(bytes_max=256 * MEDIUM, is_shared=True))
    stalled = [slab for client in "abcd" for slab in take_all(pool, client, 16 * MEDIUM)]

    held = take_all(pool, "e", MEDIUM)

    assert len(held) >= 8
    assert sum(slab.size for slab in (*stalled, *held)) <= (256 + 2 * 16) * MEDIUM


def test_clients_that_give_back_what_they_hold_come_to_have_equal_parts() -> None:
    pool = SlabPool(SlabSettings(bytes_max=60 * MEDIUM, is_shared=True))
    held = {client: take_all(pool, client, MEDIUM) for client in "abcde"}
    wishes = 200
    for client, slabs in held.items():
        for _ in range(wishes):
            pool.wish(MEDIUM, slabs.append, client=client)
    noise = random.Random(1)

    for _ in range(wishes):
        slabs = held[noise.choice("abcde")]
        if slabs:
            slabs.pop(0).release()

    assert all(9 <= len(slabs) <= 12 for slabs in held.values()), {key: len(slabs) for key, slabs in held.items()}


def test_what_waits_for_the_part_of_its_client_lets_others_pass() -> None:
    pool = SlabPool(SlabSettings(bytes_max=4 * LARGE, is_shared=True))
    held = take_all(pool, "a", LARGE)
    granted: list[Slab] = []
    pool.wish(MEDIUM, granted.append, client="a")

    assert pool.try_take(MEDIUM, client="a", is_needed=True) is None  # behind its client's other wish
    other = pool.try_take(LARGE, client="b")
    assert other is not None
    assert granted == []
    held[-1].release()
    assert len(granted) == 1


def test_a_client_takes_no_more_than_it_needs_while_one_that_has_less_waits() -> None:
    pool = SlabPool(SlabSettings(bytes_max=8 * MEDIUM, is_shared=True))
    held = [pool.try_take(MEDIUM, client="a") for _ in range(3)]
    extra = pool.try_take(LARGE, client="b", is_needed=True)
    pool.wish(LARGE, lambda _: None, client="c")

    assert held[0] is not None
    assert pool.needs(held[0])
    assert pool.try_take(MEDIUM, client="a") is None
    assert pool.try_take(MEDIUM, client="a", is_needed=True) is not None
    assert extra is not None
    extra.release()
    assert not pool.needs(held[0]), "nobody waits"


def test_the_slab_over_the_parts_is_free_for_a_client_that_has_no_other() -> None:
    """A client that has its part must not keep the only slab that a new client can get."""
    pool = SlabPool(SlabSettings(bytes_max=4 * MEDIUM, is_shared=True))
    held = take_all(pool, "a", MEDIUM)
    assert pool.try_take(MEDIUM, client="b", is_needed=True) is not None

    newcomer = pool.try_take(LARGE, client="c", is_needed=True)

    assert held[-1].is_extra
    assert newcomer is not None
    assert newcomer.is_extra


def test_a_slab_that_many_small_ones_wait_for_is_granted_to_all_of_them() -> None:
    """Each grant returned the connection's small slab, which granted the next one, inside of it: 150 ended in a RecursionError."""
    pool = SlabPool(SlabSettings(bytes_max=1_000 * MEDIUM))
    whole, extra = pool.try_take(1_000 * MEDIUM), pool.try_take(MEDIUM, is_needed=True)
    granted: list[Slab] = []

    def move(small: Slab, fresh: Slab) -> None:
        small.leave()
        granted.append(fresh)

    for _ in range(1_000):
        pool.wish(MEDIUM, partial(move, pool.take_small()))
    for slab in (extra, whole):
        assert slab is not None
        slab.release()

    assert len(granted) == 1_000
    assert not pool.has_waiters


def test_random_clients_leave_nothing_behind() -> None:
    """Every wish is granted once enough slabs were released, and the counts return to zero."""
    randomness = random.Random(1)
    for _ in range(200):
        pool = SlabPool(SlabSettings(bytes_max=2 * LARGE, is_shared=True))
        held: list[Slab] = []
        for _ in range(60):
            client, size = randomness.choice("abc"), randomness.choice((MEDIUM, LARGE, LARGE + 1))
            if held and randomness.random() < 0.45:
                held.pop(randomness.randrange(len(held))).release()
            elif (slab := pool.try_take(size, client=client, is_needed=True)) is not None:
                held.append(slab)
            else:
                pool.wish(size, held.append, client=client)
            assert pool.used_bytes <= 2 * LARGE + 2 * (LARGE + 1)
        while held:
            held.pop().release()
        assert (pool.used_bytes, pool.has_waiters, pool.is_left_to_batches) == (0, False, False)
        assert pool.try_take(LARGE, client="a") is not None
