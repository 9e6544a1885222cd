"""Partition counts of internal topics, counts of tasks, and what is wrong with topics (KIP-1071)."""

import pytest

from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.tasks.configuring import StatusCode, check, configure
from bearlake.streams.groups.tasks.topology import InternalTopic, Subtopology, Topology, pack, unpack
from fixtures.streams_groups import COMPACT, counting, counts


def of(*subtopologies):
    return Topology(epoch=0, subtopologies=subtopologies)


def join_of(left, right, **fields):
    return Subtopology(subtopology_id="j", copartitioned=((left, right),), **fields)


def configured(topology, **found):
    return configure(topology, counts(**found), 1_000)


def test_internal_topics_have_as_many_partitions_as_the_topics_they_come_from():
    found = configured(counting(), **{"in": 3})

    assert found.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert found.problem.detail == "Internal topics are missing: [app-counts-changelog, app-words-repartition]"
    assert found.task_counts == {"0": 3, "1": 3}
    assert [(topic.name, topic.partition_count, topic.configs) for topic in found.missing] == [
        ("app-counts-changelog", 3, COMPACT),
        ("app-words-repartition", 3, ()),
    ]


def test_a_topology_is_ready_when_its_internal_topics_exist():
    found = configured(counting(), **{"in": 3}, app_words_repartition=3, app_counts_changelog=3)

    assert (found.is_ready, found.missing) == (True, [])


def test_missing_sources_are_named():
    found = configured(of(Subtopology(subtopology_id="0", sources=("b", "a", "c"))), c=1)

    assert found.problem == (StatusCode.MISSING_SOURCE_TOPICS, "Source topics a, b are missing.")
    assert not found.task_counts


def test_an_internal_topic_with_another_count_is_wrongly_partitioned():
    found = configured(counting(), **{"in": 3}, app_words_repartition=3, app_counts_changelog=2)

    assert found.problem == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic app-counts-changelog has different number of partitions: expected 3, found 2",
    )


def test_copartitioned_sources_must_have_equal_counts():
    topology = of(join_of("a", "b", sources=("a", "b")))

    assert configured(topology, a=2, b=2).is_ready
    assert configured(topology, a=2, b=3).problem == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{a=2, b=3}]",
    )


def test_a_repartition_topic_gets_the_count_of_the_source_that_it_is_joined_with():
    topology = of(
        Subtopology(subtopology_id="0", sources=("a",), repartition_sinks=("r",)),
        join_of("b", "r", sources=("b",), repartition_sources=(InternalTopic("r"),)),
    )

    found = configured(topology, a=2, b=6)

    assert [(topic.name, topic.partition_count) for topic in found.missing] == [("r", 6)]


def test_a_repartition_topic_whose_count_the_topology_sets_must_fit():
    topology = of(
        Subtopology(subtopology_id="0", sources=("a",), repartition_sinks=("r",)),
        join_of("b", "r", sources=("b",), repartition_sources=(InternalTopic("r", 4),)),
    )

    assert configured(topology, a=2, b=6).problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert configured(topology, a=2, b=4).missing[0].partition_count == 4


def test_fixed_counts_of_topics_that_are_not_joined_may_differ():
    topology = of(
        Subtopology(subtopology_id="0", sources=("a",), repartition_sinks=("p", "q", "r")),
        join_of("p", "q", repartition_sources=(InternalTopic("p", 4), InternalTopic("q"))),
        Subtopology(subtopology_id="2", repartition_sources=(InternalTopic("r", 7),)),
    )

    found = configured(topology, a=2)

    assert {topic.name: topic.partition_count for topic in found.missing} == {"p": 4, "q": 4, "r": 7}


def test_counts_pass_through_several_repartition_topics():
    topology = of(
        Subtopology(subtopology_id="0", repartition_sources=(InternalTopic("q"),), changelogs=(InternalTopic("c"),)),
        Subtopology(subtopology_id="1", repartition_sources=(InternalTopic("p"),), repartition_sinks=("q",)),
        Subtopology(subtopology_id="2", sources=("a",), repartition_sinks=("p",)),
    )

    assert {topic.name: topic.partition_count for topic in configured(topology, a=5).missing} == dict.fromkeys("cpq", 5)


def test_a_source_that_serves_as_a_changelog_is_not_created():
    topology = of(Subtopology(subtopology_id="0", sources=("a",), changelogs=(InternalTopic("a"),)))

    assert configured(topology, a=2).is_ready


def test_more_tasks_than_the_limit_are_not_assigned():
    found = configure(of(Subtopology(subtopology_id="0", sources=("a",))), counts(a=11), 10)

    assert found.problem == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "The topology has 11 tasks, the limit is 10.",
    )


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        (of(Subtopology(subtopology_id="0", repartition_sources=(InternalTopic("r"),))), "never used as a sink topic"),
        (
            of(Subtopology(subtopology_id="0", repartition_sources=(InternalTopic("r"),), repartition_sinks=("r",))),
            "loops in the topology",
        ),
        (of(Subtopology(subtopology_id="0", changelogs=(InternalTopic("c"),))), "No source topics found"),
    ],
)
def test_a_topology_whose_counts_cannot_follow_is_invalid(topology, why):
    with pytest.raises(GroupRefusal, match=why) as caught:
        check(topology)

    assert caught.value.problem is Problem.INVALID_TOPOLOGY


def test_a_topology_survives_its_snapshot():
    topology = of(join_of("b", "r", sources=("b",), repartition_sources=(InternalTopic("r", 4, 2, COMPACT),)))

    assert unpack(pack(topology)) == topology
