"""What is known of the cluster: late, double and missing news; choices that change."""

from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.debounce import DEBOUNCE_S, Debouncer
from bearlake_operator.kube import Listing


def resource(version, name="a", namespace="n", **more):
    return {"metadata": {"namespace": namespace, "name": name, "resourceVersion": str(version)}, **more}


def cache_with(*resources, kind="Stream"):
    cache, told = ResourceCache(), []
    for one in resources:
        cache.put(kind, one)
    cache.on_change(lambda kind, one: told.append((kind, one["metadata"]["name"])))
    return cache, told


def test_newer_versions_replace_and_are_told():
    cache, told = cache_with(resource(1))

    assert cache.put("Stream", resource(2, spec="new"))

    assert cache.list("Stream") == [resource(2, spec="new")]
    assert told == [("Stream", "a")]


def test_late_and_repeated_news_are_no_news():
    cache, told = cache_with(resource(5))

    assert not cache.put("Stream", resource(5))
    assert not cache.put("Stream", resource(4))
    assert not cache.remove("Stream", resource(4))

    assert (cache.list("Stream"), told) == ([resource(5)], [])


def test_a_status_wakes_nobody_so_that_a_worker_does_not_wake_itself():
    cache, told = cache_with(resource(1, status={"recordCount": 1}))

    assert cache.put("Stream", resource(2, status={"recordCount": 2}))

    assert (cache.list("Stream")[0]["status"], told) == ({"recordCount": 2}, [])


def test_pods_that_become_ready_wake_the_workers():
    cache, told = cache_with(resource(1, status={"readyReplicas": 1}), kind="Deployment")

    cache.put("Deployment", resource(2, status={"readyReplicas": 1, "observedGeneration": 2}))
    assert told == []
    cache.put("Deployment", resource(3, status={"readyReplicas": 2}))
    assert told == [("Deployment", "a")]


def test_what_has_gone_is_forgotten_when_no_news_can_be_as_old():
    cache, _ = cache_with(*(resource(number, f"s{number}") for number in range(1, 9)))
    for number in range(1, 9):
        cache.remove("Stream", resource(number, f"s{number}"))

    cache.replace("Stream", Listing([], 20), None)
    assert not cache.put("Stream", resource(8, "s8"))
    cache.replace("Stream", Listing([], 30), None)

    assert cache._deleted == {"Stream": {}}


def test_what_has_gone_does_not_come_back_by_late_news():
    cache, _ = cache_with(resource(5))
    cache.remove("Stream", resource(6))

    assert not cache.put("Stream", resource(5))
    assert cache.put("Stream", resource(7))


def test_a_list_brings_what_is_missing_and_takes_what_has_gone():
    cache, told = cache_with(resource(1, "gone"), resource(2, "same"), resource(3, "old", spec=1))

    news = cache.replace(
        "Stream", Listing([resource(2, "same"), resource(9, "old", spec=2), resource(8, "new")], 9), None
    )

    assert news == 3
    assert sorted(one["metadata"]["name"] for one in cache.list("Stream")) == ["new", "old", "same"]
    assert sorted(told) == [("Stream", "gone"), ("Stream", "new"), ("Stream", "old")]


def test_a_list_says_nothing_of_what_is_newer_or_elsewhere():
    cache, told = cache_with(resource(12, "newer"), resource(1, "b", namespace="elsewhere"))

    assert cache.replace("Stream", Listing([], 10), "n") == 0
    assert (len(cache.list("Stream")), told) == (2, [])


def test_a_choice_that_keeps_changing_is_taken_when_it_stays(monkeypatch):
    now = 100.0
    monkeypatch.setattr("bearlake_operator.controllers.debounce.time.monotonic", lambda: now)
    choices = Debouncer()

    assert choices.update("a", (1,)) == ((1,), 0)
    for count in range(2, 30):
        now += 1
        assert choices.update("a", (count,)) == ((1,), DEBOUNCE_S)
    now += DEBOUNCE_S - 1
    assert choices.update("a", (29,)) == ((1,), 1)
    now += 1
    assert choices.update("a", (29,)) == ((29,), 0)


def test_a_choice_that_changes_back_has_not_changed(monkeypatch):
    now = 100.0
    monkeypatch.setattr("bearlake_operator.controllers.debounce.time.monotonic", lambda: now)
    choices = Debouncer()
    choices.update("a", 1)
    choices.update("a", 2)

    assert choices.update("a", 1) == (1, 0)
    now += DEBOUNCE_S
    assert choices.update("a", 2) == (1, DEBOUNCE_S)
    choices.retain(set())
    assert choices.update("a", 2) == (2, 0)
