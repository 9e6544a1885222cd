"""Faults of the synchronous standby: commits wait while it is away; then it returns, or is promoted."""

import signal

from typing_extensions import override

from faults.waiting import until
from nemesis.cluster import Cluster
from nemesis.process_faults import WAIT_S, Fault
from nemesis.stores import kill_tree, signal_all, tree_of

HELD_BACK = "select count(*) as held_back from pg_stat_activity where wait_event = 'SyncRep'"


class StandbyAway(Fault):
    """The standby crashes or is paused; at the end it continues, or the primary is killed and the standby is promoted as it is."""

    name = "standby-away"
    resources = frozenset({"postgresql"})
    seconds = (10.0, 120.0)

    @classmethod
    @override
    def is_possible(cls, cluster: Cluster) -> bool:
        return cluster.size.with_standby and bool(
            cluster.size.workers
        )  # the short run has too little time for this fault

    @override
    def begin(self) -> str:
        postgresql = self.cluster.postgresql
        until(postgresql.is_synchronous, WAIT_S, "the standby has everything")
        assert postgresql.standby is not None
        assert postgresql.standby.pid is not None
        self._has_crashed = self.random.random() < 0.5
        self._is_promoted = self.random.random() < 0.5
        if self._has_crashed:
            postgresql.standby.kill()
        else:
            signal_all(tree_of(postgresql.standby.pid), signal.SIGSTOP)
        return ("crashed" if self._has_crashed else "stands still") + (", is promoted" if self._is_promoted else "")

    @override
    def end(self) -> str | None:
        postgresql = self.cluster.postgresql
        held_back = postgresql.execute(HELD_BACK)[0]["held_back"]
        standby = postgresql.standby
        assert standby is not None
        if self._is_promoted:
            kill_tree(postgresql.primary)  # before the standby can fetch the commits that it lacks
        if self._has_crashed:
            standby.start()
        elif standby.pid is not None:
            signal_all(tree_of(standby.pid), signal.SIGCONT)
        if self._is_promoted:
            postgresql.fail_over()
            for link in self.cluster.network.matching(">postgresql"):
                self.cluster.network.set_target(link, postgresql.address)
        postgresql.ensure_running()
        return f"{held_back} commits were held back" if held_back else None


KINDS: tuple[type[Fault], ...] = (StandbyAway,)
