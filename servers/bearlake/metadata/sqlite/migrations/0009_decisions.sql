-- Commit tokens are decided once (metadata/tokens.py), and unknown producers start at 0 (metadata/producers.py).

-- No token up to here is decided any more.
ALTER TABLE store ADD COLUMN token_floor TEXT NOT NULL DEFAULT '';
-- A token of which nothing was accepted (is_refused) stands beside the forbidden ones, with its outcomes; NULL: too long ago.
ALTER TABLE forbidden_tokens ADD COLUMN is_refused INTEGER NOT NULL DEFAULT 0;
ALTER TABLE forbidden_tokens ADD COLUMN outcomes BLOB;
CREATE INDEX forbidden_tokens_answerable ON forbidden_tokens (forbidden_ms) WHERE outcomes IS NOT NULL;

-- The largest id of an idempotent producer whose state ever expired. Before this layout nobody counted: it may be any.
ALTER TABLE store ADD COLUMN expired_producer_id INTEGER NOT NULL DEFAULT -1;
UPDATE store SET expired_producer_id = next_producer_id - 1;
