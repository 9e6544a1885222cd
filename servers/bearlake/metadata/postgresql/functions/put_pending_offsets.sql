-- As put_transaction, and keeps offsets of a group until the transaction ends.
--
-- Parameters: as put_transaction: p_version; p_name, p_producer_id, p_epoch, p_state, p_timeout_ms, p_last_producer_id, p_last_epoch,
--   p_started_ms, p_partitions, p_groups. p_lease, p_lease_epoch: the group's lease and its epoch. p_node_id, p_server_epoch: the
--   server that holds it, and its epoch. p_group. One element per partition: p_offset_partitions, p_offsets, p_leader_epochs, p_metadata.
-- Returns: the row as stored.
-- Raises: BL001 as check_lease; BL004 as put_transaction.

create or replace function bearlake.put_pending_offsets(
    p_name text, p_version bigint, p_producer_id bigint, p_epoch integer, p_state integer, p_timeout_ms bigint,
    p_last_producer_id bigint, p_last_epoch integer, p_started_ms bigint, p_partitions bigint[], p_groups text[],
    p_lease text, p_lease_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text,
    p_offset_partitions bigint[], p_offsets bigint[], p_leader_epochs integer[], p_metadata text[]
) returns setof bearlake.transactional_id language plpgsql as $$
begin
    return query select * from bearlake.put_transaction(
        p_name, p_version, p_producer_id, p_epoch, p_state, p_timeout_ms, p_last_producer_id, p_last_epoch, p_started_ms,
        p_partitions, p_groups);
    perform bearlake.check_lease(p_lease, p_lease_epoch, p_node_id, p_server_epoch);
    insert into bearlake.pending_offset
    select p_producer_id, p_group, u.partition, u.o, u.e, u.m
      from unnest(p_offset_partitions, p_offsets, p_leader_epochs, p_metadata) u (partition, o, e, m) order by u.partition
    on conflict (producer_id, name, partition) do update
       set committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata;
end $$;
