-- Named producers that were forgotten (metadata/producers.py): what a server received before that may be stored already.

-- The log position of the newest expiry of named producers that had written. Of older ones nobody knows when they were.
ALTER TABLE store ADD COLUMN named_floor INTEGER NOT NULL DEFAULT 0;
UPDATE store SET named_floor = coalesce((SELECT max(position) FROM log), rolled_position);

-- That position as of when the name was registered.
ALTER TABLE producer_names ADD COLUMN floor INTEGER NOT NULL DEFAULT 0;
UPDATE producer_names SET floor = (SELECT named_floor FROM store);
