-- The log and its index.

-- The newest position. Updated last in each transaction that writes an entry, so that positions become visible in order.
-- token_floor: no token up to this one is decided any more (I8).
create table bearlake.log_head (
    position bigint not null,
    token_floor text collate "C" not null default ''
) with (fillfactor = 10);
insert into bearlake.log_head values (0);

-- Entries up to `rolled` are rolled up into index pages; entries up to `truncated` (<= rolled) are not in the log any more.
create table bearlake.log_tail (
    rolled bigint not null,
    truncated bigint not null
) with (fillfactor = 10);
insert into bearlake.log_tail values (0, 0);

-- kind: model.EntryKind. The arrays of a COMMIT have one element per slice, ordered by partition, then offset; those of a SWAP one
-- element per range. transactions: the fields of model.TransactionChange, one change after the other.
create table bearlake.log (
    position bigint primary key,
    kind smallint not null,
    object_key text collate "C",
    object_size bigint,
    partitions bigint[],
    base_offsets bigint[],
    record_counts bigint[],
    positions bigint[],
    lengths bigint[],
    timestamps bigint[],
    partition bigint,
    start_offset bigint,
    stream_number bigint,
    transactions bigint[]
) with (toast_tuple_target = 8160);
-- Not compressed: compression took longer than the rest of a large commit.
alter table bearlake.log
    alter column partitions set storage external,
    alter column base_offsets set storage external,
    alter column record_counts set storage external,
    alter column positions set storage external,
    alter column lengths set storage external,
    alter column timestamps set storage external;

-- Slices of one partition, rolled up from the log, in offset order; `objects` are numbers of objects.
create table bearlake.index_page (
    partition bigint not null,
    base_offset bigint not null,
    end_offset bigint not null,
    max_timestamp bigint not null,
    size_bytes bigint not null,
    base_offsets bigint[] not null,
    record_counts bigint[] not null,
    positions bigint[] not null,
    lengths bigint[] not null,
    timestamps bigint[] not null,
    objects bigint[] not null,
    primary key (partition, base_offset) include (end_offset, max_timestamp)
) with (toast_tuple_target = 8160);

-- Worklist of upkeep: index pages of these partitions that end at or below `end_offset` (null: all pages of the partitions) are not
-- readable any more, as of log position `position`.
create table bearlake.sweep (
    position bigint primary key,
    partition_first bigint not null,
    partition_last bigint not null,
    end_offset bigint
);

select bearlake.fence_table(t) from unnest(array['log_head', 'log_tail', 'index_page', 'sweep']) t;

-- An entry is inserted only in a transaction that takes a position and so updates log_head, which is fenced (decision 100).
create trigger fence before update or delete or truncate on bearlake.log
    for each statement execute function bearlake.check_session();
