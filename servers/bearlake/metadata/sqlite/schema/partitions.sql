-- Partitions: offsets and epochs.

CREATE TABLE partitions (
    partition      INTEGER PRIMARY KEY,
    start          INTEGER NOT NULL,
    end            INTEGER NOT NULL,
    size           INTEGER NOT NULL, -- bytes ever committed
    size_before    INTEGER NOT NULL, -- of these, below the slice that holds start
    size_rolled    INTEGER NOT NULL, -- of these, rolled up
    compacted      INTEGER NOT NULL DEFAULT 0, -- offsets below lie in data files
    size_compacted INTEGER NOT NULL DEFAULT 0 -- bytes ever committed below it
) STRICT;
CREATE INDEX partitions_uncompacted ON partitions (partition) WHERE compacted < end AND start < end;

-- Named batches of an older epoch are fenced. Each raise has a number, store.raised_count.
CREATE TABLE partition_epochs (
    partition    INTEGER PRIMARY KEY,
    epoch        INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    is_exclusive INTEGER NOT NULL DEFAULT 1 -- the newest epoch was given to an exclusive producer, and to no shared one since
) STRICT;
CREATE UNIQUE INDEX partition_epochs_by_number ON partition_epochs (number);

-- How often cursors of a partition were deleted; the creation of a cursor names it.
CREATE TABLE cursor_deletions (
    partition      INTEGER PRIMARY KEY,
    deletion_count INTEGER NOT NULL
) STRICT;
