-- Look-ups that tell the kind of an object, slices of many ranges at once, and starts that move by rule.

drop function bearlake.locate;

-- First row: start offset, end offset, log position. Then at most p_limit slices, in offset order, that end behind p_offset (and
-- the start offset) and have a max timestamp >= p_timestamp, unless that is null.
create function bearlake.locate(p_partition bigint, p_offset bigint, p_timestamp bigint, p_limit integer)
returns table (
    base_offset bigint, record_count bigint, at bigint, length bigint, max_timestamp bigint, key text, size bigint, kind smallint
) language plpgsql stable as $$
declare
    start bigint;
    floor_offset bigint;
    remaining integer := p_limit;
    part integer;
    page bearlake.index_page;
    entry bearlake.log;
begin
    select g.starts[(p_partition & 31) + 1], g.ends[(p_partition & 31) + 1], h.position into base_offset, record_count, at
      from bearlake.partition_group g, bearlake.log_head h where g.group_key = p_partition >> 5;
    if base_offset is null then
        raise exception 'no such partition' using errcode = 'BL002';
    end if;
    start := base_offset;
    floor_offset := greatest(p_offset, start);
    return next;

    for page in
        select * from bearlake.index_page p
         where p.partition = p_partition and p.end_offset > floor_offset
           and p.base_offset >= coalesce((select max(f.base_offset) from bearlake.index_page f
                                           where f.partition = p_partition and f.base_offset <= floor_offset), 0)
           and (p_timestamp is null or p.max_timestamp >= p_timestamp)
         order by p.base_offset
    loop
        exit when remaining <= 0;
        return query
            select s.b, s.c, s.p, s.l, s.t, o.key::text, o.size, o.kind
              from unnest(page.base_offsets, page.record_counts, page.positions, page.lengths, page.timestamps, page.objects)
                   with ordinality s (b, c, p, l, t, o, i)
              join bearlake.object o on o.number = s.o and o.number <> -1
             where s.b + s.c > floor_offset and (p_timestamp is null or s.t >= p_timestamp)
             order by s.i limit remaining;
        get diagnostics part = row_count;
        remaining := remaining - part;
    end loop;

    for entry in
        select l.* from bearlake.log l, bearlake.log_tail e
         where l.position > e.rolled and l.kind = 1 and l.partitions @> array[p_partition] order by l.position
    loop
        exit when remaining <= 0;
        return query
            select s.b, s.c, s.a, s.l, s.t, entry.object_key::text, entry.object_size, 0::smallint
              from unnest(entry.partitions, entry.base_offsets, entry.record_counts, entry.positions, entry.lengths,
                          entry.timestamps) with ordinality s (p, b, c, a, l, t, i)
             where s.p = p_partition and s.b + s.c > floor_offset and (p_timestamp is null or s.t >= p_timestamp)
             order by s.i limit remaining;
        get diagnostics part = row_count;
        remaining := remaining - part;
    end loop;
end $$;

-- Slices of the index and of the log that overlap the ranges and their partitions' readable offsets, each once.
create function bearlake.slices_of(p_partitions bigint[], p_starts bigint[], p_ends bigint[])
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

-- Bytes that are not readable any more when the start moves from p_from to p_to. A row that a swap brought may hold bytes that lay
-- below the start already and are not counted twice: what is left behind it tells.
create function bearlake.trimmed_size(p_partition bigint, p_from bigint, p_to bigint, p_usage bigint) returns bigint language sql stable as $$
    select case when p.base < p_from and p.number < -1 and p.base + p.count <= p_to
                then greatest(0, p_usage - bearlake.size_between(p_partition, p_to, 9223372036854775807))
                else bearlake.size_between(p_partition, p_from, p_to) end
      from (select 1) one
      left join (select q.base_offsets[q.i] as base, q.record_counts[q.i] as count, q.objects[q.i] as number
                   from (select i.*, width_bucket(p_from, i.base_offsets) as i from bearlake.index_page i
                          where i.partition = p_partition and i.base_offset <= p_from order by i.base_offset desc limit 1) q
                  where q.end_offset > p_from) p on true
$$;

-- Moves the start; the caller holds the partition's groups, has checked p_start, and writes the entry.
create function bearlake.move_start(p_partition bigint, p_start bigint) returns void language plpgsql as $$
declare
    slot constant integer := (p_partition & 31) + 1;
begin
    update bearlake.partition_group g
       set starts[slot] = p_start,
           sizes_before[slot] = g.sizes_before[slot] + bearlake.trimmed_size(
               p_partition, g.starts[slot], p_start, g.sizes[slot] - g.sizes_before[slot])
     where g.group_key = p_partition >> 5;
end $$;

-- Writes one TRIM entry for each partition, and what is to be swept behind it.
create function bearlake.write_trims(p_partitions bigint[], p_starts bigint[]) returns void language plpgsql as $$
declare
    last bigint;
