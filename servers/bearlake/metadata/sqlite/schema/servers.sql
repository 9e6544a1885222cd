-- Servers and their leases. Liveness: metadata/liveness.py.

CREATE TABLE servers (
    node_id         INTEGER PRIMARY KEY,
    name            TEXT    NOT NULL UNIQUE,
    epoch           INTEGER NOT NULL,
    zone            TEXT,
    endpoints       TEXT    NOT NULL, -- JSON object of strings
    version         TEXT    NOT NULL,
    timeout_ms      INTEGER NOT NULL,
    is_draining     INTEGER NOT NULL,
    has_left        INTEGER NOT NULL,
    heartbeat_count INTEGER NOT NULL DEFAULT 0,
    lapse_count     INTEGER NOT NULL DEFAULT 0,
    has_lapsed      INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE leases (
    name         TEXT    PRIMARY KEY,
    epoch        INTEGER NOT NULL,
    node_id      INTEGER, -- NULL: released
    server_epoch INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_by_holder ON leases (node_id);
