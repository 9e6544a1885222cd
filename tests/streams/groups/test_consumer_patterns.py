"""Topic patterns of members: RE2, bounded, for topics that the member may see, and compared again when something may have changed."""

import asyncio

import pytest

from bearlake.streams.groups.consumer import comparing, patterns
from bearlake.streams.groups.consumer.patterns import Patterns, compare
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.principal import INTERNAL
from fixtures.consumer_groups import Topics
from simulator.loop import virtual_time

SETTINGS = ConsumerGroupSettings()


class Scene:
    def __init__(self, **options):
        self.topics = Topics(a=1, ab=1, b=1)
        self.hidden = set()
        self.compared = 0
        self.patterns = Patterns(
            self.topics,
            lambda who, operation, name: name not in self.hidden,
            ConsumerGroupSettings(**options),
            self.run,
        )

    async def run(self, work, *arguments):
        self.compared += 1
        await asyncio.sleep(0)
        return work(*arguments)

    async def matches(self, pattern="a.*"):
        return set((await self.patterns.matches(pattern, INTERNAL)).names)


def test_a_pattern_matches_whole_names():
    assert compare("a", ["a", "ab", "ba"], SETTINGS) == ["a"]
    assert compare("a|b.*", ["a", "ab", "ba"], SETTINGS) == ["a", "ba"]


@pytest.mark.parametrize(
    "pattern",
    ["(", "(?=a)b", r"(a)\1", "a{1,9999}", "((((x{1,99}){1,99}){1,99}){1,99})", "x" * 1_025, "[[:none:]]"],
)
def test_a_pattern_that_re2_does_not_take_is_refused(pattern):
    with pytest.raises(GroupRefusal) as refused:
        compare(pattern, ["a"], SETTINGS)

    assert refused.value.problem is Problem.INVALID_PATTERN


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(.*a){20}b", "(x+x+)+y"])
def test_a_pattern_that_backtracking_engines_never_finish_is_answered(pattern):
    assert compare(pattern, ["a" * 249] * 1_000, SETTINGS) == []


def test_a_comparison_that_takes_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(comparing, "COMPARE_MS_MAX", -1)

    with pytest.raises(GroupRefusal, match="takes longer"):
        compare("a", ["a"], SETTINGS)


def test_a_comparison_ends_soon_after_its_time_whatever_one_name_takes(monkeypatch):
    spent, compared = [0.0], []

    class Slow:
        def fullmatch(self, name):
            compared.append(name)
            spent[0] += 0.1

    monkeypatch.setattr(comparing, "_compiled", lambda *_: Slow())
    monkeypatch.setattr(comparing.time, "thread_time", lambda: spent[0])

    with pytest.raises(GroupRefusal, match="takes longer"):
        compare("a", ["a"] * 1_000, SETTINGS)
    assert len(compared) <= 40


@virtual_time
async def test_members_with_the_same_pattern_share_a_comparison():
    scene = Scene()

    found = await asyncio.gather(scene.matches(), scene.matches(), scene.matches())
    await scene.matches()

    assert found == [{"a", "ab"}] * 3
    assert scene.compared == 1


@virtual_time
async def test_old_matches_are_forgotten_beyond_the_bound_of_names(monkeypatch):
    monkeypatch.setattr(patterns, "NAME_COUNT_MAX", 3)
    scene = Scene()

    for pattern in ("a.*", "b", "a.?", "a.*"):
        await scene.matches(pattern)

    assert scene.compared == 4


@virtual_time
async def test_topics_that_the_member_may_not_describe_are_left_out():
    scene = Scene()
    scene.hidden = {"ab"}

    assert await scene.matches() == {"a"}


@virtual_time
async def test_new_topics_are_found_at_most_once_per_interval():
    scene = Scene(pattern_interval_ms=1_000)
    await scene.matches()

    scene.topics.create("abc", 1)
    assert await scene.matches() == {"a", "ab"}
    await asyncio.sleep(1.001)

    assert await scene.matches() == {"a", "ab", "abc"}
    assert scene.compared == 2


@virtual_time
async def test_rights_that_changed_are_noticed_at_the_next_refresh():
    scene = Scene(pattern_refresh_ms=60_000)
    await scene.matches()

    scene.hidden = {"ab"}
    await asyncio.sleep(59)
    assert await scene.matches() == {"a", "ab"}
    await asyncio.sleep(2)

    assert await scene.matches() == {"a"}


@virtual_time
async def test_every_member_that_waits_gets_the_refusal():
    scene = Scene()

    found = await asyncio.gather(scene.matches("("), scene.matches("("), return_exceptions=True)

    assert [type(item) for item in found] == [GroupRefusal] * 2
