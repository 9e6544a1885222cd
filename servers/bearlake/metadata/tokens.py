"""Commit tokens and their floor: how a store may forget a token without deciding it twice (I8).

A token is decided once: committed, refused (nothing of it was accepted) or forbidden. The store remembers each decision for a limited
time. So the store has a *floor*, a token that only grows: before a transaction removes a decision, it raises the floor to that decision's
token. A commit whose token is not above the floor and has no remembered decision is `Forgotten`: the store does not decide it, because
it cannot tell whether the token was decided before. So no commit can come too late.

Tokens are keys of WAL objects and sort by time: `wal/<yyyymmddhh>/<uuid>`, by the clock of the server that sealed the object. The store
forgets a decision only when the hour of its token is also older than the store's memory. Therefore:

- the floor never passes a token that was made less than the store's memory ago, by the store's clock;
- the floor is always the token of a real object. If the store's clock jumps into the future and back, the floor stays below the tokens
  that servers make;
- decisions on tokens from the future (a server's clock was ahead) are kept until the store's clock has passed them.

Other keys that can be forbidden (data files, kept objects) are not commit tokens; swaps have their own rules for them.
"""

from datetime import UTC, datetime, timedelta

from bearlake.errors import Fenced

PREFIX = "wal/"
_HOUR_FORMAT = "%Y%m%d%H"


class Forgotten(Fenced):
    """The token is not above the floor. Stop, as when fenced; it is unknown whether the batches are stored."""


def surely_not_stored(refusal: Fenced) -> bool:
    """Return whether nothing of a refused commit is or will be stored, given that every earlier attempt with its token was refused too."""
    return not isinstance(refusal, Forgotten)


def hour_prefix(time_ms: int, prefix: str = PREFIX) -> str:
    """Return the prefix of all tokens of the hour (UTC) that contains `time_ms` (Unix milliseconds)."""
    hour = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    return f"{prefix}{hour.strftime(_HOUR_FORMAT)}/"


def raised(floor: str, forgotten: list[str]) -> str:
    """Return the floor that a store must set before it forgets its decisions on these keys."""
    return max([floor, *(key for key in forgotten if key.startswith(PREFIX))])


def below_floor(token: str, floor: str) -> str | None:
    """Return why a token without a remembered decision is refused; None if it is above the floor and may be decided."""
    if token > floor:
        return None
    return (
        f"the object {token} is older than the oldest commit that the metadata store remembers ({floor}):"
        " the clock of this server is behind the store's clock, or the server was paused for too long"
    )
