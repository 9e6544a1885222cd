-- Deletes a consumer group with its offsets, those of open transactions too (KIP-447).
--
-- Parameters: p_lease, p_epoch: the lease and its epoch. p_node_id, p_server_epoch: the server that holds it, and its epoch. p_group.
-- Raises: BL001 as check_lease; BL002 no such group.

create or replace function bearlake.delete_group(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text
) returns void language plpgsql as $$
declare
    had_snapshot boolean;
    had_pending boolean;
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    delete from bearlake.consumer_group c where c.name = p_group;
    had_snapshot := found;
    -- Before the offsets: a transaction that ends meanwhile has put its offsets in place when this returns.
    delete from bearlake.pending_offset o where o.name = p_group;
    had_pending := found;
    delete from bearlake.group_offset o where o.name = p_group;
    if not (found or had_snapshot or had_pending) then
        raise exception 'no group %', p_group using errcode = 'BL002';
    end if;
end $$;
