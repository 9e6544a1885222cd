-- Streams with records that are not compacted, by number. The age is that of the oldest among the 32 partitions with the most bytes.
--
-- Returns: size: bytes. age_ms.
-- Raises: none.

create or replace function bearlake.stream_backlogs()
returns table (stream_number bigint, size bigint, record_count bigint, partition_count bigint, age_ms bigint)
language sql stable as $$
    with open as materialized (
        select b.*, row_number() over (partition by b.partition >> 20 order by b.size desc) as place
          from bearlake.partition_group g join bearlake.compaction_group c on c.group_key = g.group_key,
               lateral bearlake.backlog_of(g, c) b
         where g.ends <> c.offsets
    ), asked as (
        select array_agg(o.partition order by o.partition) as partitions, array_agg(o.compacted order by o.partition) as offsets
          from open o where o.place <= 32
    )
    select r.n, sum(r.z)::bigint, sum(r.c)::bigint, sum(r.one)::bigint, greatest(0, bearlake.now_ms() - min(r.ms))
      from (select o.partition >> 20 as n, o.size as z, o.end_offset - o.compacted as c, 1 as one, null::bigint as ms from open o
            union all
            select t.partition >> 20, 0, 0, 0, t.committed_ms
              from asked a, lateral bearlake.commit_times(a.partitions, a.offsets) t) r
     group by r.n order by r.n
$$;
