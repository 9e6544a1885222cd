-- Layout 23 has the typed columns of tables. The table of schema/table_columns.sql.

CREATE TABLE table_columns (
    stream_number INTEGER PRIMARY KEY,
    content       TEXT    NOT NULL, -- JSON
    version       INTEGER NOT NULL
) STRICT;
