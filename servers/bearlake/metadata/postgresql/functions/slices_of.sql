-- The slices that overlap the ranges and their partitions' readable offsets, each once. One snapshot, as locate.
--
-- Parameters: One element per range: p_partitions, p_starts, p_ends (offsets, half-open).
-- Returns: slices by partition and offset; length and size are bytes.
-- Raises: none.

create or replace function bearlake.slices_of(p_partitions bigint[], p_starts bigint[], p_ends bigint[])
returns table (
    partition bigint, base_offset bigint, record_count bigint, at bigint, length bigint, max_timestamp bigint,
    key text, size bigint, kind smallint
) language sql stable set enable_hashjoin = on as $$
    with ranges as materialized (
        select u.p, greatest(u.s, g.starts[(u.p & 31) + 1]) as s, u.e
          from unnest(p_partitions, p_starts, p_ends) u (p, s, e)
          join bearlake.partition_group g on g.group_key = u.p >> 5
         where g.starts[(u.p & 31) + 1] is not null and u.e > greatest(u.s, g.starts[(u.p & 31) + 1])
    ), rolled as (
        select distinct r.p, x.*
          from ranges r,
               lateral (select * from bearlake.index_page q
                         where q.partition = r.p and q.base_offset < r.e and q.end_offset > r.s
                           and q.base_offset >= coalesce((select max(f.base_offset) from bearlake.index_page f
                                                           where f.partition = r.p and f.base_offset <= r.s), 0)) q,
               lateral unnest(q.base_offsets, q.record_counts, q.positions, q.lengths, q.timestamps, q.objects) x (b, c, a, l, t, o)
         where x.b < r.e and x.b + x.c > r.s
    ), unrolled as (
        select distinct s.p, s.b, s.c, s.a, s.l, s.t, s.o
          from (select l.position as o, x.*
                  from bearlake.log_tail e, bearlake.log l,
                       lateral unnest(l.partitions, l.base_offsets, l.record_counts, l.positions, l.lengths, l.timestamps)
                       x (p, b, c, a, l, t)
                 where l.position > e.rolled and l.kind = 1) s
          join ranges r on r.p = s.p and s.b < r.e and s.b + s.c > r.s
    )
    select s.p, s.b, s.c, s.a, s.l, s.t, o.key::text, o.size, o.kind
      from (select * from rolled union all select * from unrolled) s
      join bearlake.object o on o.number = s.o and o.number <> -1
     order by s.p, s.b
$$;
