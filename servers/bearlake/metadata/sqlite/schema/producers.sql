-- Producers: sequence numbers, names. Rules: metadata/producers.py.

CREATE TABLE partition_producers (
    partition   INTEGER NOT NULL,
    producer_id INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    last_ms     INTEGER NOT NULL,
    batches     BLOB    NOT NULL,
    used_minute INTEGER NOT NULL DEFAULT 0, -- the producer clock when the newest batch was rolled up
    PRIMARY KEY (partition, producer_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX partition_producers_by_minute ON partition_producers (used_minute);

CREATE TABLE producer_names (
    partition   INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    producer_id INTEGER NOT NULL,
    floor       INTEGER NOT NULL DEFAULT 0, -- store.named_floor when the name was registered
    asked_minute INTEGER NOT NULL DEFAULT 0, -- the producer clock when a server last asked for the name
    PRIMARY KEY (partition, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX producer_names_by_id ON producer_names (partition, producer_id);
CREATE INDEX producer_names_by_minute ON producer_names (asked_minute);
