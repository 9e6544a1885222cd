-- Transactions. Rules: metadata/transaction_rules.py; what each row means: metadata/transactions.py.

CREATE TABLE transactional_ids (
    name             TEXT    PRIMARY KEY,
    producer_id      INTEGER NOT NULL UNIQUE,
    epoch            INTEGER NOT NULL,
    state            INTEGER NOT NULL, -- transactions.TransactionState
    timeout_ms       INTEGER NOT NULL,
    last_producer_id INTEGER NOT NULL,
    last_epoch       INTEGER NOT NULL,
    started_ms       INTEGER NOT NULL, -- -1: no transaction is ongoing
    changed_ms       INTEGER NOT NULL,
    partitions       BLOB    NOT NULL, -- added partitions, packed with one field per row
    consumer_groups  TEXT    NOT NULL, -- JSON list
    version          INTEGER NOT NULL
) STRICT;
CREATE INDEX transactional_ids_ongoing ON transactional_ids (name) WHERE started_ms >= 0;

CREATE TABLE open_transactions (
    partition    INTEGER NOT NULL,
    producer_id  INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    PRIMARY KEY (partition, producer_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX open_transactions_by_producer ON open_transactions (producer_id);

CREATE TABLE aborted_transactions (
    partition     INTEGER NOT NULL,
    marker_offset INTEGER NOT NULL,
    producer_id   INTEGER NOT NULL,
    first_offset  INTEGER NOT NULL,
    PRIMARY KEY (partition, marker_offset)
) STRICT, WITHOUT ROWID;

-- Offsets of groups that become those of group_offsets when the producer's transaction commits.
CREATE TABLE pending_offsets (
    producer_id  INTEGER NOT NULL,
    name         TEXT    NOT NULL, -- of the group
    partition    INTEGER NOT NULL,
    next_offset  INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL,
    metadata     TEXT    NOT NULL,
    PRIMARY KEY (producer_id, name, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX pending_offsets_by_group ON pending_offsets (name, partition);
