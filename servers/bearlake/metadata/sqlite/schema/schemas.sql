-- The schema registry. A subject named '' holds the config and mode of its context.

CREATE TABLE schema_contexts (
    context TEXT    PRIMARY KEY,
    last_id INTEGER NOT NULL -- the largest id given out
) STRICT, WITHOUT ROWID;

CREATE TABLE schemas (
    context     TEXT    NOT NULL,
    id          INTEGER NOT NULL,
    fingerprint BLOB    NOT NULL, -- of the whole content
    body        BLOB    NOT NULL, -- of type, text and references
    content     TEXT    NOT NULL, -- JSON
    PRIMARY KEY (context, id)
) STRICT;
CREATE INDEX schemas_by_body ON schemas (context, body, id);
CREATE INDEX schemas_by_fingerprint ON schemas (fingerprint);

CREATE TABLE schema_subjects (
    context  TEXT    NOT NULL,
    subject  TEXT    NOT NULL,
    revision INTEGER NOT NULL, -- grows with every change; the row is never deleted
    config   TEXT,
    mode     TEXT,
    PRIMARY KEY (context, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE schema_versions (
    context    TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    schema_id  INTEGER NOT NULL,
    is_deleted INTEGER NOT NULL,
    PRIMARY KEY (context, subject, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX schema_versions_by_schema ON schema_versions (context, schema_id);

CREATE TABLE schema_references (
    context          TEXT    NOT NULL,
    subject          TEXT    NOT NULL,
    version          INTEGER NOT NULL,
    referrer_context TEXT    NOT NULL,
    referrer_id      INTEGER NOT NULL,
    PRIMARY KEY (context, subject, version, referrer_context, referrer_id)
) STRICT, WITHOUT ROWID;
