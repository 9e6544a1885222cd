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
