-- Cursors of durable subscriptions. See metadata/subscriptions.py and metadata/cursor_rules.py.

CREATE TABLE cursors (
    partition    INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    mark_delete  INTEGER NOT NULL,
    acknowledged BLOB    NOT NULL, -- packed ranges
    properties   TEXT    NOT NULL, -- JSON object of strings
    created_ms   INTEGER NOT NULL,
    revision     INTEGER NOT NULL,
    generation   INTEGER NOT NULL DEFAULT 0, -- the partition's count of deletions when the cursor was made
    PRIMARY KEY (partition, name)
) STRICT;
