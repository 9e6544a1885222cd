-- Consumer groups and their committed offsets.

CREATE TABLE group_snapshots (
    name          TEXT    PRIMARY KEY,
    protocol_type TEXT    NOT NULL,
    state         BLOB    NOT NULL
) STRICT;

CREATE TABLE group_offsets (
    name         TEXT    NOT NULL,
    partition    INTEGER NOT NULL,
    next_offset  INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL,
    metadata     TEXT    NOT NULL,
    committed_ms INTEGER NOT NULL,
    PRIMARY KEY (name, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_offsets_by_partition ON group_offsets (partition);
