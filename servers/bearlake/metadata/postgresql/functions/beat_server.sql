-- One heartbeat: the server is live. Waits for a transaction that takes one of its leases (acquire_lease), so that what the server looks
-- up afterwards is decided.
--
-- Parameters: p_node_id, p_epoch: the calling server and its epoch.
-- Returns: how often the server has lapsed.
-- Raises: BL001 the server's epoch is not its newest, or it has left.

create or replace function bearlake.beat_server(p_node_id integer, p_epoch bigint) returns bigint language plpgsql as $$
declare
    lapses bigint;
begin
    update bearlake.server s set heartbeat_count = s.heartbeat_count + 1, has_lapsed = false
     where s.node_id = p_node_id and s.epoch = p_epoch and not s.has_left
    returning s.lapse_count into lapses;
    if not found then
        perform bearlake.check_server(p_node_id, p_epoch);
    end if;
    return lapses;
end $$;
