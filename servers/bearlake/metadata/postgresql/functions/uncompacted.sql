-- Partitions with records that are not compacted, by key. A group that was not written since it was compacted costs one comparison of
-- arrays.
--
-- Parameters: p_after: partitions after this one. p_limit: rows.
-- Returns: compacted: the compacted offset, or the start offset if that is larger. size: bytes. age_ms: of the oldest record.
-- Raises: none.

create or replace function bearlake.uncompacted(p_after bigint, p_limit integer)
returns table (partition bigint, compacted bigint, end_offset bigint, size bigint, age_ms bigint) language sql stable as $$
    with open as materialized (
        select b.*
          from bearlake.partition_group g join bearlake.compaction_group c on c.group_key = g.group_key,
               lateral bearlake.backlog_of(g, c) b
         where g.group_key >= p_after >> 5 and g.ends <> c.offsets and b.partition > p_after
         order by g.group_key, b.partition limit p_limit
    ), asked as (
        select array_agg(o.partition order by o.partition) as partitions, array_agg(o.compacted order by o.partition) as offsets from open o
    )
    -- A union instead of a join: no plan of it can be quadratic.
    select r.p, max(r.f), max(r.e), max(r.z), greatest(0, bearlake.now_ms() - max(r.ms))
      from (select o.partition as p, o.compacted as f, o.end_offset as e, o.size as z, null::bigint as ms from open o
            union all
            select t.partition, null, null, null, t.committed_ms
              from asked a, lateral bearlake.commit_times(a.partitions, a.offsets) t) r
     group by r.p having max(r.f) is not null order by r.p
$$;

-- Returns the partitions of one group with readable records that are not compacted: where they start and end, and their bytes.
create or replace function bearlake.backlog_of(p_group bearlake.partition_group, p_compacted bearlake.compaction_group)
returns table (partition bigint, compacted bigint, end_offset bigint, size bigint) language sql immutable as $$
    select (p_group.group_key << 5) + u.i - 1, greatest(u.c, u.s), u.e, u.z - greatest(u.y, u.b)
      from unnest(p_group.starts, p_group.ends, p_group.sizes, p_group.sizes_before, p_compacted.offsets, p_compacted.sizes)
           with ordinality u (s, e, z, b, c, y, i)
     where u.e > greatest(u.c, u.s)
$$;

-- Returns commit times (ms) of the slices that hold these offsets, which must be readable.
create or replace function bearlake.commit_times(p_partitions bigint[], p_offsets bigint[])
returns table (partition bigint, committed_ms bigint) language sql stable set enable_hashjoin = on as $$
    with asked as materialized (
        select u.p, u.f, (select q.objects[width_bucket(u.f, q.base_offsets)]
                            from (select * from bearlake.index_page i
                                   where i.partition = u.p and i.base_offset <= u.f order by i.base_offset desc limit 1) q
                           where q.end_offset > u.f) as number
          from unnest(p_partitions, p_offsets) u (p, f)
    ), unrolled as (
        select a.p, min(s.position) as number
          from (select l.position, x.* from bearlake.log_tail e, bearlake.log l,
                       lateral unnest(l.partitions, l.base_offsets, l.record_counts) x (p, b, c)
                 where l.position > e.rolled and l.kind = 1) s
          join asked a on a.p = s.p and s.b + s.c > a.f
         where a.number is null group by a.p
    )
    select n.p, o.committed_ms
      from (select a.p, a.number from asked a where a.number is not null union all select u.p, u.number from unrolled u) n
      join bearlake.object o on o.number = n.number and o.number <> -1
$$;
