-- Marks a server as lapsed, if it has sent no heartbeat since the caller counted. A repeat changes nothing and returns true.
--
-- Parameters: p_node_id, p_epoch: the server that lapsed and its epoch. p_heartbeat_count: its heartbeats as counted.
-- Returns: whether it has lapsed.
-- Raises: none.

create or replace function bearlake.lapse_server(p_node_id integer, p_epoch bigint, p_heartbeat_count bigint)
returns boolean language plpgsql as $$
begin
    update bearlake.server s set has_lapsed = true, lapse_count = s.lapse_count + (not s.has_lapsed)::integer
     where s.node_id = p_node_id and s.epoch = p_epoch and not s.has_left and s.heartbeat_count = p_heartbeat_count;
    return found;
end $$;
