-- The cluster. All tables: times are milliseconds since 1970 of this host; blobs are laid out as in metadata/packing.py.

-- One row: what must be read together with the log's head.
CREATE TABLE store (
    id                 INTEGER PRIMARY KEY CHECK (id = 1),
    cluster_id         TEXT    NOT NULL,
    rolled_position    INTEGER NOT NULL, -- entries up to here are in index_pages, partitions, partition_producers
    truncated_position INTEGER NOT NULL, -- entries up to here are deleted
    forgotten_count    INTEGER NOT NULL, -- grows when producer states are forgotten: then cached states are stale
    next_producer_id   INTEGER NOT NULL,
    last_epoch         INTEGER NOT NULL, -- of servers
    last_object_number INTEGER NOT NULL DEFAULT 0, -- of an object that a swap brought: -1 times this
    raised_count       INTEGER NOT NULL DEFAULT 0, -- raises of partition epochs: cached states follow the newer ones
    token_floor        TEXT    NOT NULL DEFAULT '', -- no token up to here is decided any more
    expired_producer_id INTEGER NOT NULL DEFAULT -1, -- largest id of an idempotent producer whose state ever expired
    last_claim_number  INTEGER NOT NULL DEFAULT 0, -- claims are numbered in the order in which they are given
    position_floor     INTEGER NOT NULL DEFAULT 0, -- log position of the newest expiry of idempotent producers
    named_floor        INTEGER NOT NULL DEFAULT 0, -- and of named producers that had written
    producer_minute    INTEGER NOT NULL DEFAULT 0 -- the producer clock (metadata/producers.py)
) STRICT;
