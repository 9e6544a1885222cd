-- Configs that streams of a group have unless they say otherwise. See metadata/defaults.py.

CREATE TABLE defaults (
    name    TEXT    NOT NULL PRIMARY KEY,
    configs TEXT    NOT NULL, -- JSON object of strings
    version INTEGER NOT NULL
) STRICT;
