"""What is known of the cluster: late, double and missing news; choices that change."""

from bearlake_operator.handlers.settling import SETTLE_S, Settling
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import Listing


def resource(version, name="a", namespace="n", **more):
    return {"metadata": {"namespace": namespace, "name": name, "resourceVersion": str(version)}, **more}


def world_with(*resources, kind="Stream"):
    world, told = World(), []
    for one in resources:
        world.put(kind, one)
    world.on_change(lambda kind, one: told.append((kind, one["metadata"]["name"])))
    return world, told


def test_newer_versions_replace_and_are_told():
    world, told = world_with(resource(1))

    assert world.put("Stream", resource(2, spec="new"))

    assert world.of("Stream") == [resource(2, spec="new")]
    assert told == [("Stream", "a")]


def test_late_and_repeated_news_are_no_news():
    world, told = world_with(resource(5))

    assert not world.put("Stream", resource(5))
    assert not world.put("Stream", resource(4))
    assert not world.remove("Stream", resource(4))

    assert (world.of("Stream"), told) == ([resource(5)], [])


def test_a_status_wakes_nobody_so_that_a_worker_does_not_wake_itself():
    world, told = world_with(resource(1, status={"recordCount": 1}))

    assert world.put("Stream", resource(2, status={"recordCount": 2}))

    assert (world.of("Stream")[0]["status"], told) == ({"recordCount": 2}, [])


def test_pods_that_become_ready_wake_the_workers():
    world, told = world_with(resource(1, status={"readyReplicas": 1}), kind="Deployment")

    world.put("Deployment", resource(2, status={"readyReplicas": 1, "observedGeneration": 2}))
    assert told == []
    world.put("Deployment", resource(3, status={"readyReplicas": 2}))
    assert told == [("Deployment", "a")]


def test_what_has_gone_is_forgotten_when_no_news_can_be_as_old():
    world, _ = world_with(*(resource(number, f"s{number}") for number in range(1, 9)))
    for number in range(1, 9):
        world.remove("Stream", resource(number, f"s{number}"))

    world.listed("Stream", Listing([], 20), None)
    assert not world.put("Stream", resource(8, "s8"))
    world.listed("Stream", Listing([], 30), None)

    assert world._gone == {"Stream": {}}


def test_what_has_gone_does_not_come_back_by_late_news():
    world, _ = world_with(resource(5))
    world.remove("Stream", resource(6))

    assert not world.put("Stream", resource(5))
    assert world.put("Stream", resource(7))


def test_a_list_brings_what_is_missing_and_takes_what_has_gone():
    world, told = world_with(resource(1, "gone"), resource(2, "same"), resource(3, "old", spec=1))

    news = world.listed(
        "Stream", Listing([resource(2, "same"), resource(9, "old", spec=2), resource(8, "new")], 9), None
    )

    assert news == 3
    assert sorted(one["metadata"]["name"] for one in world.of("Stream")) == ["new", "old", "same"]
    assert sorted(told) == [("Stream", "gone"), ("Stream", "new"), ("Stream", "old")]


def test_a_list_says_nothing_of_what_is_newer_or_elsewhere():
    world, told = world_with(resource(12, "newer"), resource(1, "b", namespace="elsewhere"))

    assert world.listed("Stream", Listing([], 10), "n") == 0
    assert (len(world.of("Stream")), told) == (2, [])


def test_a_choice_that_keeps_changing_is_taken_when_it_stays(monkeypatch):
    now = 100.0
    monkeypatch.setattr("bearlake_operator.handlers.settling.time.monotonic", lambda: now)
    choices = Settling()

    assert choices.take("a", (1,)) == ((1,), 0)
    for count in range(2, 30):
        now += 1
        assert choices.take("a", (count,)) == ((1,), SETTLE_S)
    now += SETTLE_S - 1
    assert choices.take("a", (29,)) == ((1,), 1)
    now += 1
    assert choices.take("a", (29,)) == ((29,), 0)


def test_a_choice_that_changes_back_has_not_changed(monkeypatch):
    now = 100.0
    monkeypatch.setattr("bearlake_operator.handlers.settling.time.monotonic", lambda: now)
    choices = Settling()
    choices.take("a", 1)
    choices.take("a", 2)

    assert choices.take("a", 1) == (1, 0)
    now += SETTLE_S
    assert choices.take("a", 2) == (1, SETTLE_S)
    choices.keep(set())
    assert choices.take("a", 2) == (2, 0)
