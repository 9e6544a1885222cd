-- Replaces the row of a transactional id: a compare-and-set on its version. The row is the first lock of every function that takes it.
--
-- Parameters: p_version: the row's version, 0: there is none. The row afterwards: p_name, p_producer_id, p_epoch, p_state (1: ongoing),
--   p_timeout_ms, p_last_producer_id, p_last_epoch, p_started_ms (-1 with an ongoing transaction: it begins now), p_partitions, p_groups.
-- Returns: the row as stored.
-- Raises: BL004 the row has another version.

create or replace function bearlake.put_transaction(
    p_name text, p_version bigint, p_producer_id bigint, p_epoch integer, p_state integer, p_timeout_ms bigint,
    p_last_producer_id bigint, p_last_epoch integer, p_started_ms bigint, p_partitions bigint[], p_groups text[]
) returns setof bearlake.transactional_id language plpgsql as $$
declare
    now_ms constant bigint := bearlake.now_ms();
    started constant bigint := case when p_state <> 1 then -1 when p_started_ms < 0 then now_ms else p_started_ms end;
begin
    if p_version = 0 then
        return query
            insert into bearlake.transactional_id
            values (p_name, p_producer_id, p_epoch, p_state, p_timeout_ms, p_last_producer_id, p_last_epoch, started, now_ms,
                    p_partitions, p_groups, 1)
            on conflict (name) do nothing returning *;
    else
        return query
            update bearlake.transactional_id t
               set producer_id = p_producer_id, epoch = p_epoch, state = p_state, timeout_ms = p_timeout_ms,
                   last_producer_id = p_last_producer_id, last_epoch = p_last_epoch, started_ms = started, changed_ms = now_ms,
                   partitions = p_partitions, consumer_groups = p_groups, version = t.version + 1
             where t.name = p_name and t.version = p_version returning *;
    end if;
    if not found then
        raise exception 'the transactional id % has changed since version %', p_name, p_version using errcode = 'BL004';
    end if;
end $$;
