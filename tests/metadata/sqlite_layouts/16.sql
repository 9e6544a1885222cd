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
    named_floor        INTEGER NOT NULL DEFAULT 0 -- and of named producers that had written
) STRICT;

-- Cursors of durable subscriptions. See metadata/subscriptions.py and metadata/cursor_rules.py.

CREATE TABLE cursors (
    partition    INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    mark_delete  INTEGER NOT NULL,
    acknowledged BLOB    NOT NULL, -- packed ranges
    properties   TEXT    NOT NULL, -- JSON object of strings
    created_ms   INTEGER NOT NULL,
    revision     INTEGER NOT NULL,
    generation   INTEGER NOT NULL DEFAULT 0, -- the partition's count of deletions when the cursor was made
    PRIMARY KEY (partition, name)
) STRICT;

-- Consumer groups and their committed offsets.

CREATE TABLE group_snapshots (
    name          TEXT    PRIMARY KEY,
    protocol_type TEXT    NOT NULL,
    state         BLOB    NOT NULL
) STRICT;

CREATE TABLE group_offsets (
    name         TEXT    NOT NULL,
    partition    INTEGER NOT NULL,
    next_offset  INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL,
    metadata     TEXT    NOT NULL,
    committed_ms INTEGER NOT NULL,
    PRIMARY KEY (name, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_offsets_by_partition ON group_offsets (partition);

-- The log and its checkpoint by page.

-- The truth. kind: model.EntryKind; the slices of a swap are its ranges (partition, start, end), packed.
CREATE TABLE log (
    position      INTEGER PRIMARY KEY,
    kind          INTEGER NOT NULL,
    created_ms    INTEGER NOT NULL,
    token         TEXT    UNIQUE,
    object_size   INTEGER,
    slices        BLOB,
    sequences     BLOB,
    outcomes      BLOB,
    partition     INTEGER,
    start_offset  INTEGER,
    size_before   INTEGER,
    stream_number INTEGER
) STRICT;

-- Slices of one partition, rolled up from the log.
CREATE TABLE index_pages (
    id            INTEGER PRIMARY KEY,
    partition     INTEGER NOT NULL,
    base_offset   INTEGER NOT NULL,
    end_offset    INTEGER NOT NULL,
    max_timestamp INTEGER NOT NULL,
    slice_count   INTEGER NOT NULL,
    size_before   INTEGER NOT NULL, -- bytes of the partition below this page
    slices        BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX index_pages_by_offset ON index_pages (partition, base_offset);

-- Pages to drop: those of partitions [first, last] whose end is <= end_offset; NULL: the stream is deleted, drop all.
CREATE TABLE sweeps (
    id              INTEGER PRIMARY KEY,
    first_partition INTEGER NOT NULL,
    last_partition  INTEGER NOT NULL,
    end_offset      INTEGER
) STRICT;

-- Objects: WAL objects, whose keys are commit tokens, and data files.

-- position: an object that a swap brought has a negative number, counted by store.last_object_number.
CREATE TABLE objects (
    position      INTEGER PRIMARY KEY, -- of the commit: the object's number
    key           TEXT    NOT NULL UNIQUE,
    size          INTEGER NOT NULL,
    slice_count   INTEGER NOT NULL, -- slices that index_pages still name; 0: may be swept
    committed_ms  INTEGER NOT NULL,
    outcomes      BLOB, -- for a commit that is asked again; NULL: too long ago
    kind          INTEGER NOT NULL DEFAULT 0, -- model.ObjectKind
    stream_number INTEGER NOT NULL DEFAULT 0, -- 0: slices of any stream
    swap_position INTEGER NOT NULL DEFAULT 0, -- of the log entry that brought it; 0: its own commit
    segments      BLOB, -- of a data file: its slices as they were swapped in
    unused_ms     INTEGER, -- since when slice_count is 0
    deleted_ms    INTEGER -- when its bytes were reported gone
) STRICT;
CREATE INDEX objects_remembered ON objects (committed_ms) WHERE outcomes IS NOT NULL;
CREATE INDEX objects_unused ON objects (kind, key) WHERE unused_ms IS NOT NULL AND deleted_ms IS NULL;
CREATE INDEX objects_deleted ON objects (deleted_ms) WHERE deleted_ms IS NOT NULL;
CREATE INDEX objects_data_files ON objects (stream_number, swap_position, key) WHERE kind = 1 AND unused_ms IS NULL;

-- Tokens that no commit may use any more: forbidden, or refused with their outcomes.
CREATE TABLE forbidden_tokens (
    token        TEXT    PRIMARY KEY,
    forbidden_ms INTEGER NOT NULL,
    is_refused   INTEGER NOT NULL DEFAULT 0, -- 1: a token of which nothing was accepted
    outcomes     BLOB -- of a refused token; NULL: too long ago
) STRICT, WITHOUT ROWID;
CREATE INDEX forbidden_tokens_by_age ON forbidden_tokens (forbidden_ms);
CREATE INDEX forbidden_tokens_answerable ON forbidden_tokens (forbidden_ms) WHERE outcomes IS NOT NULL;

-- Partitions: offsets and epochs.

CREATE TABLE partitions (
    partition      INTEGER PRIMARY KEY,
    start          INTEGER NOT NULL,
    end            INTEGER NOT NULL,
    size           INTEGER NOT NULL, -- bytes ever committed
    size_before    INTEGER NOT NULL, -- of these, below the slice that holds start
    size_rolled    INTEGER NOT NULL, -- of these, rolled up
    compacted      INTEGER NOT NULL DEFAULT 0, -- offsets below lie in data files
    size_compacted INTEGER NOT NULL DEFAULT 0 -- bytes ever committed below it
) STRICT;
CREATE INDEX partitions_uncompacted ON partitions (partition) WHERE compacted < end AND start < end;

-- Named batches of an older epoch are fenced. Each raise has a number, store.raised_count.
CREATE TABLE partition_epochs (
    partition    INTEGER PRIMARY KEY,
    epoch        INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    is_exclusive INTEGER NOT NULL DEFAULT 1 -- the newest epoch was given to an exclusive producer, and to no shared one since
) STRICT;
CREATE UNIQUE INDEX partition_epochs_by_number ON partition_epochs (number);

-- How often cursors of a partition were deleted; the creation of a cursor names it.
CREATE TABLE cursor_deletions (
    partition      INTEGER PRIMARY KEY,
    deletion_count INTEGER NOT NULL
) STRICT;

-- Producers: sequence numbers, names. Rules: metadata/producers.py.

CREATE TABLE partition_producers (
    partition   INTEGER NOT NULL,
    producer_id INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    last_ms     INTEGER NOT NULL,
    batches     BLOB    NOT NULL,
    PRIMARY KEY (partition, producer_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX partition_producers_by_age ON partition_producers (last_ms);

CREATE TABLE producer_names (
    partition   INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    producer_id INTEGER NOT NULL,
    asked_ms    INTEGER NOT NULL, -- when a server last asked for the name, to the hour
    floor       INTEGER NOT NULL DEFAULT 0, -- store.named_floor when the name was registered
    PRIMARY KEY (partition, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX producer_names_by_id ON producer_names (partition, producer_id);
CREATE INDEX producer_names_by_age ON producer_names (asked_ms);

-- The schema registry. A subject named '' holds the config and mode of its context.

CREATE TABLE schema_contexts (
    context TEXT    PRIMARY KEY,
    last_id INTEGER NOT NULL -- the largest id given out
) STRICT, WITHOUT ROWID;

CREATE TABLE schemas (
    context     TEXT    NOT NULL,
    id          INTEGER NOT NULL,
    fingerprint BLOB    NOT NULL, -- of the whole content
    body        BLOB    NOT NULL, -- of type, text and references
    content     TEXT    NOT NULL, -- JSON
    PRIMARY KEY (context, id)
) STRICT;
CREATE INDEX schemas_by_body ON schemas (context, body, id);
CREATE INDEX schemas_by_fingerprint ON schemas (fingerprint);

CREATE TABLE schema_subjects (
    context  TEXT    NOT NULL,
    subject  TEXT    NOT NULL,
    revision INTEGER NOT NULL, -- grows with every change; the row is never deleted
    config   TEXT,
    mode     TEXT,
    PRIMARY KEY (context, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE schema_versions (
    context    TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    schema_id  INTEGER NOT NULL,
    is_deleted INTEGER NOT NULL,
    PRIMARY KEY (context, subject, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX schema_versions_by_schema ON schema_versions (context, schema_id);

CREATE TABLE schema_references (
    context          TEXT    NOT NULL,
    subject          TEXT    NOT NULL,
    version          INTEGER NOT NULL,
    referrer_context TEXT    NOT NULL,
    referrer_id      INTEGER NOT NULL,
    PRIMARY KEY (context, subject, version, referrer_context, referrer_id)
) STRICT, WITHOUT ROWID;

-- Servers and their leases. Liveness: metadata/liveness.py.

CREATE TABLE servers (
    node_id         INTEGER PRIMARY KEY,
    name            TEXT    NOT NULL UNIQUE,
    epoch           INTEGER NOT NULL,
    zone            TEXT,
    endpoints       TEXT    NOT NULL, -- JSON object of strings
    version         TEXT    NOT NULL,
    timeout_ms      INTEGER NOT NULL,
    is_draining     INTEGER NOT NULL,
    has_left        INTEGER NOT NULL,
    heartbeat_count INTEGER NOT NULL DEFAULT 0,
    lapse_count     INTEGER NOT NULL DEFAULT 0,
    has_lapsed      INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE leases (
    name         TEXT    PRIMARY KEY,
    epoch        INTEGER NOT NULL,
    node_id      INTEGER, -- NULL: released
    server_epoch INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_by_holder ON leases (node_id);

-- Streams, the defaults of their configs, and their commits to the table.

CREATE TABLE streams (
    number          INTEGER PRIMARY KEY AUTOINCREMENT,
    id              BLOB    NOT NULL UNIQUE,
    name            TEXT    NOT NULL,
    partition_count INTEGER NOT NULL,
    configs         TEXT    NOT NULL, -- JSON object of strings
    created_ms      INTEGER NOT NULL,
    is_deleted      INTEGER NOT NULL,
    version         INTEGER NOT NULL, -- log position of the newest change
    is_terminated   INTEGER NOT NULL DEFAULT 0, -- takes no more batches
    former_producer_id INTEGER NOT NULL DEFAULT -1 -- largest producer id before the stream replaced a deleted one; -1: it replaced none
) STRICT;
CREATE UNIQUE INDEX streams_by_name ON streams (name) WHERE is_deleted = 0;
CREATE INDEX streams_by_name_and_number ON streams (name, number);

-- Configs that the streams of a group have unless they set them. See metadata/defaults.py.
CREATE TABLE defaults (
    name    TEXT    NOT NULL PRIMARY KEY,
    configs TEXT    NOT NULL, -- JSON object of strings
    version INTEGER NOT NULL
) STRICT;

-- How often a stream was compacted or merged, and when last: written by every swap that ends a task.
CREATE TABLE stream_commits (
    stream_number INTEGER PRIMARY KEY,
    commit_count  INTEGER NOT NULL,
    committed_ms  INTEGER NOT NULL
) STRICT;

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
