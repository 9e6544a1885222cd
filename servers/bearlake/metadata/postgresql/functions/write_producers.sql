-- Writes the states of producers that a commit changed. The caller holds their partitions.
--
-- Parameters: one element per producer: p_partitions, p_producers (ids), p_states. p_now_ms: the time of the commit, ms.
-- Raises: none.

create or replace function bearlake.write_producers(
    p_partitions bigint[], p_producers bigint[], p_states bearlake.producer_state[], p_now_ms bigint
) returns void language plpgsql as $$
begin
    update bearlake.producer p
       set producer_epoch = u.producer_epoch, batches = u.batches, updated_ms = p_now_ms, used_minute = c.producer_minute
      from unnest(p_states) with ordinality u (producer_epoch, batches, is_known, is_changed, i), bearlake.cluster c
     where u.is_known and u.is_changed and p.partition = p_partitions[u.i] and p.producer_id = p_producers[u.i];
    insert into bearlake.producer
    select p_partitions[u.i], p_producers[u.i], u.producer_epoch, u.batches, p_now_ms, c.producer_minute
      from unnest(p_states) with ordinality u (producer_epoch, batches, is_known, is_changed, i), bearlake.cluster c
     where u.is_changed and not u.is_known;
end $$;
