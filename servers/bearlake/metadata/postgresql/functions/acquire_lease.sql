-- Takes a lease that is free, or whose holder is not live. Locks the lease, then the row of its holder: the holder's next heartbeat waits
-- for the end of this transaction, so a server is never revived while another, which has seen it lapsed, takes its lease.
--
-- Parameters: p_name: the lease. p_node_id, p_epoch: the calling server and its epoch.
-- Returns: the lease's epoch.
-- Raises: BL001 the caller is not live; BL004 a live server holds the lease.

create or replace function bearlake.acquire_lease(p_name text, p_node_id integer, p_epoch bigint) returns bigint language plpgsql as $$
declare
    held bearlake.lease;
begin
    perform bearlake.check_server(p_node_id, p_epoch);
    if not bearlake.is_live(p_node_id, p_epoch) then
        raise exception 'epoch % of server % is not live', p_epoch, p_node_id using errcode = 'BL001';
    end if;
    insert into bearlake.lease values (p_name, 1, p_node_id, p_epoch) on conflict (name) do nothing;
    if found then
        return 1;
    end if;
    select * into held from bearlake.lease l where l.name = p_name for update;
    if held.node_id = p_node_id and held.server_epoch = p_epoch then
        return held.epoch;
    end if;
    perform from bearlake.server s where s.node_id = held.node_id for share;
    if held.node_id is not null and bearlake.is_live(held.node_id, held.server_epoch) then
        raise exception 'lease is held by server %', held.node_id using errcode = 'BL004';
    end if;
    update bearlake.lease l set epoch = held.epoch + 1, node_id = p_node_id, server_epoch = p_epoch where l.name = p_name;
    return held.epoch + 1;
end $$;
