"""Token buckets and limits: how long clients wait, by hand-made clocks; nothing waits here."""

import pytest

from bearlake.errors import Throttled
from bearlake.metadata.quotas import DEFAULT, Entity, Quota, QuotaKey
from bearlake.streams.principal import INTERNAL, Principal, with_client_id
from bearlake.streams.quotas.buckets import Buckets, QuotaSettings
from bearlake.streams.quotas.limits import Limits
from bearlake.streams.quotas.usage import Usage

PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def buckets(clock: Clock) -> Buckets:
    return Buckets(QuotaSettings(burst_ms=2_000, throttle_ms_max=10_000, bucket_count_max=3), clock)


def who(name: str = "alice", client_id: str = "") -> Principal:
    return with_client_id(Principal("User", name), client_id)


def test_a_burst_is_free_and_more_must_be_waited_for(buckets: Buckets, clock: Clock) -> None:
    assert buckets.take("a", 100, 200) == 0
    assert buckets.take("a", 100, 50) == 0.5
    assert buckets.due_s("a", 100) == 0.5

    clock.now += 0.25
    assert buckets.due_s("a", 100) == 0.25
    clock.now += 0.25
    assert buckets.due_s("a", 100) == 0


def test_a_client_that_waits_as_requested_gets_exactly_its_rate(buckets: Buckets, clock: Clock) -> None:
    """Requests of all sizes, for 1000 seconds: the amount is the rate times the time, apart from the first burst and the last request."""
    taken, start = 0.0, clock.now
    for at in range(100_000):
        if clock.now - start >= 1000:
            break
        amount = (at * 37) % 500 + 1
        taken += amount
        clock.now += buckets.take("a", 100, amount)

    assert 100 * 1000 <= taken <= 100 * (clock.now - start) + 200 + 500


def test_an_idle_client_saves_no_more_than_its_burst(buckets: Buckets, clock: Clock) -> None:
    buckets.take("a", 100, 200)
    clock.now += 3600

    assert buckets.take("a", 100, 300) == 1.0


def test_nobody_waits_longer_than_the_limit(buckets: Buckets, clock: Clock) -> None:
    assert buckets.take("a", 100, 1e9) == 10.0
    clock.now += 10

    assert buckets.due_s("a", 100) == 0


def test_a_changed_rate_applies_at_once_to_the_debt(buckets: Buckets, clock: Clock) -> None:
    buckets.take("a", 100, 300)

    assert buckets.due_s("a", 100) == 1.0
    assert buckets.due_s("a", 50) == 2.0
    clock.now += 1
    assert buckets.due_s("a", 50) == 1.0


def test_nobody_waits_longer_after_the_quota_was_lowered(buckets: Buckets, clock: Clock) -> None:
    """A debt made at a high rate is reduced at a lower rate to `throttle_ms_max`."""
    buckets.take("a", 1e9, 1e12)

    assert buckets.due_s("a", 1e3) == 10.0
    clock.now += 10
    assert buckets.due_s("a", 1e3) == 0


def test_a_client_that_owes_is_remembered_longer_than_those_that_owe_nothing(buckets: Buckets, clock: Clock) -> None:
    """A client cannot make the server forget a debt by requests under many other names, or from many addresses."""
    buckets.take("a", 100, 700)
    for at in range(100):
        buckets.take(f"name-{at}", 100, 1)

    assert len(buckets) == 3
    assert buckets.due_s("a", 100) == 5.0
    clock.now += 5
    for at in range(3):
        buckets.take(f"name-{at}", 100, 1)
    buckets.take("a", 100, 201)
    assert buckets.due_s("a", 100) == 0.01  # of a full burst: the server has forgotten the client, which owes nothing


def test_the_least_recently_used_bucket_is_forgotten(buckets: Buckets) -> None:
    for name in ("a", "b", "c"):
        buckets.take(name, 1, 100)
    buckets.take("a", 1, 0)
    buckets.take("d", 1, 100)

    assert len(buckets) == 3
    assert buckets.due_s("b", 1) == 0
    assert min(buckets.due_s(name, 1) for name in ("a", "c", "d")) > 0


def usage(buckets: Buckets, *quotas: Quota, server_count: int = 1) -> Usage:
    return Usage(Limits(quotas), buckets, lambda: server_count)


@pytest.mark.parametrize(
    ("entities", "user", "client_id", "expected"),
    [
        ([Entity(user="alice"), Entity(user=DEFAULT)], "alice", "x", Entity(user="alice")),
        ([Entity(user="alice"), Entity(user=DEFAULT)], "bob", "x", Entity(user="bob")),
        ([Entity(user="alice"), Entity(user="alice", client_id=DEFAULT)], "alice", "x", Entity("alice", "x")),
        ([Entity(user=DEFAULT), Entity(user=DEFAULT, client_id="x")], "alice", "x", Entity("alice", "x")),
        ([Entity(user=DEFAULT), Entity(user=DEFAULT, client_id="x")], "alice", "y", Entity(user="alice")),
        ([Entity(client_id="x"), Entity(client_id=DEFAULT)], "alice", "y", Entity(client_id="y")),
        ([Entity(client_id="x"), Entity(user=DEFAULT)], "alice", "x", Entity(user="alice")),
        ([Entity(client_id="x")], "alice", "", None),
        ([Entity(client_id=DEFAULT)], "alice", "", Entity(client_id="")),
        ([Entity(user="<default>")], "alice", "", None),
    ],
)
def test_the_most_specific_quota_limits_a_client(
    entities: list[Entity], user: str, client_id: str, expected: Entity | None
) -> None:
    limit = Limits([Quota(entity, PRODUCE, 5.0) for entity in entities]).of_client(PRODUCE, user, client_id)

    assert (limit and limit.name) == (expected and (PRODUCE, expected))


