"""The rules for producers' sequences: the decision on a batch by what its producer wrote before, as pure functions.

*Idempotent* producers follow Kafka's ProducerStateManager: KIP-98 (a sequence per record, 31 bits, no gaps), KAFKA-5793 (the last
five batches are remembered). Unlike in Kafka, an unknown producer starts at 0 (I9): a later sequence shows that an earlier batch is
missing, and clients would take its success for the success of the missing batch. The kind of refusal depends on the producer id. Ids
only grow, so an id above the largest one whose state ever expired has lost no state: OUT_OF_ORDER. Any other id may have lost its
state: UNKNOWN_PRODUCER. So may an id that was given out before its stream replaced a deleted stream of the same name: the deleted
stream had the id's state.

When a state expires, the store forgets which batches it has. A commit that hung for all that time could then store a batch twice. So
expiry writes an entry to the log and raises the *position floor* to it, in the same transaction. Each commit names a log position that
its server knew before it received any of the batches. A batch at sequence 0 of a producer that may have expired is UNSURE if that
position is below the floor: it may be stored already. Otherwise the server received the batch after the expiry, so the batch is not a
copy that hung since before the expiry. No clock takes part. (The position of the expired producers' newest commits would be too low a
floor: a server may receive a copy after the batch was stored, so it has seen that position, and the commit of the copy then hangs.)

*Named* producers (`BATCH_NAMED`) count appends: 64 bits that never wrap, one number per batch, whatever it holds.

| | any step (Pulsar's deduplication) | `BATCH_IN_STEP` (Durable Streams) |
|---|---|---|
| sequence <= the last one | duplicate | duplicate |
| last + 1 | accepted | accepted |
| more than that | accepted: sequences may skip | out of order |
| `after_sequence` > the last one | out of order: an earlier batch is not stored | not applicable |
| unknown producer, registered | accepted, after nothing | accepted at 0, else out of order |
| … and may be stored | unsure, after nothing | unsure at 0, else out of order |
| unknown producer, not registered | unknown producer | unknown producer |
| older epoch than its own | fenced | fenced |
| newer epoch | as in the same epoch: the sequence continues | accepted at 0, else out of order; the previous epoch is forgotten |
| epoch older than the partition's | fenced | not checked |

A named producer begins by registration (`ProducerIds.named`), which gives a name a new id. The store forgets the producer's state and its
registration together. So an id that has neither never begins again: its client registers the name anew. The expiry of a named producer
that has written also writes a log entry and raises the *named floor* to it; a name remembers the floor as of its registration. A
request may arrive before the expiry, and the name may be registered anew for that request after the expiry. So the first batch under
the new id is UNSURE if the position that its server had seen is below the floor that the name remembers.

If sequences may skip, a lost batch would go unnoticed, and a retry of the lost batch would look like a duplicate. So each batch names the
batch that was sent before it.

The *producer clock* tells how long a producer was idle (decision 116). It counts minutes in the store. A server advances it from n to n + 1
once it has seen the clock stand at n for a minute of its own monotonic clock, and only if the clock still stands at n (`advance_clock`). So
each step took at least a minute, whatever wall clocks do, however late a request arrives, and however many servers count. A batch stamps
its producer with the clock's minute, and a request for a name stamps the name. While no server runs, the clock stands still.

For producers that may skip, the epoch is the partition's (Pulsar's topic epoch, raised when a producer becomes exclusive). So one
`raise_epoch` fences all earlier producers, including those that have never written. The epoch does not affect sequences: a producer that
returns in a newer epoch resends its unanswered batches, and learns which were stored.
"""

from bearlake.metadata.model import OutcomeKind

SEQUENCE_MASK = 0x7FFF_FFFF
"""Sequences of idempotent producers wrap from 2**31 - 1 to 0 (KIP-98)."""

BATCHES_REMEMBERED = 5
"""KAFKA-5793: a producer has at most five requests in flight, so a duplicate is one of its last five batches."""

HEAD_FIELDS = 2
BATCH_FIELDS = 3
OLDER_BATCHES_END = HEAD_FIELDS + (BATCHES_REMEMBERED - 1) * BATCH_FIELDS

MINUTE_MS = 60_000
"""A step of the producer clock, in ms."""

Producer = tuple[int, ...]
"""epoch, time of the newest batch (ms), then one to five triples (first sequence, last sequence, base offset), newest first.

Flat and immutable: one small object per producer and partition, replaced by each batch.
"""

(
    ACCEPTED,
    DUPLICATE,
    OUT_OF_ORDER,
    FENCED,
    NOT_FOUND,
    UNEXPECTED_OFFSET,
    TERMINATED,
    UNKNOWN_PRODUCER,
    UNSURE,
    NO_TRANSACTION,
) = OutcomeKind


