-- Deletions and saves of cursors that arrive late (DESIGN.md, I12, decision 102).

-- The partition's count of deletions when the cursor was made: which of the cursors that have had its name it is.
ALTER TABLE cursors ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
