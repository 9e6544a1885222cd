-- Cursors of a partition that exists, by name.
--
-- Parameters: p_partition.
-- Raises: none.

create or replace function bearlake.cursors_of(p_partition bigint) returns setof bearlake.subscription_cursor language sql stable as $$
    select c.* from bearlake.partition_group g join bearlake.subscription_cursor c on c.partition = p_partition
     where g.group_key = p_partition >> 5 and g.starts[(p_partition & 31) + 1] is not null order by c.name
$$;
