-- Named producers: log.sequences rows with BATCH_NAMED in their flags; partition_producers holds their states as it does all others'.

CREATE TABLE producer_names (
    partition   INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    producer_id INTEGER NOT NULL,
    asked_ms    INTEGER NOT NULL, -- when a server asked for it last, to the hour
    PRIMARY KEY (partition, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX producer_names_by_id ON producer_names (partition, producer_id);
CREATE INDEX producer_names_by_age ON producer_names (asked_ms);

-- Named batches of an older epoch are fenced. Each raise has a number, store.raised_count: cached states follow the newer ones.
CREATE TABLE partition_epochs (
    partition INTEGER PRIMARY KEY,
    epoch     INTEGER NOT NULL,
    number    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX partition_epochs_by_number ON partition_epochs (number);
ALTER TABLE store ADD COLUMN raised_count INTEGER NOT NULL DEFAULT 0;
