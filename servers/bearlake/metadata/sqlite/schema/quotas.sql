-- Quotas: metadata/quotas.py. All changes are decided on the revision.

CREATE TABLE quota_state (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL -- grows with every change
) STRICT;
INSERT INTO quota_state VALUES (1, 0);

CREATE TABLE quotas (
    user      TEXT NOT NULL, -- '': any · '*': the default · '=name'
    client_id TEXT NOT NULL, -- the same
    address   TEXT NOT NULL, -- the same
    key       TEXT NOT NULL,
    value     REAL NOT NULL,
    PRIMARY KEY (user, client_id, address, key)
) STRICT, WITHOUT ROWID;
