import random
import uuid

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bearlake.clock import ManualClock
from bearlake.errors import Invalid
from bearlake.objects.keys import check_key, check_prefix
from bearlake.wal.keys import KeySource, created_ms, hour_prefix, uuid7


def test_a_uuid7_equals_the_example_of_the_rfc() -> None:
    """RFC 9562, appendix A.6."""
    random_bits = 0xCC3 << 62 | 0x18C4DC0C0C07398F

    assert uuid7(0x017F22E279B0, random_bits) == uuid.UUID("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")


@pytest.mark.parametrize(("time_ms", "random_bits"), [(-1, 0), (2**48, 0), (0, -1), (0, 2**74)])
def test_numbers_that_do_not_fit_a_uuid7_are_refused(time_ms: int, random_bits: int) -> None:
    with pytest.raises(ValueError, match="74 random bits"):
        uuid7(time_ms, random_bits)


def test_a_key_contains_its_hour_and_sorts_by_time() -> None:
    clock = ManualClock(1_700_000_000_000)
    source = KeySource(clock, random.Random(1).getrandbits)
    keys = []

    for _ in range(200):
        keys.append(source.next())
        clock.advance(60_000)

    assert keys == sorted(keys)
    assert keys[0].startswith("wal/2023111422/018bcfe5-6800-7")
    assert [created_ms(key) for key in keys] == [1_700_000_000_000 + 60_000 * index for index in range(200)]


def test_keys_of_one_millisecond_differ() -> None:
    source = KeySource(ManualClock(), random.Random(1).getrandbits)

    assert len({source.next() for _ in range(1000)}) == 1000


@given(st.integers(0, 253_402_300_799_999), st.integers(0, 2**74 - 1))
def test_keys_are_legal_and_contain_their_time(time_ms: int, random_bits: int) -> None:
    key = KeySource(ManualClock(time_ms), lambda bits: random_bits).next()

    check_key(key)
    check_prefix(hour_prefix(time_ms))
    assert created_ms(key) == time_ms
    assert uuid.UUID(key[-36:]).version == 7


@pytest.mark.parametrize(
    "key",
    [
        "",
        "wal/2023111422/",
        "wal/2023111423/018bcfe5-6800-7d8e-91b7-584a2265b1f5",
        "wal/2023111422/018bcfe5-6800-4d8e-91b7-584a2265b1f5",
        "wal/2023111422/018bcfe5-6800-7d8e-c1b7-584a2265b1f5",
        "wal/2023111422/018BCFE5-6800-7d8e-91b7-584a2265b1f5",
        "wal/2023111422/018bcfe5-6800-7d8e-91b7-584a2265b1f5x",
        "wal/9999999999/ffffffff-ffff-7fff-bfff-ffffffffffff",
        "tables/2023111422/018bcfe5-6800-7d8e-91b7-584a2265b1f5",
    ],
)
def test_other_keys_are_invalid(key: str) -> None:
    with pytest.raises(Invalid):
        created_ms(key)
