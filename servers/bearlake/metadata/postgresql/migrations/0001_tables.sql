-- Tables of the metadata store. The schema's name, `bearlake` here, is replaced by the one that the settings name.
-- Times are milliseconds of this database's clock (bearlake.now_ms). Partition keys: stream number << 20 | index.

create function bearlake.now_ms() returns bigint language sql volatile parallel safe as
$$ select (extract(epoch from clock_timestamp()) * 1000)::bigint $$;

create table bearlake.cluster (
    id text not null,
    producer_id_next bigint not null default 0
);
create unique index cluster_is_one on bearlake.cluster ((true));

create table bearlake.server (
    node_id integer primary key,
    name text collate "C" not null unique,
    epoch bigint not null,
    zone text,
    endpoints jsonb not null,
    version text not null,
    timeout_ms bigint not null,
    heartbeat_ms bigint not null,
    is_draining boolean not null default false,
    has_left boolean not null default false
) with (fillfactor = 50);

create table bearlake.lease (
    name text collate "C" primary key,
    epoch bigint not null,
    node_id integer,
    server_epoch bigint
);

create table bearlake.stream (
    number bigint generated always as identity primary key,
    name text collate "C" not null,
    id uuid not null unique,
    partition_count integer not null,
    configs jsonb not null,
    created_ms bigint not null,
    deleted_ms bigint,
    version bigint not null default 0
);
create unique index stream_active_name on bearlake.stream (name) where deleted_ms is null;

-- Up to 32 partitions of one stream; group_key = partition key >> 5, array index = (partition key & 31) + 1.
-- One row instead of 32 makes a commit three times cheaper. `sizes` counts all bytes ever committed, `sizes_before` those of the
-- slices below `starts`. Rows are rewritten by each commit: the free space keeps that within the page (HOT).
create table bearlake.partition_group (
    group_key bigint primary key,
    starts bigint[] not null,
    ends bigint[] not null,
    sizes bigint[] not null,
    sizes_before bigint[] not null
) with (fillfactor = 40, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02);

-- An idempotent producer in a partition. `batches`: up to five times (first sequence, last sequence, base offset), newest first.
-- `updated_hour` changes rarely, so that its index does not cost the commits their HOT updates.
create table bearlake.producer (
    partition bigint not null,
    producer_id bigint not null,
    producer_epoch integer not null,
    batches bigint[] not null,
    updated_ms bigint not null,
    updated_hour integer not null,
    primary key (partition, producer_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index producer_updated on bearlake.producer (updated_hour);

-- Commit tokens: one per WAL object. `position` is that of the log entry, -1 if the token is forbidden.
-- `outcomes` (kind, base offset, start offset per batch) answer a repeated token; maintenance drops them an hour later.
-- `slice_count`: slices that the log or the index still names; an object without any can be deleted.
create table bearlake.object (
    key text collate "C" primary key,
    position bigint not null,
    size bigint not null,
    committed_ms bigint not null,
    slice_count integer not null default 0,
    outcomes bigint[]
) with (toast_tuple_target = 8160);
create unique index object_position on bearlake.object (position) where position > 0;
create index object_answerable on bearlake.object (committed_ms) where outcomes is not null;
create index object_forbidden on bearlake.object (committed_ms) where position = -1;

-- The newest position. Updated last in each transaction that writes an entry, so that positions become visible in order.
create table bearlake.log_head (
    position bigint not null
) with (fillfactor = 10);
insert into bearlake.log_head values (0);

-- Entries up to `rolled` are rolled up into index pages; entries up to `truncated` (<= rolled) are not in the log any more.
create table bearlake.log_tail (
    rolled bigint not null,
    truncated bigint not null
) with (fillfactor = 10);
insert into bearlake.log_tail values (0, 0);

-- kind: model.EntryKind. The arrays of a COMMIT have one element per slice, ordered by partition, then offset.
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
    stream_number bigint
) with (toast_tuple_target = 8160);

-- Not compressed: compressing took longer than all the rest of a large commit.
alter table bearlake.object alter column outcomes set storage external;
alter table bearlake.log
    alter column partitions set storage external,
    alter column base_offsets set storage external,
    alter column record_counts set storage external,
    alter column positions set storage external,
    alter column lengths set storage external,
    alter column timestamps set storage external;

-- Slices of one partition, rolled up from the log, in offset order; `objects` are log positions (bearlake.object.position).
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

-- Worklist of maintenance: index pages of these partitions that end at or below `end_offset` (null: all that the partitions have)
-- are not readable any more, as of log position `position`.
create table bearlake.sweep (
    position bigint primary key,
    partition_first bigint not null,
    partition_last bigint not null,
    end_offset bigint
);

create table bearlake.consumer_group (
    name text collate "C" primary key,
    protocol_type text not null,
    state bytea not null
);

create table bearlake.group_offset (
    name text collate "C" not null,
    partition bigint not null,
    committed_offset bigint not null,
    leader_epoch integer not null,
    metadata text not null,
    committed_ms bigint not null,
    primary key (name, partition)
) with (fillfactor = 60);
create index group_offset_partition on bearlake.group_offset (partition);
