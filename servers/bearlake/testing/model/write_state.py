"""The write path's state: what a client, two servers, the object store and the metadata store know, and the messages between them.

A commit that was sent stays on its way for ever: it may arrive at any time, any number of times, or never; so may each reply. A server that
dies, or is given up, is one that never does its next step. Steps that nobody could come between are one step:

- a server takes a request, makes the token, stores the object and sends the commit (a commit that arrives later shows all that could
  happen in between; a put that lands late leaves an orphan, which a sweep deletes);
- the metadata store executes a commit, and its reply arrives or is lost (a late reply is a late answer of the server);
- the sweep forbids a token and the delete is executed (a later delete harms no more: keys are never used again).

Tokens are ordered by time. The model knows two spans of time, old and recent; the token floor is below both, or between them.
"""

from typing import Final, NamedTuple

from bearlake.metadata.producers import Producer

# Stage of an attempt at its server.
REQUESTED: Final = 0  # the client's request is on its way
COMMITTING: Final = 1  # the commit was sent, and its answer has not arrived
ANSWERED: Final = 2  # the server has answered; the reply is on its way
HEARD: Final = 3  # the client has the reply, or waits no longer

# The metadata store's row of a token.
NO_ROW, COMMITTED, REFUSED, FORBIDDEN = range(4)

# Answers to a commit, and of a server to its client.
NO_ANSWER: Final = 0
STORED: Final = 1  # accepted, or a duplicate: with an offset
OUT_OF_ORDER: Final = 2
UNKNOWN_PRODUCER: Final = 3
PRODUCER_FENCED: Final = 4
UNEXPECTED_OFFSET: Final = 5
SERVER_FENCED: Final = 6  # nothing of this token is stored, ever
UNSURE: Final = 7  # the token, or what its server had seen, is below a floor: nobody knows whether the batch is stored
UNAVAILABLE: Final = 8  # the object was not stored, and its commit was never sent
ANSWERS: Final = (
    "no answer", "stored", "out of order", "unknown producer", "producer fenced", "unexpected offset", "server fenced", "unsure",
    "not stored",
)  # fmt: skip
NOTHING_STORED: Final = frozenset(
    {OUT_OF_ORDER, UNKNOWN_PRODUCER, PRODUCER_FENCED, UNEXPECTED_OFFSET, SERVER_FENCED, UNAVAILABLE}
)
"""Answers from which a client may conclude that this attempt is not in the log and will never be."""

# What a client knows of a batch.
UNSENT, SENT, RETRY, DELIVERED, FAILED = range(5)

SERVERS: Final = ("A", "B")

OLD: Final = 0  # of a batch that was in the log before everything began: no attempt of ours


class Attempt(NamedTuple):
    """One request for one batch, the WAL object that a server makes of it, and that object's commit. Its token is its number."""

    batch: int
    epoch: int
    sequence: int
    server: int
    is_first: bool
    """Of its batch in its producer epoch."""
    is_awaited: bool = True
    """Whether the client still waits for the reply."""
    stage: int = REQUESTED
    is_recent: bool = False
    """Whether the token was made in the recent span of time, by its server's clock."""
    seen: int = 0
    """The log position that its server had seen when the request arrived."""
    is_sent: bool = False
    """Whether the commit was sent."""
    is_there: bool = False
    """Whether the object's bytes exist."""
    row: int = NO_ROW
    result: int = NO_ANSWER
    """What the row remembers."""
    offset: int = 0
    """With a result: the first offset that STORED names."""
    answer: int = NO_ANSWER
    """The server's, which the client has or may get."""


class State(NamedTuple):
    """Everything. `log` names the attempt (counted from 1; OLD: none of ours) behind each offset; nothing is ever taken out of it."""

    attempts: tuple[Attempt, ...]
    servers: tuple[bool, ...]
    """Whether a newer process has registered under the server's name."""
    log: tuple[int, ...]
    start: int
    producer: Producer
    """The store's state of the client's producer; empty: unknown."""
    may_have_expired: bool
    """Whether the state of this producer id, or of a younger one, ever expired."""
    floor: int
    """Of tokens. 0: below all tokens; 1: old tokens are below it."""
    position: int
    """Of the log's newest entry: commits and expiries have one each."""
    position_floor: int
    epoch: int
    """The client's producer epoch."""
    first: int
    """The batch that has sequence 0 in this epoch."""
    batches: tuple[int, ...]
    is_bumping: bool
    """The client waits for what is in flight, then takes its next epoch."""
    is_over: bool
    """The client has given up with an error that its application must handle."""
    is_blind: bool
    """The client took a new epoch although an attempt of the former one might still be stored: its own risk."""

    def with_attempt(self, at: int, attempt: Attempt) -> "State":
        """The same with that attempt in its place."""
        return self._replace(attempts=(*self.attempts[:at], attempt, *self.attempts[at + 1 :]))
