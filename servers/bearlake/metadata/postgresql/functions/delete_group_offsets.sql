-- Deletes committed offsets of a consumer group, those of open transactions too (KIP-447).
--
-- Parameters: p_lease, p_epoch: the lease and its epoch. p_node_id, p_server_epoch: the server that holds it, and its epoch. p_group.
--   p_partitions.
-- Raises: BL001 as check_lease.

create or replace function bearlake.delete_group_offsets(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text, p_partitions bigint[]
) returns void language plpgsql as $$
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    delete from bearlake.pending_offset o where o.name = p_group and o.partition = any (p_partitions);
    delete from bearlake.group_offset o where o.name = p_group and o.partition = any (p_partitions);
end $$;
