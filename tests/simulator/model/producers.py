"""What producing clients conclude from answers: librdkafka 2.x, Java's producer, a plain producer, and one that expects offsets.

- librdkafka infers from a success that all earlier batches in flight succeeded. OUT_OF_ORDER for the oldest batch is fatal; for a later
  batch, librdkafka takes a new epoch once nothing is in flight. It does the same for UNKNOWN_PRODUCER if all earlier batches are accounted
  for and the batch is not a retry; otherwise that is fatal (`rdkafka_request.c`, `rd_kafka_handle_idempotent_Produce_error`).
- Java applies each answer only to its own batch. UNKNOWN_PRODUCER, and OUT_OF_ORDER for the oldest batch, cause a new epoch at once
  (`TransactionManager.canRetry`, KIP-360).
- Both retry a batch with the same sequence after a retriable error or a timeout.
"""

from enum import IntEnum

from simulator.model.write_state import (
    DELIVERED,
    FAILED,
    NOTHING_STORED,
    OUT_OF_ORDER,
    PRODUCER_FENCED,
    RETRY,
    SENT,
    STORED,
    UNKNOWN_PRODUCER,
    UNSENT,
    Attempt,
    State,
)


class Client(IntEnum):
    """Kinds of producing clients."""

    LIBRDKAFKA = 0
    JAVA = 1
    PLAIN = 2
    CONDITIONAL = 3
    """Names an expected offset for each batch and sends the batch once, without retries."""


IDEMPOTENT = (Client.LIBRDKAFKA, Client.JAVA)


def to_send(client: Client, state: State) -> tuple[int, ...]:
    """Return the batches that may be sent next."""
    if state.is_over or state.is_bumping:
        return ()
    if client is Client.CONDITIONAL:
        return tuple(at for at, status in enumerate(state.batches) if status == UNSENT)
    return next(((at,) for at, status in enumerate(state.batches) if status in (UNSENT, RETRY)), ())


def timed_out(client: Client, state: State, batch: int) -> State:
    """Return the state after no answer came in time."""
    state = state._replace(batches=_with(state.batches, batch, FAILED if client is Client.CONDITIONAL else RETRY))
    return _bumped_if_drained(state)


def received(client: Client, state: State, attempt: Attempt, *, waits_for_account: bool) -> State:
    """Return the state after the client received the answer to an attempt; in `state`, the attempt is no longer awaited."""
    answer, batch, batches = attempt.answer, attempt.batch, state.batches
    if answer == STORED:
        first = batch
        if client is Client.LIBRDKAFKA and attempt.epoch == state.epoch:
            first = state.first
        batches = tuple(
            DELIVERED if first <= at <= batch and status != FAILED else status for at, status in enumerate(batches)
        )
        return _bumped_if_drained(state._replace(batches=batches))
    if client is Client.CONDITIONAL:
        return state._replace(batches=_with(batches, batch, FAILED))
    if batches[batch] == DELIVERED:
        return _bumped_if_drained(state)
    state = state._replace(batches=_with(batches, batch, RETRY))
    if client is Client.PLAIN or attempt.epoch < state.epoch:
        return _bumped_if_drained(state)
    if answer == PRODUCER_FENCED:
        return over(state)
    is_head = batch == head(state)
    if answer == OUT_OF_ORDER and is_head:
        return over(state) if client is Client.LIBRDKAFKA else bumped(state)
    if answer == OUT_OF_ORDER and client is Client.LIBRDKAFKA:
        is_bumping = not waits_for_account or is_accounted(state, batch)
        return _bumped_if_drained(state._replace(is_bumping=state.is_bumping or is_bumping))
    if answer == UNKNOWN_PRODUCER:
        if client is Client.JAVA:
            return bumped(state)
        if not attempt.is_first or (waits_for_account and not is_accounted(state, batch)):
            return over(state)
        return _bumped_if_drained(state._replace(is_bumping=True))
    return _bumped_if_drained(state)


def head(state: State) -> int:
    """Return the first batch that is not delivered."""
    return next((at for at, status in enumerate(state.batches) if status != DELIVERED), len(state.batches))


def over(state: State) -> State:
    """Return the state after a fatal error: all batches without an answer fail, and the client sends no more."""
    batches = tuple(status if status == DELIVERED else FAILED for status in state.batches)
    attempts = tuple(attempt._replace(is_awaited=False) for attempt in state.attempts)
    return state._replace(batches=batches, attempts=attempts, is_over=True, is_bumping=False)


def bumped(state: State) -> State:
    """Return the state after a new epoch: batches that are not delivered get sequences from 0."""
    first = head(state)
    is_blind = any(
        attempt.batch >= first and (attempt.is_awaited or attempt.answer not in NOTHING_STORED)
        for attempt in state.attempts
    )
    return state._replace(epoch=state.epoch + 1, first=first, is_bumping=False, is_blind=state.is_blind or is_blind)


def disturbed(client: Client, state: State) -> State:
    """Return the state after another partition makes the client want a new epoch."""
    return _bumped_if_drained(state._replace(is_bumping=True)) if client is Client.LIBRDKAFKA else bumped(state)


def _bumped_if_drained(state: State) -> State:
    if not state.is_bumping or SENT in state.batches:
        return state
    return bumped(state)


def is_accounted(state: State, batch: int) -> bool:
    """Return whether all batches before `batch` are delivered, or known not to be stored."""
    return all(
        state.batches[attempt.batch] == DELIVERED or (not attempt.is_awaited and attempt.answer in NOTHING_STORED)
        for attempt in state.attempts
        if attempt.batch < batch
    )


def _with(batches: tuple[int, ...], at: int, status: int) -> tuple[int, ...]:
    return (*batches[:at], status, *batches[at + 1 :]) if batches[at] != DELIVERED else batches
