-- Producers: sequence numbers of idempotent producers, names of named ones. Rules: metadata/producers.py.

-- batches: up to five times (first sequence, last sequence, base offset), newest first.
-- used_minute: the producer clock as of the newest batch. It changes rarely, so its index does not cost the commits their HOT updates.
create table bearlake.producer (
    partition bigint not null,
    producer_id bigint not null,
    producer_epoch bigint not null,
    batches bigint[] not null,
    updated_ms bigint not null,
    used_minute integer not null default 0,
    primary key (partition, producer_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index producer_used on bearlake.producer (used_minute);

-- floor: cluster.named_floor when the name was registered. asked_minute: the producer clock when a server last asked for the name.
create table bearlake.producer_name (
    partition bigint not null,
    name text collate "C" not null,
    producer_id bigint not null,
    floor bigint not null default 0,
    asked_minute integer not null default 0,
    primary key (partition, name)
);
create unique index producer_name_id on bearlake.producer_name (partition, producer_id);
create index producer_name_asked on bearlake.producer_name (asked_minute);

-- A producer's state within a commit.
create type bearlake.producer_state as (producer_epoch bigint, batches bigint[], is_known boolean, is_changed boolean);

select bearlake.fence_table('producer'), bearlake.fence_table('producer_name');
