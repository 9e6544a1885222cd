-- Cursors of durable subscriptions. See metadata/subscriptions.py.

CREATE TABLE cursors (
    partition    INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    mark_delete  INTEGER NOT NULL,
    acknowledged BLOB    NOT NULL, -- packed ranges
    properties   TEXT    NOT NULL, -- JSON object of strings
    created_ms   INTEGER NOT NULL,
    revision     INTEGER NOT NULL,
    PRIMARY KEY (partition, name)
) STRICT;
