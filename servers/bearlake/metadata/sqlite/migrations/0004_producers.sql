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

-- Named batches of an older epoch are fenced. Whoever raises one lets store.forgotten_count grow: then cached states are stale.
CREATE TABLE partition_epochs (
    partition INTEGER PRIMARY KEY,
    epoch     INTEGER NOT NULL
) STRICT;
