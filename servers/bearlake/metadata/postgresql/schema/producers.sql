-- Producers: sequence numbers of idempotent producers, names of named ones. Rules: metadata/producers.py.

-- batches: up to five times (first sequence, last sequence, base offset), newest first.
-- updated_hour changes rarely, so that its index does not cost the commits their HOT updates.
create table bearlake.producer (
    partition bigint not null,
    producer_id bigint not null,
    producer_epoch bigint not null,
    batches bigint[] not null,
    updated_ms bigint not null,
    updated_hour integer not null,
    primary key (partition, producer_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index producer_updated on bearlake.producer (updated_hour);

-- asked_ms: when a server last asked for the name, to the hour. floor: cluster.named_floor when the name was registered.
create table bearlake.producer_name (
    partition bigint not null,
    name text collate "C" not null,
    producer_id bigint not null,
    asked_ms bigint not null,
    floor bigint not null default 0,
    primary key (partition, name)
);
create unique index producer_name_id on bearlake.producer_name (partition, producer_id);
create index producer_name_asked on bearlake.producer_name (asked_ms);

-- A producer's state within a commit.
create type bearlake.producer_state as (producer_epoch bigint, batches bigint[], is_known boolean, is_changed boolean);

select bearlake.fence_table('producer'), bearlake.fence_table('producer_name');
