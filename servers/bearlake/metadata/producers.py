"""The rules for producers' sequences: what becomes of a batch by what its producer wrote before, as pure functions.

*Idempotent* producers follow Kafka's ProducerStateManager: KIP-98 (a sequence per record, 31 bits, no gaps), KAFKA-5793 (the last
five batches are remembered). Unlike in Kafka, an unknown producer starts at 0 (I9): a later sequence shows that a batch before it is
missing, and clients take its success for the success of the missing batch. Which refusal it gets depends on its id. Ids only grow, so
an id above the largest one whose state ever expired has lost no state: OUT_OF_ORDER. Any other may have: UNKNOWN_PRODUCER. So may an
id that was given out before its stream was created in place of a deleted one of that name: the former stream had its state.

When a state expires, the store forgets which batches it has, and a commit that hung for all that time could store one of them again. So
expiry writes an entry to the log and raises the *position floor* to it, in the same transaction. Each commit says which log position its
server knew of before the server received any of the batches. A batch at sequence 0 of a producer that may have expired is UNSURE if that
position is below the floor: it may be stored already. If not, the server received the batch after the expiry, so the batch is no copy that
hung since before it. No clock takes part. (The position of the forgotten producers' newest commits would be too low a floor: a copy
that a server receives after the batch was stored, and whose commit then hangs, has seen that position.)

*Named* producers (`BATCH_NAMED`) count appends: 64 bits that never wrap, one number per batch, whatever it holds.

| | any step (Pulsar's deduplication) | `BATCH_IN_STEP` (Durable Streams) |
|---|---|---|
| sequence <= the last one | duplicate | duplicate |
| last + 1 | accepted | accepted |
| more than that | accepted: sequences may skip | out of order |
| `after_sequence` > the last one | out of order: what was sent before is not stored | no such thing |
| unknown producer, registered | accepted, after nothing | accepted at 0, else out of order |
| … and may be stored | unsure, after nothing | unsure at 0, else out of order |
| unknown producer, not registered | unknown producer | unknown producer |
| older epoch than its own | fenced | fenced |
| newer epoch | as in the same: the sequence goes on | accepted at 0, else out of order; the former epoch is forgotten |
| epoch older than the partition's | fenced | the partition has no say |

A named producer begins by registration (`ProducerIds.named`), which gives a name a new id, and its state and its registration are
forgotten together. So an id that has neither never begins again: its client registers the name anew. The expiry of a named producer that
has written writes an entry to the log, too, and raises the *named floor* to it; a name remembers the floor as of its registration. A
request may have come before the expiry, and the name may be registered anew on behalf of it afterwards. So the first batch under the new
id is UNSURE if the position that its server had seen is below the floor that the name remembers.

Where sequences may skip, a batch that got lost would not be missed, and when it is sent again it would pass for a duplicate. So each
batch names the one that was sent before it.

In any step, the epoch is that of the partition (Pulsar's topic epoch: raised when a producer becomes its only one), so that one
`raise_epoch` fences all who came before, also those that have never written. It says nothing of sequences: who comes back in a newer
epoch sends what was not answered once more, and is told what was stored.
"""

from bearlake.metadata.model import OutcomeKind

SEQUENCE_MASK = 0x7FFF_FFFF
"""Sequences of idempotent producers wrap from 2**31 - 1 to 0 (KIP-98)."""

BATCHES_REMEMBERED = 5
"""KAFKA-5793: a producer has at most five requests in flight, so a duplicate is one of its last five batches."""

HEAD_FIELDS = 2
BATCH_FIELDS = 3
KEPT = HEAD_FIELDS + (BATCHES_REMEMBERED - 1) * BATCH_FIELDS

ASKED_STEP_MS = 3_600_000
"""How exactly it is kept when a name was asked for: a step shorter than any sensible `idle_ms` of `expire`, and few writes."""

Producer = tuple[int, ...]
"""epoch, time of the newest batch (ms), then one to five times (first sequence, last sequence, base offset), newest first.

Flat and immutable: one small object per producer and partition, replaced by each batch.
"""

ACCEPTED, DUPLICATE, OUT_OF_ORDER, FENCED, NOT_FOUND, UNEXPECTED_OFFSET, TERMINATED, UNKNOWN_PRODUCER, UNSURE = (
    OutcomeKind
)


def is_unsure(producer_id: int, expired_id: int, seen: int, floor: int) -> bool:
    """Whether a batch that is the producer's first, as far as the store knows, may be stored already.

    `expired_id` is the largest id whose state ever expired; `seen` is the log position that the commit's server knew of before it
    received the batch; `floor` is the position floor.
    """
    return producer_id <= expired_id and seen < floor


def judge(
    known: Producer | None,
    epoch: int,
    sequence: int,
    record_count: int,
    *,
    may_have_expired: bool,
    may_be_stored: bool = False,
) -> tuple[OutcomeKind, int]:
    """What becomes of an idempotent producer's batch, with the original base offset of a duplicate (else -1).

    `known` is the producer's state in the partition, if there is one. `may_have_expired`: the producer may have had a state that is gone.
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


def judge_named(
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
    """What becomes of a named producer's batch sent behind that of sequence `after`, with a duplicate's original base offset (else -1).

    The last two matter only if `known` is None. `is_registered`: the producer's id is that of a name. `may_be_stored`: the commit's server
    received the batch before it knew that a former producer of that name was forgotten.
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
    """An idempotent producer's state after an accepted batch; a new epoch forgets the batches of the former one."""
    newest = (epoch, now_ms, sequence, (sequence + record_count - 1) & SEQUENCE_MASK, base)
    return newest + known[HEAD_FIELDS:KEPT] if known is not None and known[0] == epoch else newest


def advanced_named(
    known: Producer | None, now_ms: int, epoch: int, sequence: int, base: int, *, is_in_step: bool
) -> Producer:
    """A named producer's state after an accepted batch; only one that goes in step forgets when its epoch changes."""
    newest = (epoch, now_ms, sequence, sequence, base)
    keeps = known is not None and (known[0] == epoch or not is_in_step)
    return newest + known[HEAD_FIELDS:KEPT] if known is not None and keeps else newest
