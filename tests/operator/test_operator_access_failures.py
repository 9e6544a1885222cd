"""Access rules of Streams while some requests fail, and while a former leader continues with an outdated cache."""

import pytest

from bearlake_operator.errors import Invalid, OperatorError, Unavailable
from fixtures.small_operator import GOING, stream
from fixtures.stream_access import ALICE, BOB, edit, failing, listed, rules


@pytest.mark.parametrize(
    "error", [Invalid("there would be 10001 access rules; the limit is 10000"), Unavailable("timeout")]
)
async def test_the_former_rules_stay_while_the_new_ones_cannot_be_created(cluster, operator, error):
    """Without any rule, the stream may be open to everybody."""
    cluster.add(stream(access=[ALICE]))
    await operator.streams()

    def fail(verb, *request):
        if verb == "create":
            raise error

    operator.lake.on_rules = fail
    edit(cluster, access=[BOB])
    await failing(operator)
    assert operator.lake.rules["orders"] == rules(ALICE)

    operator.lake.on_rules = lambda *request: None
    await operator.streams()
    assert operator.lake.rules["orders"] == rules(BOB)
    assert listed(cluster) == rules(BOB)


async def test_a_refused_deletion_does_not_affect_other_streams(cluster, operator):
    cluster.add(stream(access=[ALICE]), stream("other", access=[BOB]))
    await operator.streams()

    operator.lake.refused_rules = {"orders"}
    edit(cluster)
    edit(cluster, "other")
    await failing(operator)

    assert operator.lake.rules == {"orders": rules(ALICE), "other": set()}
    assert listed(cluster) == rules(ALICE)
    assert listed(cluster, "other") == set()


# A former leader was paused, such as a process on a frozen machine, and continues before it notices.


async def test_a_former_leader_does_not_create_rules_that_left_the_spec(cluster, operator):
    cluster.add(stream(access=[ALICE]))
    await operator.streams()
    former = operator._streams  # noqa: SLF001 - with its own cache
    operator.start()
    edit(cluster)
    await operator.streams()

    with pytest.raises(OperatorError):
        await former.reconcile()

    assert operator.lake.rules["orders"] == set()


async def test_a_former_leader_does_not_create_rules_of_a_stream_that_is_gone(cluster, operator):
    cluster.add(stream(access=[ALICE]))
    await operator.streams()
    former = operator._streams  # noqa: SLF001 - with its own cache
    operator.start()
    cluster.change("Stream", "orders", "team", metadata=GOING)
    await operator.streams()
    assert cluster.get("Stream", "orders", "team") is None

    with pytest.raises(OperatorError):
        await former.reconcile()

    assert operator.lake.rules["orders"] == set()


async def test_a_former_leader_does_not_delete_rules_that_were_made_by_hand_since(cluster, operator):
    cluster.add(stream(access=[ALICE]))
    await operator.streams()
    edit(cluster)
    await operator.resync.list_all()
    former = operator._streams  # noqa: SLF001 - with its own cache
    operator.start()
    await operator.streams()
    operator.lake.by_hand("orders", *rules(ALICE))

    with pytest.raises(OperatorError):
        await former.reconcile()

    assert operator.lake.rules["orders"] == rules(ALICE)
