"""Places of Pulsar entries: in batches, in Pulsar's notation, and in patterns and addresses that a user gives."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake import kernel
from bearlake.errors import Corrupt, Denied, Invalid
from bearlake.importing.pulsar.cluster import Ledgers, PulsarCluster
from bearlake.importing.pulsar.login import PulsarLogin
from bearlake.importing.pulsar.positions import FIRST, Place, marked, parse, place_of, ranges
from bearlake.importing.pulsar_settings import PulsarSourceSettings
from fixtures.kafka_server import batch_of

BATCH = bytes(batch_of(b"a", b"b"))


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**46 - 1))
def test_a_batch_keeps_its_place_and_is_valid(ledger: int, entry: int) -> None:
    batch = marked(BATCH, Place(ledger, entry))

    assert place_of(memoryview(batch)) == Place(ledger, entry)
    assert kernel.crc32c(batch, 21) == int.from_bytes(batch[17:21], "big")
    assert batch[61:] == BATCH[61:]


@pytest.mark.parametrize("place", [FIRST, Place(2**63, 0), Place(0, 2**46), Place(3, -1)])
def test_a_place_without_room_is_refused(place: Place) -> None:
    with pytest.raises(Invalid, match="impossible id"):
        marked(BATCH, place)


def test_a_batch_of_somebody_else_has_no_place() -> None:
    assert place_of(memoryview(BATCH)) is None


def test_positions_are_read_as_pulsar_writes_them() -> None:
    assert parse("12:-1") == Place(12, -1)
    assert ranges("[]") == []
    assert ranges("[(3:-1..3:2],(3:4..5:0]]") == [(Place(3, -1), Place(3, 2)), (Place(3, 4), Place(5, 0))]


@given(st.text())
def test_any_text_is_a_position_or_corrupt(text: str) -> None:
    for read in (parse, ranges):
        with contextlib.suppress(Corrupt):
            read(text)


def test_entries_behind_a_place_are_counted_over_ledgers() -> None:
    ledgers = Ledgers(entries={3: 5, 7: 2}, last=Place(7, 1), cursors={})

    assert [ledgers.count_behind(place) for place in (FIRST, Place(3, 1), Place(3, 4), Place(5, 0), Place(7, 1))] == [
        7, 5, 2, 2, 0,
    ]  # fmt: skip
    assert ledgers.grown(Place(7, 4)).count_behind(Place(7, 1)) == 3


@pytest.mark.parametrize("url", ["http://a:1", "pulsar://", "pulsar://u@a:1", "a:6650", "pulsar://a:1/x"])
def test_an_address_that_is_none_of_pulsar_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="no address of Pulsar"):
        PulsarCluster(url, "http://a:1", PulsarSourceSettings())


@pytest.mark.parametrize("pattern", ["persistent://public/default/(", "non-persistent://a/b/c", "persistent://a/b"])
async def test_a_pattern_that_names_no_topics_is_refused(pattern: str) -> None:
    cluster = PulsarCluster("pulsar://127.0.0.1:1", "http://127.0.0.1:1", PulsarSourceSettings())

    with pytest.raises(Invalid):
        await cluster.topics([pattern])


def test_a_token_is_not_sent_where_others_can_read_it(tmp_path: object) -> None:
    settings = PulsarSourceSettings(token_file=f"{tmp_path}/token")
    with open(settings.token_file, "w", encoding="ascii") as file:
        file.write("secret\n")
    login = PulsarLogin(settings, is_tls=False)

    with pytest.raises(Denied, match="readable"):
        login.token("pulsar.example.com")
    with pytest.raises(Denied, match="readable"):
        login.header("pulsar.example.com", is_readable=True)
    assert login.token("127.0.0.1") == "secret"
    assert PulsarLogin(settings, is_tls=True).token("pulsar.example.com") == "secret"
