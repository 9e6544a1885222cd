"""A Stream's access rules with a crash at every write of the operator, to either plane, and with the lost request arriving later.

What users were promised: a rule that they made stays; a Stream's rules go with it; and from its creation on, a stream has the rule that
both versions of the spec name.
"""

import contextlib
import itertools

import pytest

from bearlake_operator.api import AccessRule
from bearlake_operator.errors import Conflict, OperatorError
from fixtures.small_cluster import SmallCluster, served
from fixtures.small_operator import GOING, Operator, stream

RUNS_MAX = 10
NEVER, AFTER_THE_NEXT_RUN, AFTER_THE_NEXT_STAGE, AT_THE_END = range(4)

MINE = AccessRule("User:root", "*", "All", "Allow")
"""Made by hand before the Stream names it."""
SHARED = AccessRule("User:*", "10.0.0.1", "All", "Deny")
"""Named by both versions of the spec."""
OLD = AccessRule("User:alice", "*", "Read", "Allow")
NEW = AccessRule("User:bob", "*", "Write", "Allow")


def spec(*rules):
    return [
        {"principal": rule.principal, "host": rule.host, "operations": [rule.operation], "permission": rule.permission}
        for rule in rules
    ]


class Crash(BaseException):
    """The process is killed."""


class Story:
    """A Stream's life, in which the operator is killed at its write number `crash_at`: before the write is made, or after it."""

    def __init__(self, cluster, operator, crash_at, *, is_before, delivery):
        self.cluster, self.operator, self.lake = cluster, operator, operator.lake
        self.crash_at, self.is_before, self.delivery = crash_at, is_before, delivery
        self.write_count = 0
        self.late = None
        """The lost request, to be made when it arrives."""
        self.is_deleting = False
        self.broken = []
        for owner, name in ((operator.kube, "_send"), (self.lake, "change"), (self.lake, "delete")):
            setattr(owner, name, self.counted(getattr(owner, name)))
        for name in ("create_rules", "delete_rules"):
            setattr(self.lake, name, self.counted(getattr(self.lake, name)))

    def counted(self, request):
        async def send(*arguments):
            is_write = not (arguments[0] in ("GET", "POST") and request.__name__ == "_send")  # POST: Events
            self.write_count += is_write
            is_crash = is_write and self.write_count == self.crash_at
            if is_crash and self.is_before:
                self.late = lambda: request(*arguments)
                raise Crash
            answer = await request(*arguments)
            self.check()
            if is_crash:
                raise Crash
            return answer

        return send

    def check(self):
        """Note broken promises; the operator contains exceptions, so they are raised at the end."""
        if MINE not in self.lake.rules["orders"]:
            self.broken.append("a rule made by hand is gone")
        if "orders" in self.lake.kept and not self.is_deleting and SHARED not in self.lake.rules["orders"]:
            self.broken.append("the stream is without a rule that it has in every version")

    async def arrive(self, *when):
        """Deliver the lost request, if this is its time."""
        if self.late is not None and self.delivery in when:
            late, self.late = self.late, None
            with contextlib.suppress(OperatorError):
                await late()
            self.check()

    async def stage(self):
        """Run until nothing changes."""
        for _ in range(RUNS_MAX):
            before, is_done = self.write_count, True
            try:
                await self.operator.streams()
            except* Crash:
                is_done = False
                self.operator.start()
            except* OperatorError:
                is_done = False
            if is_done:
                await self.arrive(AFTER_THE_NEXT_RUN)
            if is_done and self.write_count == before:
                return
        pytest.fail("it does not settle")

    async def run(self):
        self.lake.by_hand("orders", MINE)
        self.cluster.add(stream(access=spec(MINE, SHARED, OLD)))
        await self.stage()
        assert self.lake.rules["orders"] == {MINE, SHARED, OLD}

        self.cluster.change("Stream", "orders", "team", spec={"access": spec(SHARED, NEW)}, metadata={"generation": 2})
        await self.stage()
        await self.arrive(AFTER_THE_NEXT_STAGE)
        await self.stage()
        assert self.lake.rules["orders"] == {MINE, SHARED, NEW}

        self.is_deleting = True
        self.cluster.change("Stream", "orders", "team", metadata=GOING)
        await self.stage()
        await self.arrive(AFTER_THE_NEXT_STAGE)
        assert self.cluster.get("Stream", "orders", "team") is None
        assert self.lake.rules["orders"] == {MINE}
        self.lake.by_hand("orders", SHARED, OLD, NEW)
        await self.arrive(AT_THE_END)
        assert self.lake.rules["orders"] == {MINE, SHARED, OLD, NEW}
        assert self.broken == []


@pytest.mark.parametrize(
    ("is_before", "delivery"),
    [
        (False, NEVER),
        (True, NEVER),
        (True, AFTER_THE_NEXT_RUN),
        (True, AFTER_THE_NEXT_STAGE),
        (True, AT_THE_END),
    ],
)
async def test_a_crash_at_any_write_neither_loses_rules_nor_takes_others(is_before, delivery):
    for crash_at in itertools.count(1):
        cluster = SmallCluster()
        async with served(cluster.handle) as cluster.url:
            operator = Operator(cluster)
            story = Story(cluster, operator, crash_at, is_before=is_before, delivery=delivery)
            await story.run()
            await operator.kube.close()
        if story.write_count < crash_at:
            break

    assert crash_at > 10, "the story has more writes than that"


async def test_a_late_removal_of_the_finalizer_does_not_remove_a_stream_that_still_has_rules(cluster, operator):
    cluster.add(stream(access=spec(OLD)))
    await operator.streams()
    former = cluster.get("Stream", "orders", "team")
    cluster.change("Stream", "orders", "team", spec={}, metadata={"generation": 2})
    await operator.streams()
    send, late = operator.kube._send, []  # noqa: SLF001 - the request that is lost

    async def lose(verb, path, query, body, content_type):
        if verb == "PATCH" and body["metadata"].get("finalizers") == []:
            late.append((verb, path, query, body, content_type))
            raise Conflict("lost")
        return await send(verb, path, query, body, content_type)

    operator.kube._send = lose  # noqa: SLF001
    with pytest.raises(OperatorError):
        await operator.streams()
    operator.kube._send = send  # noqa: SLF001
    cluster.change("Stream", "orders", "team", spec=former["spec"], metadata={"generation": 3})
    await operator.streams()

    status, _, _ = await send(*late[0])

    assert status == 409
    assert cluster.get("Stream", "orders", "team")["metadata"]["finalizers"]
