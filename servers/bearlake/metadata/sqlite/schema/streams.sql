-- Streams, the defaults of their configs, and their commits to the table.

CREATE TABLE streams (
    number          INTEGER PRIMARY KEY AUTOINCREMENT,
    id              BLOB    NOT NULL UNIQUE,
    name            TEXT    NOT NULL,
    partition_count INTEGER NOT NULL,
    configs         TEXT    NOT NULL, -- JSON object of strings
    created_ms      INTEGER NOT NULL,
    is_deleted      INTEGER NOT NULL,
    version         INTEGER NOT NULL, -- log position of the newest change
    is_terminated   INTEGER NOT NULL DEFAULT 0, -- takes no more batches
    former_producer_id INTEGER NOT NULL DEFAULT -1 -- largest producer id before the stream replaced a deleted one; -1: it replaced none
) STRICT;
CREATE UNIQUE INDEX streams_by_name ON streams (name) WHERE is_deleted = 0;
CREATE INDEX streams_by_name_and_number ON streams (name, number);

-- Configs that the streams of a group have unless they set them. See metadata/defaults.py.
CREATE TABLE defaults (
    name    TEXT    NOT NULL PRIMARY KEY,
    configs TEXT    NOT NULL, -- JSON object of strings
    version INTEGER NOT NULL
) STRICT;

-- How often a stream was compacted or merged, and when last: written by every swap that ends a task.
CREATE TABLE stream_commits (
    stream_number INTEGER PRIMARY KEY,
    commit_count  INTEGER NOT NULL,
    committed_ms  INTEGER NOT NULL
) STRICT;
