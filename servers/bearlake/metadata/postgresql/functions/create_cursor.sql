-- The cursor of a subscription, made if there is none. If there is one, the partition's number of deletions grows: deletions that name
-- the former number are refused from then on. The row of partition_epoch orders them: a transaction that holds it sees all before.
--
-- Parameters: p_partition, p_name. p_mark_delete: offset, moved into the partition's bounds. p_properties: JSON object of strings.
--   p_after: the number of deletions that the caller knows.
-- Returns: the cursor's row.
-- Raises: BL002 no such partition; BL004 subscriptions of the partition were deleted meanwhile.

create or replace function bearlake.create_cursor_as_of(
    p_partition bigint, p_name text, p_mark_delete bigint, p_properties text, p_after bigint
) returns setof bearlake.subscription_cursor language plpgsql as $$
declare
    deletions bigint;
begin
    perform from bearlake.partition_group g
      where g.group_key = p_partition >> 5 and g.starts[(p_partition & 31) + 1] is not null for key share;
    if not found then
        raise exception 'no partition %', p_partition using errcode = 'BL002';
    end if;
    insert into bearlake.partition_epoch (partition, epoch) values (p_partition, 0) on conflict (partition) do nothing;
    select e.deletion_count into deletions from bearlake.partition_epoch e where e.partition = p_partition for no key update;
    return query select * from bearlake.subscription_cursor c where c.partition = p_partition and c.name = p_name;
    if found then
        update bearlake.partition_epoch e set deletion_count = e.deletion_count + 1 where e.partition = p_partition;
        return;
    end if;
    if deletions <> p_after then
        raise exception 'subscriptions of partition % were deleted meanwhile', p_partition using errcode = 'BL004';
    end if;
    return query select * from bearlake.create_cursor(p_partition, p_name, p_mark_delete, p_properties);
end $$;

-- Makes it without this check, or returns the cursor that there is. The caller holds the row of partition_epoch. The partition cannot be
-- deleted meanwhile.
create or replace function bearlake.create_cursor(p_partition bigint, p_name text, p_mark_delete bigint, p_properties text)
returns setof bearlake.subscription_cursor language plpgsql as $$
declare
    bounds bigint[];
begin
    select array[g.starts[(p_partition & 31) + 1], g.ends[(p_partition & 31) + 1]] into bounds
      from bearlake.partition_group g where g.group_key = p_partition >> 5 for key share;
    if bounds[1] is null then
        raise exception 'no partition %', p_partition using errcode = 'BL002';
    end if;
    insert into bearlake.subscription_cursor
    values (p_partition, p_name, least(greatest(p_mark_delete, bounds[1]), bounds[2]), '', p_properties, bearlake.now_ms(), 0,
            coalesce((select e.deletion_count from bearlake.partition_epoch e where e.partition = p_partition), 0))
    on conflict (partition, name) do nothing;
    return query select * from bearlake.subscription_cursor c where c.partition = p_partition and c.name = p_name;
end $$;
