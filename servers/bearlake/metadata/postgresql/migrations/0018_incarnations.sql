-- Writes of the catalog name what their caller read, so that a late one meets what has changed since (DESIGN.md, I12, decision 71).

create index if not exists stream_name on bearlake.stream (name, number);

-- Creates the stream if p_after is the newest incarnation of the name (0: there was none). The lock orders creations of a name, and
-- one that is refused takes no number.
create or replace function bearlake.create_stream_after(
    p_name text, p_after bigint, p_id uuid, p_partition_count integer, p_configs jsonb
) returns setof bearlake.stream language plpgsql as $$
declare
    newest bearlake.stream;
begin
    perform pg_advisory_xact_lock(hashtextextended('bearlake.' || p_name, 0));
    select * into newest from bearlake.stream s where s.name = p_name order by s.number desc limit 1;
    if newest.number is not null and newest.deleted_ms is null then
        raise exception 'there is a stream %', p_name using errcode = 'BL005';
    end if;
    if coalesce(newest.number, 0) <> p_after then
        raise exception 'stream % was created and deleted meanwhile', p_name using errcode = 'BL004';
    end if;
    return query select * from bearlake.create_stream(p_name, p_id, p_partition_count, p_configs);
end $$;

-- The name of the incarnation, whose row stays locked, so that a change by name in the same transaction finds this incarnation.
-- p_version: null, or the version that it must have.
create or replace function bearlake.hold_stream(p_number bigint, p_version bigint) returns text language plpgsql as $$
declare
    held bearlake.stream;
begin
    select * into held from bearlake.stream s where s.number = p_number and s.deleted_ms is null for no key update;
    if not found then
        raise exception 'stream % is deleted', coalesce((select s.name from bearlake.stream s where s.number = p_number), p_number::text)
            using errcode = 'BL002';
    end if;
    if p_version <> held.version then
        raise exception 'stream % has changed: it has version %, not %', held.name, held.version, p_version using errcode = 'BL004';
    end if;
    return held.name;
end $$;

-- Registers the server if p_after is the last epoch of the name (0: it was never registered).
create or replace function bearlake.register_server_after(
    p_name text, p_after bigint, p_zone text, p_endpoints jsonb, p_version text, p_timeout_ms bigint,
    out node_id integer, out epoch bigint
) language plpgsql as $$
begin
    perform from bearlake.log_head for update; -- as register_server, which comes next
    if coalesce((select s.epoch from bearlake.server s where s.name = p_name), 0) <> p_after then
        raise exception 'server % was registered by another process meanwhile', p_name using errcode = 'BL004';
    end if;
    select r.node_id, r.epoch into node_id, epoch
      from bearlake.register_server(p_name, p_zone, p_endpoints, p_version, p_timeout_ms) r;
end $$;
