"""Faults of the synchronous standby: commits are held back while it is away; then it comes back, or takes the primary's place."""

import signal

from faults.waiting import until
from nemesis.process_faults import WAIT_S, Fault
from nemesis.stores import kill_tree, signal_all, tree_of
from nemesis.world import World

HELD_BACK = "select count(*) as held_back from pg_stat_activity where wait_event = 'SyncRep'"


class StandbyAway(Fault):
    """The standby has crashed, or stands still; in the end it goes on, or the primary dies and the standby is promoted as it is."""

    name = "standby-away"
    resources = frozenset({"postgresql"})
    seconds = (10.0, 120.0)

    @classmethod
    def is_possible(cls, world: World) -> bool:
        return world.size.with_standby and bool(world.size.workers)  # the short run has no time for it

    def begin(self) -> str:
        postgresql = self.world.postgresql
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

    def end(self) -> str | None:
        postgresql = self.world.postgresql
        held_back = postgresql.execute(HELD_BACK)[0]["held_back"]
        standby = postgresql.standby
        assert standby is not None
        if self._is_promoted:
            kill_tree(postgresql.primary)  # before the standby can fetch what it has missed
        if self._has_crashed:
            standby.start()
        elif standby.pid is not None:
            signal_all(tree_of(standby.pid), signal.SIGCONT)
        if self._is_promoted:
            postgresql.fail_over()
            for link in self.world.network.matching(">postgresql"):
                self.world.network.set_target(link, postgresql.address)
        postgresql.ensure_running()
        return f"{held_back} commits were held back" if held_back else None


KINDS: tuple[type[Fault], ...] = (StandbyAway,)
