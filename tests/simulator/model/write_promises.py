"""The promises to producers and readers, checked on a state of the write path as clients see it; no protocol rule is repeated here.

- Every readable offset lies in an object whose bytes exist.
- *Delivered* means: the batch is in the log; with idempotence exactly once, in the order of sending; without idempotence, at least once.
- An offset in a reply is the batch's offset.
- *Not stored* means: this attempt is not in the log and never will be.
- The batches of a plain producer that sent each batch once, over one connection, are in order.
- A batch with an expected offset is stored at that offset or not at all.
- A stock client does not fail with a fatal error unless the store has forgotten its state.
"""

from simulator.model.producers import IDEMPOTENT, Client
from simulator.model.write_state import (
    ANSWERED,
    DELIVERED,
    ENDED,
    NOTHING_STORED,
    OLD,
    STORED,
    UNAVAILABLE,
    State,
)


def broken(client: Client, state: State) -> str:
    """Return the promise that this state breaks; empty: none."""
    attempts, log = state.attempts, state.log
    for number in log[state.start :]:
        if number != OLD and not attempts[number - 1].is_there:
            return f"offset {log.index(number)} is readable, but its object does not exist"
    batches = [attempts[number - 1].batch for number in log if number != OLD]
    for batch, status in enumerate(state.batches):
        if status == DELIVERED and batch not in batches:
            return f"the client got the answer that batch {batch} is stored, but the log does not have the batch"
    for at, made in enumerate(attempts):
        if made.stage == ENDED and made.answer in NOTHING_STORED and at + 1 in log:
            kind = "put failed" if made.answer == UNAVAILABLE else "refused"
            return f"the client got the answer that attempt {at} is not stored ({kind}), but the log has it"
        if made.stage >= ANSWERED and made.answer == STORED and made.result == STORED:
            number = log[made.offset]
            if number == OLD or attempts[number - 1].batch != made.batch:
                return f"attempt {at} is acknowledged at offset {made.offset}, which holds another batch"
    if client in IDEMPOTENT:
        return _idempotent(client, state, batches)
    if client is Client.CONDITIONAL and any(
        number != OLD and attempts[number - 1].batch + 1 != offset for offset, number in enumerate(log)
    ):
        return "a batch is not at the offset that its producer expected"
    if client is Client.PLAIN and all(attempt.is_first and not attempt.server for attempt in attempts):
        known = [batch for batch in batches if state.batches[batch] == DELIVERED]
        if known != sorted(known):
            return "batches sent once each over one connection are not in the order of sending"
    return ""


def _idempotent(client: Client, state: State, batches: list[int]) -> str:
    if not (client is Client.JAVA and state.is_blind):
        if len(batches) > len(set(batches)):
            return "the log has a batch of an idempotent producer twice"
        if batches != sorted(batches):
            return "batches of an idempotent producer are not in the order of sending"
    if client is Client.LIBRDKAFKA and state.is_over and not state.may_have_expired:
        return "librdkafka stopped with a fatal error although its producer's state had not expired"
    return ""