begin
    update bearlake.log_head h set position = h.position + cardinality(p_partitions) returning h.position into last;
    insert into bearlake.log (position, kind, partition, start_offset)
    select last - cardinality(p_partitions) + u.i, 2, u.p, u.s from unnest(p_partitions, p_starts) with ordinality u (p, s, i);
    insert into bearlake.sweep
    select last - cardinality(p_partitions) + u.i, u.p, u.p, u.s from unnest(p_partitions, p_starts) with ordinality u (p, s, i);
    perform pg_notify('bearlake.log', last::text);
end $$;

-- Whoever moves a start holds the compaction group: a swap must see the start that holds when it ends.
create or replace function bearlake.trim_partition(p_partition bigint, p_start bigint, out start_offset bigint, out end_offset bigint)
language plpgsql as $$
declare
    slot constant integer := (p_partition & 31) + 1;
begin
    perform from bearlake.compaction_group c where c.group_key = p_partition >> 5 for share;
    select g.starts[slot], g.ends[slot] into start_offset, end_offset
      from bearlake.partition_group g where g.group_key = p_partition >> 5 for no key update;
    if start_offset is null then
        raise exception 'no such partition' using errcode = 'BL002';
    end if;
    if p_start > end_offset then
        raise exception 'offset % is behind the end offset', p_start
            using errcode = 'BL003', detail = start_offset || ' ' || end_offset;
    end if;
    if p_start > start_offset then
        perform bearlake.move_start(p_partition, p_start);
        perform bearlake.write_trims(array[p_partition], array[p_start]);
        start_offset := p_start;
    end if;
end $$;

-- Where the partition would start by rule: slices go from the front while they are older than p_oldest_ms, or while more than
-- p_size_max bytes remain without them. Null when nothing goes.
create function bearlake.retained_start(p_partition bigint, p_oldest_ms bigint, p_size_max bigint) returns bigint
language plpgsql stable as $$
declare
    slot constant integer := (p_partition & 31) + 1;
    start bigint;
    retained bigint;
    size bigint;
    one record;
begin
    select g.starts[slot], g.sizes[slot] - g.sizes_before[slot] into start, size
      from bearlake.partition_group g where g.group_key = p_partition >> 5 and g.starts[slot] < g.ends[slot];
    if start is null or (p_oldest_ms is null and size <= p_size_max) then
        return null;
    end if;
    -- First the pages, one after the other, then the entries behind them.
    for one in
        select x.b + x.c as e, x.l, x.t
          from bearlake.index_page q,
               lateral unnest(q.base_offsets, q.record_counts, q.lengths, q.timestamps) with ordinality x (b, c, l, t, i)
         where q.partition = p_partition and q.end_offset > start and x.b + x.c > start
           and q.base_offset >= coalesce((select max(f.base_offset) from bearlake.index_page f
                                           where f.partition = p_partition and f.base_offset <= start), 0)
         order by q.base_offset, x.i
    loop
        if (one.t < p_oldest_ms or size - one.l > p_size_max) is not true then
            return retained;
        end if;
        retained := one.e;
        size := size - one.l;
    end loop;
    for one in
        select x.b + x.c as e, x.l, x.t
          from bearlake.log_tail e, bearlake.log l,
               lateral unnest(l.partitions, l.base_offsets, l.record_counts, l.lengths, l.timestamps) with ordinality x (p, b, c, l, t, i)
         where l.position > e.rolled and l.kind = 1 and l.partitions @> array[p_partition] and x.p = p_partition and x.b + x.c > start
         order by l.position, x.i
    loop
        if (one.t < p_oldest_ms or size - one.l > p_size_max) is not true then
            return retained;
        end if;
        retained := one.e;
        size := size - one.l;
    end loop;
    return retained;
end $$;

-- Moves starts by rule; returns the bounds of the partitions that moved. First without locks: mostly nothing is to be moved.
create function bearlake.retain(p_partitions bigint[], p_before_ms bigint, p_size_max bigint)
returns table (partition bigint, start_offset bigint, end_offset bigint) language plpgsql as $$
declare
    oldest_ms constant bigint := bearlake.now_ms() - p_before_ms;
    candidates bigint[];
    partitions bigint[];
    starts bigint[];
begin
    candidates := array(select u from unnest(p_partitions) u where bearlake.retained_start(u, oldest_ms, p_size_max) is not null);
    if cardinality(candidates) = 0 then
        return;
    end if;
    perform from bearlake.compaction_group c
      where c.group_key in (select distinct u >> 5 from unnest(candidates) u) order by c.group_key for share;
    perform from bearlake.partition_group g
      where g.group_key in (select distinct u >> 5 from unnest(candidates) u) order by g.group_key for no key update;
    select array_agg(r.p), array_agg(r.s) into partitions, starts
      from (select u as p, bearlake.retained_start(u, oldest_ms, p_size_max) as s
              from (select distinct c from unnest(candidates) c) d (u)) r
     where r.s is not null;
    if partitions is null then
        return;
    end if;
    perform bearlake.move_start(u.p, u.s) from unnest(partitions, starts) u (p, s);
    perform bearlake.write_trims(partitions, starts);
    return query
        select u.p, u.s, g.ends[(u.p & 31) + 1]
          from unnest(partitions, starts) u (p, s) join bearlake.partition_group g on g.group_key = u.p >> 5;
end $$;
