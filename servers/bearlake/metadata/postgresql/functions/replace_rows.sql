-- Replaces the index rows of one turn of a swap's moves: one range of each partition.
--
-- Parameters: p_moves. p_page_slices: slices of one index page. p_kind: compaction.TaskKind. One element per new slice: p_bases, p_counts
--   (records), p_positions, p_lengths (bytes), p_timestamps (ms), p_numbers (its object).
-- Returns: by move: partitions, old_sizes (readable bytes of the old rows). placed: the object of each new row. oldest_ms: commit time of
--   the oldest of the old objects.
-- Raises: BL004 the index does not have as many readable bytes for a range, or names objects of another kind.

create or replace function bearlake.replace_rows(
    p_moves bearlake.move[], p_page_slices integer, p_kind smallint,
    p_bases bigint[], p_counts bigint[], p_positions bigint[], p_lengths bigint[], p_timestamps bigint[], p_numbers bigint[],
    out partitions bigint[], out old_sizes bigint[], out placed bigint[], out oldest_ms bigint
) language plpgsql as $$
declare
    bad text;
    replaced bigint[];
    foreign_count bigint;
begin
    with moves as materialized (
        select * from unnest(p_moves)
    ), hit as materialized (
        select m.p, m.s, m.e, m.f, m.l, m.start, q.base_offset as page
          from moves m, lateral (
              select q.base_offset from bearlake.index_page q
               where q.partition = m.p and q.base_offset < m.e and q.end_offset > m.s
                 and q.base_offset >= coalesce((select max(f.base_offset) from bearlake.index_page f
                                                 where f.partition = m.p and f.base_offset <= m.s), 0)) q
    ), gone as (
        delete from bearlake.index_page d using hit h where d.partition = h.p and d.base_offset = h.page
        returning h.p, h.s, h.e, h.start, d.base_offsets, d.record_counts, d.positions, d.lengths, d.timestamps, d.objects
    ), old as materialized (
        select g.p, g.start, x.*, x.b < g.e and x.b + x.c > g.s as is_replaced
          from gone g,
               lateral unnest(g.base_offsets, g.record_counts, g.positions, g.lengths, g.timestamps, g.objects) x (b, c, a, l, t, o)
    ), new as materialized (
        select m.p, m.start, x.*
          from moves m, lateral unnest(p_bases[m.f:m.l], p_counts[m.f:m.l], p_positions[m.f:m.l], p_lengths[m.f:m.l],
                                       p_timestamps[m.f:m.l], p_numbers[m.f:m.l]) x (b, c, a, l, t, o)
         where x.b + x.c > m.start
    ), numbered as (
        select r.*, (row_number() over (partition by r.p order by r.b) - 1) / p_page_slices as page
          from (select p, b, c, a, l, t, o from old where not is_replaced
                union all
                select p, b, c, a, l, t, o from new) r
    ), made as (
        insert into bearlake.index_page
        select n.p, min(n.b), max(n.b + n.c), max(n.t), sum(n.l)::bigint,
               array_agg(n.b order by n.b), array_agg(n.c order by n.b), array_agg(n.a order by n.b),
               array_agg(n.l order by n.b), array_agg(n.t order by n.b), array_agg(n.o order by n.b)
          from numbered n group by n.p, n.page
    ), checked as (
        -- One row of each move (w = 0), its old rows (1), its new rows (2).
        select j.p, min(j.start) as start, min(j.s) as s, min(j.e) as e,
               min(j.b) filter (where w = 1) as old_s, max(j.b + j.c) filter (where w = 1) as old_e,
               sum(j.c) filter (where w = 1) as old_count,
               coalesce(sum(j.l) filter (where w = 1 and j.b + j.c > j.start), 0)::bigint as old_size,
               coalesce(sum(j.l) filter (where w = 2), 0)::bigint as new_size
          from (select 0 as w, p, start, s, e, null::bigint as b, null::bigint as c, null::bigint as l from moves
                union all
                select 1, p, start, null, null, b, c, l from old where is_replaced
                union all
                select 2, p, start, null, null, b, c, l from new) j
         group by j.p
    )
    select (select format('partition %s has no rows from %s to %s with as many bytes', j.p, j.s, j.e) from checked j
             where ((j.old_s = j.s or j.old_s between j.s and j.start) and j.old_e = j.e and j.old_count = j.old_e - j.old_s
                    and (j.old_size = j.new_size or j.start > j.s)) is not true
             limit 1),
           (select array_agg(o.o) from old o where o.is_replaced),
           (select array_agg(n.o) from new n),
           array_agg(j.p order by j.p), array_agg(j.old_size order by j.p)
      into bad, replaced, placed, partitions, old_sizes
      from checked j;
    if bad is not null then
        raise exception '%', bad using errcode = 'BL004';
    end if;

    -- A COMPACT task replaces slices of WAL objects, a MERGE segments of data files.
    select min(o.committed_ms), count(*) filter (where o.kind <> p_kind - 1) into oldest_ms, foreign_count
      from (select distinct n from unnest(replaced) n) u join bearlake.object o on o.number = u.n and o.number <> -1;
    if foreign_count > 0 then
        raise exception 'the index names objects of another kind for these offsets' using errcode = 'BL004';
    end if;
    perform bearlake.release_objects(replaced);
end $$;
