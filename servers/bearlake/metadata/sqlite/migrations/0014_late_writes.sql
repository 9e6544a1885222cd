-- Writes of subscriptions and exclusive producers that arrive late, or from a server that was overtaken (DESIGN.md, I12).

-- How often cursors of a partition were deleted; who creates one names it.
CREATE TABLE cursor_deletions (
    partition      INTEGER PRIMARY KEY,
    deletion_count INTEGER NOT NULL
) STRICT;

-- Whether the newest epoch was given to a producer that was to be alone, and nobody has produced beside others since.
ALTER TABLE partition_epochs ADD COLUMN is_exclusive INTEGER NOT NULL DEFAULT 1;
