-- Registers a server under a new epoch, if the caller knows the last epoch of its name. Holds the log's head, so that no commit of a
-- former epoch is between its check and its end.
--
-- Parameters: p_name. p_after: last epoch of the name, 0: never registered. p_zone. p_endpoints: object. p_version. p_timeout_ms: the
--   server counts as lapsed after so long without a heartbeat, ms.
-- Returns: node_id, epoch.
-- Raises: BL004 another process registered it meanwhile.

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

-- Registers it without this check. An epoch is larger than that of every server.
create or replace function bearlake.register_server(
    p_name text, p_zone text, p_endpoints jsonb, p_version text, p_timeout_ms bigint, out node_id integer, out epoch bigint
) language plpgsql as $$
begin
    perform from bearlake.log_head for update;
    insert into bearlake.server as s (node_id, name, epoch, zone, endpoints, version, timeout_ms)
    select coalesce(max(o.node_id) + 1, 0), p_name, coalesce(max(o.epoch), 0) + 1, p_zone, p_endpoints, p_version, p_timeout_ms
      from bearlake.server o
    on conflict (name) do update
       set epoch = excluded.epoch, zone = excluded.zone, endpoints = excluded.endpoints, version = excluded.version,
           timeout_ms = excluded.timeout_ms, heartbeat_count = 0, lapse_count = 0, has_lapsed = false, is_draining = false,
           has_left = false
    returning s.node_id, s.epoch into node_id, epoch;
end $$;
