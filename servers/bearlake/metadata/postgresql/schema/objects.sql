-- Objects: WAL objects, whose keys are commit tokens, and data files.

-- number: how index rows name the object. The position of the commit's entry; below -1 for an object of a swap (`swap_position`: that
-- swap's entry); -1 for a key that is forbidden, or refused: a refused token has a size and outcomes.
-- kind: model.ObjectKind. outcomes (kind, base offset, start offset per batch) answer a repeated token; upkeep drops them an hour later.
-- slice_count: rows of the log or the index that name the object. unused_ms: since when none does. deleted_ms: when its bytes were deleted;
-- the row outlives them, so that a late commit with the same token is refused.
create table bearlake.object (
    key text collate "C" primary key,
    number bigint not null,
    size bigint not null,
    committed_ms bigint not null,
    slice_count integer not null default 0,
    outcomes bigint[],
    kind smallint not null default 0,
    stream_number bigint not null default 0,
    swap_position bigint,
    unused_ms bigint,
    deleted_ms bigint
) with (toast_tuple_target = 8160);
alter table bearlake.object alter column outcomes set storage external; -- not compressed, as the arrays of bearlake.log
create index object_answerable on bearlake.object (committed_ms) where outcomes is not null;
create index object_forbidden on bearlake.object (committed_ms) where number = -1;
create unique index object_number on bearlake.object (number) where number <> -1;
create index object_unused on bearlake.object (kind, key) where unused_ms is not null and deleted_ms is null;
create index object_deleted on bearlake.object (deleted_ms) where deleted_ms is not null;
create sequence bearlake.object_numbers increment by -1 minvalue -9223372036854775807 maxvalue -2 start with -2;

-- What a swap put into a data file, also what was trimmed since or belongs to a deleted partition.
create table bearlake.data_file (
    number bigint primary key,
    stream_number bigint not null,
    swap_position bigint not null,
    key text collate "C" not null,
    partitions bigint[] not null,
    base_offsets bigint[] not null,
    record_counts bigint[] not null,
    positions bigint[] not null,
    lengths bigint[] not null,
    timestamps bigint[] not null
) with (toast_tuple_target = 8160);
create index data_file_stream on bearlake.data_file (stream_number, swap_position, key);

-- A move of one partition's range [s, e) to new rows, elements f to l of the arrays of new slices; `start` is the partition's.
-- turn: a partition's first range, second, …: each statement takes one range per partition.
create type bearlake.move as (p bigint, s bigint, e bigint, f integer, l integer, turn integer, start bigint);

select bearlake.fence_table('object'), bearlake.fence_table('data_file');
