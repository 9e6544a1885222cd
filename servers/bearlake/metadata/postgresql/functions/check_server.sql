-- Checks that this is the newest epoch of the server, and that it has not left.
--
-- Parameters: p_node_id, p_epoch: the calling server and its epoch.
-- Raises: BL001 if not.

create or replace function bearlake.check_server(p_node_id integer, p_epoch bigint) returns void language plpgsql as $$
begin
    if not exists (select from bearlake.server s where s.node_id = p_node_id and s.epoch = p_epoch and not s.has_left) then
        raise exception 'epoch % of server % is not its newest, or it has left', p_epoch, p_node_id using errcode = 'BL001';
    end if;
end $$;
