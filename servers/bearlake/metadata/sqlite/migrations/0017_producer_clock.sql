-- Idle producers are found by the producer clock instead of the process's clock (decision 116). It starts at 0, and so do all producers.
ALTER TABLE store ADD COLUMN producer_minute INTEGER NOT NULL DEFAULT 0;

DROP INDEX partition_producers_by_age;
ALTER TABLE partition_producers ADD COLUMN used_minute INTEGER NOT NULL DEFAULT 0;
CREATE INDEX partition_producers_by_minute ON partition_producers (used_minute);

DROP INDEX producer_names_by_age;
ALTER TABLE producer_names DROP COLUMN asked_ms;
ALTER TABLE producer_names ADD COLUMN asked_minute INTEGER NOT NULL DEFAULT 0;
CREATE INDEX producer_names_by_minute ON producer_names (asked_minute);
