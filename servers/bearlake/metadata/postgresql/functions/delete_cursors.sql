-- Deletes cursors of the given generations. The partition's number of deletions grows. Rules: metadata/cursor_rules.py.
--
-- Parameters: p_lease, p_epoch: the lease and its epoch. p_node_id, p_server_epoch: the server that holds it, and its epoch. p_partition.
--   One element per cursor: p_names, p_generations. p_after: the number of deletions that the caller knows.
-- Raises: BL001 as check_lease; BL004 subscriptions were found or deleted meanwhile.

create or replace function bearlake.delete_cursors_as_of(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_partition bigint, p_names text[], p_generations bigint[],
    p_after bigint
) returns void language plpgsql as $$
declare
    deletions bigint;
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.partition_epoch (partition, epoch) values (p_partition, 0) on conflict (partition) do nothing;
    select e.deletion_count into deletions from bearlake.partition_epoch e where e.partition = p_partition for no key update;
    if deletions <> p_after then
        raise exception 'subscriptions of partition % were found or deleted meanwhile', p_partition using errcode = 'BL004';
    end if;
    update bearlake.partition_epoch e set deletion_count = e.deletion_count + 1 where e.partition = p_partition;
    delete from bearlake.subscription_cursor c using unnest(p_names, p_generations) u (name, generation)
     where c.partition = p_partition and c.name = u.name and c.generation = u.generation;
end $$;