def is_unsure(producer_id: int, expired_id: int, seen: int, floor: int) -> bool:
    """Return whether a batch that looks like the producer's first one may already be stored.

    `expired_id` is the largest id whose state ever expired; `seen` is the log position that the commit's server knew before it received
    the batch; `floor` is the position floor.
    """
    return producer_id <= expired_id and seen < floor


def newest_idle_minute(minute: int, idle_ms: int) -> int:
    """Return the newest stamp of a producer that has been idle for `idle_ms` (from 0) when the producer clock stands at `minute`.

    A stamp s was made before the clock came to s + 1, and each later step took at least a minute.
    """
    return minute - 1 - -(-idle_ms // MINUTE_MS)


def decide_idempotent(
    known: Producer | None,
    epoch: int,
    sequence: int,
    record_count: int,
    *,
    may_have_expired: bool,
    may_be_stored: bool = False,
) -> tuple[OutcomeKind, int]:
    """Decide an idempotent producer's batch; returns the outcome and a duplicate's original base offset (else -1).

    `known` is the producer's state in the partition, if any. `may_have_expired`: the producer may have had a state that expired.
    `may_be_stored`: see `is_unsure`.
    Source: org.apache.kafka.storage.internals.log.ProducerAppendInfo and ProducerStateEntry (rules; see the module's docstring).
    """
    if known is None:
        if sequence == 0:
            return (UNSURE if may_be_stored else ACCEPTED), -1
        return (UNKNOWN_PRODUCER if may_have_expired else OUT_OF_ORDER), -1
    if epoch < known[0]:
        return FENCED, -1
    if epoch > known[0]:
        return (OUT_OF_ORDER if sequence != 0 else ACCEPTED), -1
    last = (sequence + record_count - 1) & SEQUENCE_MASK
    for at in range(HEAD_FIELDS, len(known), BATCH_FIELDS):
        if known[at] == sequence and known[at + 1] == last:
            return DUPLICATE, known[at + 2]
    return (ACCEPTED if sequence == (known[HEAD_FIELDS + 1] + 1) & SEQUENCE_MASK else OUT_OF_ORDER), -1


def decide_named(
    known: Producer | None,
    partition_epoch: int,
    epoch: int,
    sequence: int,
    after: int = -1,
    *,
    is_in_step: bool,
    is_registered: bool = True,
    may_be_stored: bool = False,
) -> tuple[OutcomeKind, int]:
    """Decide a named producer's batch sent after that of sequence `after`; returns the outcome and a duplicate's base offset (else -1).

    The last two arguments matter only if `known` is None. `is_registered`: the producer's id belongs to a name. `may_be_stored`: the
    commit's server received the batch before it knew that a previous producer of that name was forgotten.
    Source: Apache Pulsar, MessageDeduplication and AbstractTopic (topic epoch); Durable Streams protocol, "Idempotent producers".
    """
    if epoch < (0 if is_in_step else partition_epoch):
        return FENCED, -1
    if known is None:
        if not is_registered:
            return UNKNOWN_PRODUCER, -1
        if sequence != 0 if is_in_step else after >= 0:
            return OUT_OF_ORDER, -1
        return (UNSURE if may_be_stored else ACCEPTED), -1
    if epoch < known[0]:
        return FENCED, -1
    if is_in_step and epoch > known[0]:
        return (OUT_OF_ORDER if sequence != 0 else ACCEPTED), -1
    last = known[HEAD_FIELDS + 1]
    if sequence > last:
        return (OUT_OF_ORDER if (sequence != last + 1 if is_in_step else after > last) else ACCEPTED), -1
    bases = (known[at + 2] for at in range(HEAD_FIELDS, len(known), BATCH_FIELDS) if known[at] == sequence)
    return DUPLICATE, next(bases, -1)


def advanced(known: Producer | None, now_ms: int, epoch: int, sequence: int, record_count: int, base: int) -> Producer:
    """Return an idempotent producer's state after an accepted batch; a new epoch drops the batches of the previous one."""
    newest = (epoch, now_ms, sequence, (sequence + record_count - 1) & SEQUENCE_MASK, base)
    return newest + known[HEAD_FIELDS:OLDER_BATCHES_END] if known is not None and known[0] == epoch else newest


def advanced_named(
    known: Producer | None, now_ms: int, epoch: int, sequence: int, base: int, *, is_in_step: bool
) -> Producer:
    """Return a named producer's state after an accepted batch; only an in-step producer drops its batches when its epoch changes."""
    newest = (epoch, now_ms, sequence, sequence, base)
    keeps = known is not None and (known[0] == epoch or not is_in_step)
    return newest + known[HEAD_FIELDS:OLDER_BATCHES_END] if known is not None and keeps else newest
