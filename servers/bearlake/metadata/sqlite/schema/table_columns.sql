-- The typed columns of streams' tables. See metadata/table_columns.py.

CREATE TABLE table_columns (
    stream_number INTEGER PRIMARY KEY,
    content       TEXT    NOT NULL, -- JSON
    version       INTEGER NOT NULL
) STRICT;
