"""The assignors of consumer groups: every partition is assigned once, counts are balanced, and members keep what they have."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.metadata.model import PARTITION_BITS, PartitionKey, stream_number
from bearlake.streams.groups.consumer.assignors import BY_NAME, RANGE, UNIFORM, Subscriber
from bearlake.streams.groups.consumer.model import Topic


def topic(number, count):
    return Topic(number, count, number << PARTITION_BITS)


def members_of(**streams):
    return [Subscriber(name, name, frozenset(numbers)) for name, numbers in streams.items()]


def counts(assignment):
    return {member: len(keys) for member, keys in assignment.items()}


@st.composite
def groups(draw, alike=False):
    numbers = draw(st.lists(st.integers(1, 6), unique=True, max_size=4))
    topics = {number: topic(number, draw(st.integers(1, 9))) for number in numbers}
    streams = frozenset(numbers)
    chosen = st.just(streams) if alike else st.frozensets(st.sampled_from(numbers) if numbers else st.nothing())
    members = [Subscriber(f"m{place}", f"m{place}", draw(chosen)) for place in range(draw(st.integers(1, 7)))]
    keys = [PartitionKey(key) for number in numbers for key in topics[number].partitions()]
    owner = {key: draw(st.sampled_from([member.member_id for member in members] + ["gone"])) for key in keys}
    present = {
        member.member_id: frozenset(
            key
            for key in keys
            if owner[key] == member.member_id and stream_number(key) in member.streams and draw(st.booleans())
        )
        for member in members
    }
    return members, topics, present


def check(name, members, topics, present):
    found = BY_NAME[name](members, topics, present)

    given_keys = [key for keys in found.values() for key in keys]
    wanted = {
        key
        for number, item in topics.items()
        if any(number in member.streams for member in members)
        for key in item.partitions()
    }
    assert len(given_keys) == len(set(given_keys))
    assert set(given_keys) == wanted
    for member in members:
        assert {stream_number(key) for key in found[member.member_id]} <= member.streams
    return found


@settings(max_examples=150)
@given(groups())
def test_every_partition_is_assigned_to_one_subscriber(group):
    for name in (UNIFORM, RANGE):
        check(name, *group)


@settings(max_examples=150)
@given(groups(alike=True))
def test_uniform_balances_equal_subscriptions_and_moves_no_more_than_it_must(group):
    members, _topics, present = group
    found = check(UNIFORM, *group)

    sizes = [len(keys) for keys in found.values()]
    assert max(sizes) - min(sizes) <= 1
    quota = max(sizes)
    for member in members:
        kept = len(found[member.member_id] & present[member.member_id])
        assert kept >= min(len(present[member.member_id]), min(sizes))
        assert kept <= quota


@settings(max_examples=150)
@given(groups())
def test_uniform_moves_nothing_when_it_is_asked_again(group):
    members, topics, present = group
    found = BY_NAME[UNIFORM](members, topics, present)

    assert BY_NAME[UNIFORM](members, topics, found) == found


@settings(max_examples=150)
@given(groups())
def test_uniform_leaves_no_member_that_could_take_a_partition_of_one_with_two_more(group):
    members, topics, present = group
    found = BY_NAME[UNIFORM](members, topics, present)

    for rich in members:
        for key in found[rich.member_id]:
            for poor in members:
                if stream_number(key) in poor.streams:
                    assert len(found[rich.member_id]) - len(found[poor.member_id]) <= 1


def test_range_gives_members_the_same_indexes_of_topics_with_as_many_partitions():
    found = BY_NAME[RANGE](members_of(a={1, 2}, b={1, 2}), {1: topic(1, 3), 2: topic(2, 3)}, {})

    assert [key & 0xFF for key in sorted(found["a"])] == [0, 1, 0, 1]
    assert [key & 0xFF for key in sorted(found["b"])] == [2, 2]


def test_a_member_that_joins_takes_from_each_other_only_what_exceeds_the_new_quota():
    topics = {1: topic(1, 6)}
    two = BY_NAME[UNIFORM](members_of(a={1}, b={1}), topics, {})
    three = BY_NAME[UNIFORM](members_of(a={1}, b={1}, c={1}), topics, two)

    assert counts(three) == {"a": 2, "b": 2, "c": 2}
    assert three["a"] < two["a"]
    assert three["b"] < two["b"]


def test_topics_that_do_not_exist_are_left_out():
    for name in (UNIFORM, RANGE):
        assert counts(BY_NAME[name](members_of(a={1, 9}, b={9}), {1: topic(1, 2)}, {})) == {"a": 2, "b": 0}
