-- How often a stream was compacted or merged, and when last: one row per stream, written by every swap that ends a task.
CREATE TABLE stream_commits (
    stream_number INTEGER PRIMARY KEY,
    commit_count  INTEGER NOT NULL,
    committed_ms  INTEGER NOT NULL
) STRICT;
