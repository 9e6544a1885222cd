-- The cluster: one row, made when the store is opened.
--
-- All tables: times are milliseconds of this database's clock (functions/now_ms.sql). A partition key is stream number << 20 | index. The
-- schema's name, `bearlake` here, is replaced by the one that the settings name. fence_table: functions/check_session.sql.

-- producer_id_expired: the largest id of an idempotent producer whose state ever expired.
-- position_floor, named_floor: log positions of the newest expiry of idempotent producers, and of named producers that had written.
-- producer_minute: the producer clock (metadata/producers.py), minutes.
create table bearlake.cluster (
    id text not null,
    producer_id_next bigint not null default 0,
    producer_id_expired bigint not null default -1,
    position_floor bigint not null default 0,
    named_floor bigint not null default 0,
    producer_minute integer not null default 0
);
create unique index cluster_is_one on bearlake.cluster ((true));

select bearlake.fence_table('cluster');
