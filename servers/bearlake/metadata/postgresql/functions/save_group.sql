-- Saves the state of a consumer group. Locks the lease, then the server. The group may have no offsets.
--
-- Parameters: p_lease, p_epoch: the lease and its epoch. p_node_id, p_server_epoch: the server that holds it, and its epoch. p_group.
--   p_protocol_type. p_state.
-- Raises: BL001 as check_lease.

create or replace function bearlake.save_group(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text, p_protocol_type text, p_state bytea
) returns void language plpgsql as $$
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.consumer_group values (p_group, p_protocol_type, p_state)
    on conflict (name) do update set protocol_type = excluded.protocol_type, state = excluded.state;
end $$;
