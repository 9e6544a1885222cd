-- Marks a server as left: its leases are free, because it is not live. Holds the log's head as register_server does.
--
-- Parameters: p_node_id, p_epoch: the calling server and its epoch.
-- Raises: none.

create or replace function bearlake.leave_server(p_node_id integer, p_epoch bigint) returns void language plpgsql as $$
begin
    perform from bearlake.log_head for update;
    update bearlake.server s set has_left = true where s.node_id = p_node_id and s.epoch = p_epoch;
end $$;
