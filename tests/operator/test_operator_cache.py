"""The resource cache with late, repeated and missing updates; the debouncer."""

from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.debounce import DEBOUNCE_S, Debouncer
from bearlake_operator.kube import Listing


def resource(version, name="a", namespace="n", **more):
    return {"metadata": {"namespace": namespace, "name": name, "resourceVersion": str(version)}, **more}


def cache_with(*resources, kind="Stream"):
    cache, notified = ResourceCache(), []
    for resource in resources:
        cache.put(kind, resource)
    cache.on_change(lambda kind, resource: notified.append((kind, resource["metadata"]["name"])))
    return cache, notified


def test_a_newer_version_replaces_the_resource_and_notifies():
    cache, notified = cache_with(resource(1))

    assert cache.put("Stream", resource(2, spec="new"))

    assert cache.list("Stream") == [resource(2, spec="new")]
    assert notified == [("Stream", "a")]


def test_late_and_repeated_updates_are_ignored():
    cache, notified = cache_with(resource(5))

    assert not cache.put("Stream", resource(5))
    assert not cache.put("Stream", resource(4))
    assert not cache.remove("Stream", resource(4))

    assert (cache.list("Stream"), notified) == ([resource(5)], [])


def test_a_status_change_does_not_notify():
    cache, notified = cache_with(resource(1, status={"recordCount": 1}))

    assert cache.put("Stream", resource(2, status={"recordCount": 2}))

    assert (cache.list("Stream")[0]["status"], notified) == ({"recordCount": 2}, [])


def test_a_change_of_ready_replicas_notifies():
    cache, notified = cache_with(resource(1, status={"readyReplicas": 1}), kind="Deployment")

    cache.put("Deployment", resource(2, status={"readyReplicas": 1, "observedGeneration": 2}))
    assert notified == []
    cache.put("Deployment", resource(3, status={"readyReplicas": 2}))
    assert notified == [("Deployment", "a")]


def test_deletions_are_forgotten_when_no_update_can_be_as_old():
    cache, _ = cache_with(*(resource(number, f"s{number}") for number in range(1, 9)))
    for number in range(1, 9):
        cache.remove("Stream", resource(number, f"s{number}"))

    cache.replace("Stream", Listing([], 20), None)
    assert not cache.put("Stream", resource(8, "s8"))
    cache.replace("Stream", Listing([], 30), None)

    assert cache.put("Stream", resource(8, "s8"))


def test_a_late_update_does_not_restore_a_deleted_resource():
    cache, _ = cache_with(resource(5))
    cache.remove("Stream", resource(6))

    assert not cache.put("Stream", resource(5))
    assert cache.put("Stream", resource(7))


def test_a_list_adds_missing_and_removes_deleted_resources():
    cache, notified = cache_with(resource(1, "gone"), resource(2, "same"), resource(3, "old", spec=1))

    news = cache.replace(
        "Stream", Listing([resource(2, "same"), resource(9, "old", spec=2), resource(8, "new")], 9), None
    )

    assert news == 3
    assert sorted(resource["metadata"]["name"] for resource in cache.list("Stream")) == ["new", "old", "same"]
    assert sorted(notified) == [("Stream", "gone"), ("Stream", "new"), ("Stream", "old")]


def test_a_list_keeps_newer_resources_and_other_namespaces():
    cache, notified = cache_with(resource(12, "newer"), resource(1, "b", namespace="elsewhere"))

    assert cache.replace("Stream", Listing([], 10), "n") == 0
    assert (len(cache.list("Stream")), notified) == (2, [])


def test_a_changing_value_takes_effect_when_it_is_stable(monkeypatch):
    now = 100.0
    monkeypatch.setattr("bearlake_operator.controllers.debounce.time.monotonic", lambda: now)
    debouncer = Debouncer()

    assert debouncer.update("a", (1,)) == ((1,), 0)
    for count in range(2, 30):
        now += 1
        assert debouncer.update("a", (count,)) == ((1,), DEBOUNCE_S)
    now += DEBOUNCE_S - 1
    assert debouncer.update("a", (29,)) == ((1,), 1)
    now += 1
    assert debouncer.update("a", (29,)) == ((29,), 0)


def test_a_value_that_changes_back_has_not_changed(monkeypatch):
    now = 100.0
    monkeypatch.setattr("bearlake_operator.controllers.debounce.time.monotonic", lambda: now)
    debouncer = Debouncer()
    debouncer.update("a", 1)
    debouncer.update("a", 2)

    assert debouncer.update("a", 1) == (1, 0)
    now += DEBOUNCE_S
    assert debouncer.update("a", 2) == (1, DEBOUNCE_S)
    debouncer.retain(set())
    assert debouncer.update("a", 2) == (2, 0)
