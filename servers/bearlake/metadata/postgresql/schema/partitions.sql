-- Partitions: start and end offsets, compacted offsets, epochs.

-- Up to 32 partitions of one stream; group_key = partition key >> 5, array index = (partition key & 31) + 1.
-- One row instead of 32 makes a commit three times cheaper. `sizes` counts all bytes ever committed, `sizes_before` those of the
-- slices below `starts`. Each commit rewrites rows: the free space keeps a rewrite within the page (HOT).
-- is_terminated: the partitions accept no more batches. It is decided where offsets are assigned, under the lock of this row.
create table bearlake.partition_group (
    group_key bigint primary key,
    starts bigint[] not null,
    ends bigint[] not null,
    sizes bigint[] not null,
    sizes_before bigint[] not null,
    is_terminated boolean not null default false
) with (fillfactor = 40, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02);

-- Beside partition_group, element for element, so that a commit does not rewrite it and a swap does not stop the commits:
-- compacted offsets, and the bytes ever committed below them. A function that moves a start holds the row, and so does a swap.
create table bearlake.compaction_group (
    group_key bigint primary key,
    offsets bigint[] not null,
    sizes bigint[] not null
) with (fillfactor = 50, toast_tuple_target = 8160);

-- Named batches of an older epoch are fenced. Changed while the partition's group is locked, as a commit locks it.
-- deletion_count: how often cursors of the partition were deleted; the creation of a cursor names it.
-- is_exclusive: the newest epoch was given to an exclusive producer, and no shared producer has been given one since.
create table bearlake.partition_epoch (
    partition bigint primary key,
    epoch bigint not null,
    deletion_count bigint not null default 0,
    is_exclusive boolean not null default false
);

select bearlake.fence_table('compaction_group'), bearlake.fence_table('partition_epoch');

-- Ends and sizes change only in a transaction that takes a position and so updates log_head, which is fenced (decision 100). Every other
-- change of this table fires the trigger. Name all columns but those two.
create trigger fence before insert or update of group_key, starts, sizes_before, is_terminated or delete or truncate
    on bearlake.partition_group for each statement execute function bearlake.check_session();
