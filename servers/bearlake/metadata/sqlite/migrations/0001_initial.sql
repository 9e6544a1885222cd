-- The store's first layout. Times are milliseconds since 1970 of this host; blobs are laid out as in metadata/packing.py.

-- One row: what must be read together with the log's head.
CREATE TABLE store (
    id                 INTEGER PRIMARY KEY CHECK (id = 1),
    cluster_id         TEXT    NOT NULL,
    rolled_position    INTEGER NOT NULL, -- entries up to here are in index_pages, partitions, partition_producers
    truncated_position INTEGER NOT NULL, -- entries up to here are deleted
    forgotten_count    INTEGER NOT NULL, -- grows when producer states are forgotten: then cached states are stale
    next_producer_id   INTEGER NOT NULL,
    last_epoch         INTEGER NOT NULL  -- of servers
) STRICT;

-- The truth. kind 1: a WAL object was committed; 2: a partition was trimmed; 3: a stream was changed.
CREATE TABLE log (
    position      INTEGER PRIMARY KEY,
    kind          INTEGER NOT NULL,
    created_ms    INTEGER NOT NULL,
    token         TEXT UNIQUE,
    object_size   INTEGER,
    slices        BLOB,
    sequences     BLOB,
    outcomes      BLOB,
    partition     INTEGER,
    start_offset  INTEGER,
    size_before   INTEGER,
    stream_number INTEGER
) STRICT;

-- The checkpoint of the log: partitions, their producers, their slices by page, the objects that hold them.
CREATE TABLE partitions (
    partition   INTEGER PRIMARY KEY,
    start       INTEGER NOT NULL,
    end         INTEGER NOT NULL,
    size        INTEGER NOT NULL, -- bytes ever committed
    size_before INTEGER NOT NULL, -- of these, below the slice that holds start
    size_rolled INTEGER NOT NULL  -- of these, rolled up
) STRICT;

CREATE TABLE partition_producers (
    partition   INTEGER NOT NULL,
    producer_id INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    last_ms     INTEGER NOT NULL,
    batches     BLOB    NOT NULL,
    PRIMARY KEY (partition, producer_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX partition_producers_by_age ON partition_producers (last_ms);

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

CREATE TABLE objects (
    position     INTEGER PRIMARY KEY, -- of the commit: the object's number
    key          TEXT    NOT NULL UNIQUE,
    size         INTEGER NOT NULL,
    slice_count  INTEGER NOT NULL,    -- slices that index_pages still name; 0: may be swept
    committed_ms INTEGER NOT NULL,
    outcomes     BLOB                 -- for a commit that is asked again; NULL: too long ago
) STRICT;
CREATE INDEX objects_remembered ON objects (committed_ms) WHERE outcomes IS NOT NULL;
CREATE INDEX objects_unused ON objects (position) WHERE slice_count = 0;

-- Pages to drop: those of partitions [first, last] whose end is <= end_offset; NULL: the stream is deleted, drop all.
CREATE TABLE sweeps (
    id              INTEGER PRIMARY KEY,
    first_partition INTEGER NOT NULL,
    last_partition  INTEGER NOT NULL,
    end_offset      INTEGER
) STRICT;

CREATE TABLE forbidden_tokens (
    token        TEXT PRIMARY KEY,
    forbidden_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX forbidden_tokens_by_age ON forbidden_tokens (forbidden_ms);

CREATE TABLE streams (
    number          INTEGER PRIMARY KEY AUTOINCREMENT,
    id              BLOB    NOT NULL UNIQUE,
    name            TEXT    NOT NULL,
    partition_count INTEGER NOT NULL,
    configs         TEXT    NOT NULL, -- JSON object of strings
    created_ms      INTEGER NOT NULL,
    is_deleted      INTEGER NOT NULL,
    version         INTEGER NOT NULL  -- log position of the newest change
) STRICT;
CREATE UNIQUE INDEX streams_by_name ON streams (name) WHERE is_deleted = 0;

CREATE TABLE servers (
    node_id      INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL UNIQUE,
    epoch        INTEGER NOT NULL,
    zone         TEXT,
    endpoints    TEXT    NOT NULL, -- JSON object of strings
    version      TEXT    NOT NULL,
    timeout_ms   INTEGER NOT NULL,
    heartbeat_ms INTEGER NOT NULL,
    is_draining  INTEGER NOT NULL,
    has_left     INTEGER NOT NULL
) STRICT;

CREATE TABLE leases (
    name         TEXT PRIMARY KEY,
    epoch        INTEGER NOT NULL,
    node_id      INTEGER, -- NULL: released
    server_epoch INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX leases_by_holder ON leases (node_id);

CREATE TABLE group_snapshots (
    name          TEXT PRIMARY KEY,
    protocol_type TEXT NOT NULL,
    state         BLOB NOT NULL
) STRICT;

CREATE TABLE group_offsets (
    name            TEXT    NOT NULL,
    partition       INTEGER NOT NULL,
    next_offset     INTEGER NOT NULL,
    leader_epoch    INTEGER NOT NULL,
    metadata        TEXT    NOT NULL,
    committed_ms    INTEGER NOT NULL,
    PRIMARY KEY (name, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_offsets_by_partition ON group_offsets (partition);
