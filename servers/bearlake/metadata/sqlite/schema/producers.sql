-- Producers: sequence numbers, names. Rules: metadata/producers.py.

CREATE TABLE partition_producers (
    partition   INTEGER NOT NULL,
    producer_id INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    last_ms     INTEGER NOT NULL,
    batches     BLOB    NOT NULL,
    PRIMARY KEY (partition, producer_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX partition_producers_by_age ON partition_producers (last_ms);

CREATE TABLE producer_names (
    partition   INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    producer_id INTEGER NOT NULL,
    asked_ms    INTEGER NOT NULL, -- when a server last asked for the name, to the hour
    floor       INTEGER NOT NULL DEFAULT 0, -- store.named_floor when the name was registered
    PRIMARY KEY (partition, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX producer_names_by_id ON producer_names (partition, producer_id);
CREATE INDEX producer_names_by_age ON producer_names (asked_ms);
