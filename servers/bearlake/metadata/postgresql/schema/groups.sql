-- Consumer groups and their committed offsets.

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

select bearlake.fence_table('consumer_group'), bearlake.fence_table('group_offset');
