"""Objects that are too large for etcd: reported on the resource, without an effect on others.

Source: kubernetes/kubernetes#112152 (the API server answers 500).
"""

import pytest

from bearlake_operator import kube
from bearlake_operator.controllers.concurrency import CONCURRENCY_MAX
from bearlake_operator.errors import OperatorError
from fixtures.small_operator import condition, resource, stream
from fixtures.stream_access import ALICE, rules

TOO_LARGE = "etcdserver: request is too large"


async def test_streams_that_are_too_large_for_a_status_do_not_affect_others(cluster, operator, monkeypatch):
    """Whoever may edit Streams of one namespace can create so many; each would be retried for `DEADLINE_S`."""
    monkeypatch.setattr(kube, "DEADLINE_S", 1.0)
    names = [f"large{number}" for number in range(CONCURRENCY_MAX + 1)]
    cluster.add(*(resource("Stream", name, "another", access=[ALICE]) for name in names), stream(access=[ALICE]))
    cluster.refusal = TOO_LARGE
    cluster.refuse |= {("PATCH", f"/streams/{name}{part}"): 500 for name in names for part in ("", "/status")}

    with pytest.raises(OperatorError, match=TOO_LARGE):
        await operator.streams()

    assert operator.lake.rules == {"orders": rules(ALICE)}
    assert condition(cluster, "Stream", "orders", "team", "AccessSynced")[0] == "True"
