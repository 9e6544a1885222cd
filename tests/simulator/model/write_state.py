"""The write path's state: the knowledge of a client, two servers, the object store and the metadata store, and their messages.

A sent commit stays in flight: it may arrive at any time, any number of times, or never; so may each reply. A server that dies or is
abandoned never does its next step. Steps that cannot interleave with other steps in a relevant way are one step:

- a server takes a request, makes the token, stores the object and sends the commit (a commit that arrives later covers everything that
  could happen in between; a late put leaves an orphan, which a sweep deletes);
- the metadata store executes a commit, and its reply arrives or is lost (a late reply is a late answer of the server);
- the sweep forbids a token and the delete is executed (a later delete does no further harm: keys are never reused).

Tokens are ordered by time. The model has two time spans, old and recent; the token floor is below both or between them.
"""

from typing import Final, NamedTuple

from bearlake.metadata.producers import Producer

# The stage of an attempt.
REQUESTED: Final = 0  # the client's request is in flight
COMMITTING: Final = 1  # the commit was sent, and its answer has not arrived
ANSWERED: Final = 2  # the server has answered; the reply is in flight
ENDED: Final = 3  # the client has the reply, or has stopped waiting

# The metadata store's row of a token.
NO_ROW, COMMITTED, REFUSED, FORBIDDEN = range(4)

# Answers of the store to a commit, and of a server to its client.
NO_ANSWER: Final = 0
STORED: Final = 1  # accepted, or a duplicate: with an offset
OUT_OF_ORDER: Final = 2
UNKNOWN_PRODUCER: Final = 3
PRODUCER_FENCED: Final = 4
UNEXPECTED_OFFSET: Final = 5
SERVER_FENCED: Final = 6  # no batch of this token is stored, now or later
UNSURE: Final = 7  # the token, or the position that its server had seen, is below a floor: outcome unknown
UNAVAILABLE: Final = 8  # the object was not stored, and its commit was never sent
ANSWERS: Final = (
    "no answer", "stored", "out of order", "unknown producer", "producer fenced", "unexpected offset", "server fenced", "unsure",
    "not stored",
)  # fmt: skip
NOTHING_STORED: Final = frozenset(
    {OUT_OF_ORDER, UNKNOWN_PRODUCER, PRODUCER_FENCED, UNEXPECTED_OFFSET, SERVER_FENCED, UNAVAILABLE}
)
"""Answers that tell a client that this attempt is not in the log and never will be."""

# What a client knows of a batch.
UNSENT, SENT, RETRY, DELIVERED, FAILED = range(5)

SERVERS: Final = ("A", "B")

OLD: Final = 0  # a batch that was in the log at the start, from no modelled attempt


class Attempt(NamedTuple):
    """One request for one batch, the WAL object that a server makes from it, and the object's commit. Its token is its number."""

    batch: int
    epoch: int
    sequence: int
    server: int
    is_first: bool
    """The sequence of its batch in its producer epoch."""
    is_awaited: bool = True
    """Whether the client still waits for the reply."""
    stage: int = REQUESTED
    is_recent: bool = False
    """Whether the token was made in the recent time span, by its server's clock."""
    seen: int = 0
    """The log position that its server had seen when the request arrived."""
    is_sent: bool = False
    """Whether the commit was sent."""
    is_there: bool = False
    """Whether the object's bytes exist."""
    row: int = NO_ROW
    result: int = NO_ANSWER
    """The state of the token's row."""
    offset: int = 0
    """If the row has a result: the base offset of STORED."""
    answer: int = NO_ANSWER
    """The server's answer, which the client has or may receive."""


class State(NamedTuple):
    """The whole state. `log` names the attempt (counted from 1; OLD: none) at each offset; entries are never removed."""

    attempts: tuple[Attempt, ...]
    servers: tuple[bool, ...]
    """Whether a newer process has registered under the server's name."""
    log: tuple[int, ...]
    start: int
    producer: Producer
    """The store's state of the client's producer; empty: unknown."""
    may_have_expired: bool
    """Whether the state of this producer id, or of a younger producer id, has ever expired."""
    floor: int
    """The token floor. 0: below all tokens; 1: above the old tokens."""
    position: int
    """The position of the log's newest entry; each commit and each expiry has an entry."""
    position_floor: int
    epoch: int
    """The client's producer epoch."""
    first: int
    """The batch that has sequence 0 in this epoch."""
    batches: tuple[int, ...]
    is_bumping: bool
    """Whether the client waits for batches in flight and then takes its next epoch."""
    is_over: bool
    """Whether the client has failed with an error that its application must handle."""
    is_blind: bool
    """Whether the client took a new epoch although an attempt of the previous epoch might still be stored, at its own risk."""

    def with_attempt(self, at: int, attempt: Attempt) -> "State":
        """Return the state with this attempt replaced."""
        return self._replace(attempts=(*self.attempts[:at], attempt, *self.attempts[at + 1 :]))
