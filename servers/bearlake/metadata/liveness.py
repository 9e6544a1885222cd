"""Whether a server is live: a fact of the store (I13), decided by counters alone. No clock of the store takes part.

    registered ── heartbeat (count + 1) ──> live ── leave ──> left
                                            │  ^
        lapse(count), if the count is still │  │ heartbeat: revived; `lapse_count` tells the server
        the one that the observer watched   v  │ that others may have taken what it held
                                           lapsed

An observer watches another server's heartbeat count stand still on its own monotonic clock (`serving/watching.py`), and says so in the
store: `lapse`, a compare-and-set on that count. What a lapsed server holds is its own until somebody takes it; it may still write,
fenced by epochs. Its next heartbeat revives it.

SQLite runs these functions, PostgreSQL has them in SQL (`migrations/0019_liveness.sql`); `tests/metadata` holds the two together.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the store knows of the newest registration of a name."""

    epoch: int
    heartbeat_count: int = 0
    """Heartbeats of this epoch."""
    lapse_count: int = 0
    """How often an observer declared this epoch lapsed."""
    has_lapsed: bool = False
    has_left: bool = False


def is_newest(standing: Standing | None, epoch: int) -> bool:
    """Whether this epoch may still write: no newer one was registered, and it has not left."""
    return standing is not None and standing.epoch == epoch and not standing.has_left


def is_live(standing: Standing | None, epoch: int) -> bool:
    """Whether nobody may take what this epoch holds."""
    return standing is not None and is_newest(standing, epoch) and not standing.has_lapsed


def beaten(standing: Standing) -> Standing:
    """After a heartbeat of its newest epoch."""
    return replace(standing, heartbeat_count=standing.heartbeat_count + 1, has_lapsed=False)


def lapsed(standing: Standing | None, epoch: int, heartbeat_count: int) -> Standing | None:
    """After an observer has seen the count stand still; None when it has moved since, or the registration has ended.

    A repeat changes nothing, and is answered as the first time.
    """
    if standing is None or not is_newest(standing, epoch) or standing.heartbeat_count != heartbeat_count:
        return None
    if standing.has_lapsed:
        return standing
    return replace(standing, has_lapsed=True, lapse_count=standing.lapse_count + 1)


def may_take(holder: Standing | None, holder_epoch: int) -> bool:
    """Whether a lease or a claim that this epoch of `holder` has may go to another server."""
    return not is_live(holder, holder_epoch)