def test_precedence_counts_for_each_key_alone(buckets: Buckets) -> None:
    """As in Kafka: a quota on alice's consumption leaves her production to the default."""
    limits = Limits([Quota(Entity(user="alice"), CONSUME, 5.0), Quota(Entity(user=DEFAULT), PRODUCE, 7.0)])
    found = limits.of_client(PRODUCE, "alice", "")

    assert found is not None
    assert found.value == 7.0


def test_a_users_clients_share_its_quota_and_users_of_a_default_do_not(buckets: Buckets) -> None:
    shared = usage(buckets, Quota(Entity(user="alice"), PRODUCE, 100.0), Quota(Entity(user=DEFAULT), PRODUCE, 100.0))
    shared.charge(who("alice", "x"), PRODUCE, 300)

    assert shared.due_s(who("alice", "y"), PRODUCE) == 1.0
    assert shared.due_s(who("bob", "x"), PRODUCE) == 0


def test_rates_are_divided_over_live_servers(buckets: Buckets, clock: Clock) -> None:
    counts = [4]
    divided = Usage(Limits([Quota(Entity(user="alice"), PRODUCE, 400.0)]), buckets, lambda: counts[0])
    assert divided.charge(who(), PRODUCE, 300) == 1.0

    counts[0] = 2
    assert divided.due_s(who(), PRODUCE) == 0.5
    counts[0] = 0
    assert divided.due_s(who(), PRODUCE) == 0.25
    counts[0] = 400
    assert divided.due_s(who(), PRODUCE) == 10.0


def test_time_is_a_percentage_of_each_server(buckets: Buckets) -> None:
    timed = usage(buckets, Quota(Entity(user="alice"), QuotaKey.REQUEST_PERCENTAGE, 10.0), server_count=4)
    assert timed.is_timed

    assert timed.charge_time(who(), 0.2) == 0
    assert timed.charge_time(who(), 0.1) == pytest.approx(1.0)
    assert not usage(buckets, Quota(Entity(user="alice"), PRODUCE, 1.0)).is_timed


def test_refused_work_is_not_charged(buckets: Buckets, clock: Clock) -> None:
    limited = usage(buckets, Quota(Entity(user="alice"), PRODUCE, 100.0))
    limited.require(who(), PRODUCE)
    limited.charge(who(), PRODUCE, 300)
    for _ in range(3):
        with pytest.raises(Throttled) as refused:
            limited.require(who(), PRODUCE, CONSUME)
        assert refused.value.wait_s == 1.0
    clock.now += 1
    limited.require(who(), PRODUCE, CONSUME)


def test_the_server_itself_has_no_quota(buckets: Buckets) -> None:
    limited = usage(buckets, Quota(Entity(user=DEFAULT), PRODUCE, 1.0))

    assert limited.charge(INTERNAL, PRODUCE, 1e9) == 0


def test_connections_are_limited_by_address(buckets: Buckets) -> None:
    key = QuotaKey.CONNECTION_CREATION_RATE
    limited = usage(buckets, Quota(Entity(address=DEFAULT), key, 1.0), Quota(Entity(address="10.0.0.9"), key, 1000.0))
    waits = [limited.connected("10.0.0.1") for _ in range(4)]

    assert waits == [0, 0, 1.0, 2.0]
    assert limited.connected("10.0.0.2") == 0
    assert limited.connected("10.0.0.9") == 0


def test_a_wait_always_fits_into_a_response() -> None:
    """Kafka's `throttle_time_ms` has 32 bits with a sign."""
    with pytest.raises(ValueError, match="throttle_ms_max"):
        QuotaSettings(throttle_ms_max=2**31)

    limit = Buckets(QuotaSettings(throttle_ms_max=86_400_000), Clock())
    assert limit.take("alice", 1e-6, 2**53) * 1000 < 2**31


def test_refunded_bytes_are_not_owed(buckets: Buckets, clock: Clock) -> None:
    """Also if more was taken than a client can owe: a refund does not lift an earlier debt."""
    buckets.take("alice", 10.0, 15)
    taken = buckets.reserve("alice", 10.0, 1e9)
    assert buckets.due_s("alice", 10.0) == 10.0
    buckets.give_back("alice", taken)

    assert buckets.due_s("alice", 10.0) == 0.0
    assert buckets.take("alice", 10.0, 10) == 0.5
    buckets.give_back("nobody", 1.0)
