-- Servers, their leases, and the sessions of connections that write.

-- Live: neither has_left nor has_lapsed. The rules are those of metadata/liveness.py: counters decide, no time does.
create table bearlake.server (
    node_id integer primary key,
    name text collate "C" not null unique,
    epoch bigint not null,
    zone text,
    endpoints jsonb not null,
    version text not null,
    timeout_ms bigint not null,
    is_draining boolean not null default false,
    has_left boolean not null default false,
    heartbeat_count bigint not null default 0,
    lapse_count bigint not null default 0,
    has_lapsed boolean not null default false
) with (fillfactor = 50);

-- node_id, server_epoch: the holder; null: free.
create table bearlake.lease (
    name text collate "C" primary key,
    epoch bigint not null,
    node_id integer,
    server_epoch bigint
);

-- pid, started_at: the backend, as pg_stat_activity names it. See functions/check_session.sql.
create table bearlake.session (
    id bigint generated always as identity primary key,
    pid integer not null,
    started_at timestamptz not null
) with (fillfactor = 50);

select bearlake.fence_table('server'), bearlake.fence_table('lease');
