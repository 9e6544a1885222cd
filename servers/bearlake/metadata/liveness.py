"""Whether a server is live: a fact of the store (I13), decided by counters alone, without a clock of the store.

    registered ── heartbeat (count + 1) ──> live ── leave ──> left
                                            │  ^
        lapse(count), if the count is still │  │ heartbeat: revived; `lapse_count` tells the server
        the one that the observer watched   v  │ that others may have taken what it held
                                           lapsed

An observer uses its own monotonic clock to see that another server's heartbeat count does not change (`serving/watching.py`). It then
declares the lapse in the store: `lapse`, a compare-and-set on that count. A lapsed server keeps its leases and claims until another server
takes them. It may still write, fenced by epochs. Its next heartbeat revives it.

SQLite runs these functions; PostgreSQL has them in SQL (`functions/is_live.sql`, `beat_server.sql`, `lapse_server.sql`).
`tests/metadata` checks that both agree.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The store's state of the newest registration of a name."""

    epoch: int
    heartbeat_count: int = 0
    """Heartbeats of this epoch."""
    lapse_count: int = 0
    """How often an observer declared this epoch lapsed."""
    has_lapsed: bool = False
    has_left: bool = False


def is_newest(standing: Standing | None, epoch: int) -> bool:
    """Return whether this epoch may still write: no newer epoch was registered, and it has not left."""
    return standing is not None and standing.epoch == epoch and not standing.has_left


def is_live(standing: Standing | None, epoch: int) -> bool:
    """Return whether no other server may take the leases and claims of this epoch."""
    return standing is not None and is_newest(standing, epoch) and not standing.has_lapsed


def with_heartbeat(standing: Standing) -> Standing:
    """Return the state after a heartbeat of its newest epoch."""
    return replace(standing, heartbeat_count=standing.heartbeat_count + 1, has_lapsed=False)


def lapsed(standing: Standing | None, epoch: int, heartbeat_count: int) -> Standing | None:
    """Return the state after an observer saw no change of the count; None if the count has changed since, or the registration has ended.

    A repeat changes nothing and returns the same answer.
    """
    if standing is None or not is_newest(standing, epoch) or standing.heartbeat_count != heartbeat_count:
        return None
    if standing.has_lapsed:
        return standing
    return replace(standing, has_lapsed=True, lapse_count=standing.lapse_count + 1)


def may_take(holder: Standing | None, holder_epoch: int) -> bool:
    """Return whether another server may take a lease or claim that this epoch of `holder` has."""
    return not is_live(holder, holder_epoch)
