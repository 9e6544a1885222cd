-- Compaction: tasks, swaps of index rows to data files, and what must be known before an object's bytes may go.
-- log gets kind 4: index rows were swapped; its `slices` are the ranges (partition, start, end), packed.

-- Offsets below `compacted` lie in data files; `size_compacted` are the bytes ever committed below it.
ALTER TABLE partitions ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE partitions ADD COLUMN size_compacted INTEGER NOT NULL DEFAULT 0;
CREATE INDEX partitions_uncompacted ON partitions (partition) WHERE compacted < end AND start < end;

-- An object that a swap brought has a negative number as its `position`, counted by store.last_object_number.
ALTER TABLE store ADD COLUMN last_object_number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE objects ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;            -- model.ObjectKind
ALTER TABLE objects ADD COLUMN stream_number INTEGER NOT NULL DEFAULT 0;   -- 0: slices of any stream
ALTER TABLE objects ADD COLUMN swap_position INTEGER NOT NULL DEFAULT 0;   -- of the log entry that brought it; 0: its own commit
ALTER TABLE objects ADD COLUMN segments BLOB;                              -- of a data file: its slices as they were swapped in
ALTER TABLE objects ADD COLUMN unused_ms INTEGER;                          -- since when slice_count is 0
ALTER TABLE objects ADD COLUMN deleted_ms INTEGER;                         -- when its bytes were reported gone
UPDATE objects SET unused_ms = committed_ms WHERE slice_count = 0;
DROP INDEX objects_unused;
CREATE INDEX objects_unused ON objects (kind, key) WHERE unused_ms IS NOT NULL AND deleted_ms IS NULL;
CREATE INDEX objects_deleted ON objects (deleted_ms) WHERE deleted_ms IS NOT NULL;
CREATE INDEX objects_data_files ON objects (stream_number, swap_position, key) WHERE kind = 1 AND unused_ms IS NULL;

CREATE TABLE tasks (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    kind          INTEGER NOT NULL, -- compaction.TaskKind
    state         INTEGER NOT NULL, -- compaction.TaskState
    stream_number INTEGER NOT NULL,
    ranges        BLOB    NOT NULL, -- packed: partition, start, end
    inputs        TEXT    NOT NULL, -- JSON array of keys
    size_bytes    INTEGER NOT NULL,
    record_count  INTEGER NOT NULL,
    oldest_ms     INTEGER NOT NULL, -- commit of its oldest record
    epoch         INTEGER NOT NULL, -- grows with each claim
    node_id       INTEGER,          -- of the worker that claimed it last; NULL: it gave the task back
    server_epoch  INTEGER,
    attempt_count INTEGER NOT NULL,
    claimable_ms  INTEGER NOT NULL, -- not before
    error         TEXT    NOT NULL
) STRICT;
CREATE INDEX tasks_by_stream ON tasks (stream_number, id);
CREATE INDEX tasks_claimable ON tasks (id) WHERE state = 1;

-- What a task owns: nobody else works on it.
CREATE TABLE task_partitions (
    partition INTEGER PRIMARY KEY,
    task_id   INTEGER NOT NULL
) STRICT;
CREATE INDEX task_partitions_by_task ON task_partitions (task_id);
CREATE TABLE task_inputs (
    key     TEXT    PRIMARY KEY,
    task_id INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX task_inputs_by_task ON task_inputs (task_id);

CREATE TABLE task_results (
    task_id INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    result  BLOB    NOT NULL,
    PRIMARY KEY (task_id, epoch)
) STRICT;

-- Swaps that were done, for one that is asked again; first_key names the first new object ('' when there was none).
CREATE TABLE swaps (
    task_id    INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    first_key  TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    swapped_ms INTEGER NOT NULL,
    PRIMARY KEY (task_id, epoch, first_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX swaps_by_age ON swaps (swapped_ms);
