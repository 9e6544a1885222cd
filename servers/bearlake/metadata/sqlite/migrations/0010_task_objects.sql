-- Keys of objects that tasks wrote: registered to an open task, or forbidden by the orphan sweep. See metadata/task_object_rules.py.

-- Claims are numbered in the order in which they are given.
ALTER TABLE store ADD COLUMN last_claim_number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN claim_number INTEGER NOT NULL DEFAULT 0; -- of the newest claim

CREATE TABLE task_objects (
    key          TEXT    PRIMARY KEY,
    task_id      INTEGER, -- NULL: the key is forbidden
    forbidden_at INTEGER, -- store.last_claim_number when it was forbidden
    CHECK ((task_id IS NULL) <> (forbidden_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX task_objects_by_task ON task_objects (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX task_objects_forbidden ON task_objects (forbidden_at) WHERE forbidden_at IS NOT NULL;

-- What older programs forbade stays forbidden, until the claims of that time have ended.
INSERT INTO task_objects (key, forbidden_at) SELECT token, 0 FROM forbidden_tokens WHERE token NOT GLOB 'wal/*';
DELETE FROM forbidden_tokens WHERE token NOT GLOB 'wal/*';

-- What they prepared is registered. Results are JSON (compaction/encoding.py, version 1): items[].files[].swap.object[0], items[].kept[].object[0].
INSERT OR IGNORE INTO task_objects (key, task_id)
SELECT json_extract(f.value, '$.swap.object[0]'), r.task_id
  FROM (SELECT task_id, CAST(result AS TEXT) AS json FROM task_results WHERE json_valid(CAST(result AS TEXT))) r, json_each(r.json, '$.items') i, json_each(i.value, '$.files') f;
INSERT OR IGNORE INTO task_objects (key, task_id)
SELECT json_extract(k.value, '$.object[0]'), r.task_id
  FROM (SELECT task_id, CAST(result AS TEXT) AS json FROM task_results WHERE json_valid(CAST(result AS TEXT))) r, json_each(r.json, '$.items') i, json_each(i.value, '$.kept') k;
