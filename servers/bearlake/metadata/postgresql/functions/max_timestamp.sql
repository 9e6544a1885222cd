-- The largest timestamp of the slices that end after the partition's start offset.
--
-- Parameters: p_partition.
-- Returns: milliseconds; null: there are no slices.
-- Raises: none.

create or replace function bearlake.max_timestamp(p_partition bigint) returns bigint language sql stable as $$
    with bound as (
        select g.starts[(p_partition & 31) + 1] as start from bearlake.partition_group g where g.group_key = p_partition >> 5
    )
    select max(t) from (
        select case when p.base_offset >= bound.start then p.max_timestamp else
                   (select max(s.t) from unnest(p.base_offsets, p.record_counts, p.timestamps) s (b, c, t)
                     where s.b + s.c > bound.start) end as t
          from bound, bearlake.index_page p
         where p.partition = p_partition and p.end_offset > bound.start
        union all
        select s.t
          from bound, bearlake.log_tail e, bearlake.log l,
               lateral unnest(l.partitions, l.base_offsets, l.record_counts, l.timestamps) s (p, b, c, t)
         where l.position > e.rolled and l.kind = 1 and l.partitions @> array[p_partition] and s.p = p_partition and s.b + s.c > bound.start
    ) found
$$;
