-- Layout 18 has users. The tables of schema/users.sql.

CREATE TABLE user_state (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    revision  INTEGER NOT NULL, -- grows with every change
    decoy_key BLOB -- a secret, made when it is first needed
) STRICT;
INSERT INTO user_state VALUES (1, 0, NULL);

CREATE TABLE user_credentials (
    user       TEXT    NOT NULL,
    mechanism  TEXT    NOT NULL,
    iterations INTEGER NOT NULL,
    salt       BLOB    NOT NULL,
    stored_key BLOB    NOT NULL,
    server_key BLOB    NOT NULL,
    PRIMARY KEY (user, mechanism)
) STRICT, WITHOUT ROWID;
