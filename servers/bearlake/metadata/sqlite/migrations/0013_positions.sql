-- What a commit must know before it takes a batch for a producer's first one (metadata/producers.py).

-- The log position of the newest expiry of idempotent producers. Of older ones nobody knows when they were: the newest entry is later.
ALTER TABLE store ADD COLUMN position_floor INTEGER NOT NULL DEFAULT 0;
UPDATE store SET position_floor = coalesce((SELECT max(position) FROM log), rolled_position);

-- The largest producer id that was given out before the stream replaced a deleted one of its name; -1: it replaced none.
ALTER TABLE streams ADD COLUMN former_producer_id INTEGER NOT NULL DEFAULT -1;
