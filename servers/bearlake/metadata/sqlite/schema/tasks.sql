-- Compaction's task queue. Rules: metadata/task_object_rules.py.

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
    node_id       INTEGER, -- of the worker that claimed it last; NULL: it gave the task back
    server_epoch  INTEGER,
    attempt_count INTEGER NOT NULL,
    claimable_ms  INTEGER NOT NULL, -- not before
    error         TEXT    NOT NULL,
    claim_number  INTEGER NOT NULL DEFAULT 0 -- of the newest claim
) STRICT;
CREATE INDEX tasks_by_stream ON tasks (stream_number, id);
CREATE INDEX tasks_claimable ON tasks (id) WHERE state = 1;

-- What a task owns: no other task works on it.
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

-- Swaps that were done, for repeated calls; first_key names the first new object ('' when there was none).
CREATE TABLE swaps (
    task_id    INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    first_key  TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    swapped_ms INTEGER NOT NULL,
    PRIMARY KEY (task_id, epoch, first_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX swaps_by_age ON swaps (swapped_ms);

-- Keys of objects that tasks wrote: registered to an open task, or forbidden by the orphan sweep.
CREATE TABLE task_objects (
    key          TEXT    PRIMARY KEY,
    task_id      INTEGER, -- NULL: the key is forbidden
    forbidden_at INTEGER, -- store.last_claim_number when it was forbidden
    CHECK ((task_id IS NULL) <> (forbidden_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX task_objects_by_task ON task_objects (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX task_objects_forbidden ON task_objects (forbidden_at) WHERE forbidden_at IS NOT NULL;
