-- The log and its checkpoint by page.

-- The truth. kind: model.EntryKind; the slices of a swap are its ranges (partition, start, end), packed.
CREATE TABLE log (
    position      INTEGER PRIMARY KEY,
    kind          INTEGER NOT NULL,
    created_ms    INTEGER NOT NULL,
    token         TEXT    UNIQUE,
    object_size   INTEGER,
    slices        BLOB,
    sequences     BLOB,
    outcomes      BLOB,
    partition     INTEGER,
    start_offset  INTEGER,
    size_before   INTEGER,
    stream_number INTEGER,
    transactions  BLOB -- transactions.TransactionChange, packed
) STRICT;

-- Slices of one partition, rolled up from the log; during a round also slices of entries after store.rolled_position, oldest first.
CREATE TABLE index_pages (
    id            INTEGER PRIMARY KEY,
    partition     INTEGER NOT NULL,
    base_offset   INTEGER NOT NULL,
    end_offset    INTEGER NOT NULL,
    max_timestamp INTEGER NOT NULL,
    slice_count   INTEGER NOT NULL,
    size_before   INTEGER NOT NULL, -- bytes of the partition below this page
    slices        BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX index_pages_by_offset ON index_pages (partition, base_offset);

-- Pages to drop: those of partitions [first, last] whose end is <= end_offset; NULL: the stream is deleted, drop all.
CREATE TABLE sweeps (
    id              INTEGER PRIMARY KEY,
    first_partition INTEGER NOT NULL,
    last_partition  INTEGER NOT NULL,
    end_offset      INTEGER
) STRICT;
