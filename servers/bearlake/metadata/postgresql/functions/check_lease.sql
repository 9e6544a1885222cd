-- Checks a lease, and holds its row until the transaction ends, so that no server takes it over in the middle of a fenced write.
--
-- Parameters: p_name, p_epoch: the lease and its epoch. p_node_id, p_server_epoch: the server that holds it, and its epoch.
-- Raises: BL001 another server holds the lease, or the server's epoch is not its newest.

create or replace function bearlake.check_lease(p_name text, p_epoch bigint, p_node_id integer, p_server_epoch bigint)
returns void language plpgsql as $$
begin
    perform from bearlake.lease l
      where l.name = p_name and l.epoch = p_epoch and l.node_id = p_node_id and l.server_epoch = p_server_epoch for share;
    if not found then
        raise exception 'lease % of epoch % is overtaken', p_name, p_epoch using errcode = 'BL001';
    end if;
    perform bearlake.check_server(p_node_id, p_server_epoch);
end $$;
