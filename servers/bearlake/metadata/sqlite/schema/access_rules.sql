-- Access rules: metadata/access_rules.py. All changes are decided on the revision.

CREATE TABLE access_state (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL -- grows with every change
) STRICT;
INSERT INTO access_state VALUES (1, 0);

CREATE TABLE access_rules (
    resource   TEXT NOT NULL,
    name       TEXT NOT NULL,
    pattern    TEXT NOT NULL,
    principal  TEXT NOT NULL,
    host       TEXT NOT NULL,
    operation  TEXT NOT NULL,
    permission TEXT NOT NULL,
    PRIMARY KEY (resource, name, pattern, principal, host, operation, permission)
) STRICT, WITHOUT ROWID;
