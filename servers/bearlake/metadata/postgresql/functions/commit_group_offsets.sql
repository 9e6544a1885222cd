-- Saves committed offsets of a consumer group. They are newer than those that open transactions hold for the same partitions: these go.
--
-- Parameters: p_lease, p_epoch: the lease and its epoch. p_node_id, p_server_epoch: the server that holds it, and its epoch. p_group. One
--   element per partition: p_partitions, p_offsets, p_leader_epochs, p_metadata.
-- Raises: BL001 as check_lease.

create or replace function bearlake.commit_group_offsets(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text,
    p_partitions bigint[], p_offsets bigint[], p_leader_epochs integer[], p_metadata text[]
) returns void language plpgsql as $$
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    -- Before the offsets, as delete_group does; in the order in which end_transaction deletes.
    perform from bearlake.pending_offset o where o.name = p_group and o.partition = any (p_partitions)
      order by o.producer_id, o.name, o.partition for update;
    if found then
        delete from bearlake.pending_offset o where o.name = p_group and o.partition = any (p_partitions);
    end if;
    insert into bearlake.group_offset
    select p_group, u.partition, u.o, u.e, u.m, bearlake.now_ms()
      from unnest(p_partitions, p_offsets, p_leader_epochs, p_metadata) u (partition, o, e, m) order by u.partition
    on conflict (name, partition) do update
       set committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch,
           metadata = excluded.metadata, committed_ms = excluded.committed_ms;
end $$;
