-- Look-up of committed slices: index pages for what is rolled up, the log for what is newer. A stable function sees one snapshot,
-- so a concurrent roll-up neither hides a slice nor shows it twice.

-- First row: start offset, end offset, log position. Then at most p_limit slices, in offset order, that end behind p_offset (and
-- the start offset) and have a max timestamp >= p_timestamp, unless that is null.
create function bearlake.locate(p_partition bigint, p_offset bigint, p_timestamp bigint, p_limit integer)
returns table (base_offset bigint, record_count bigint, at bigint, length bigint, max_timestamp bigint, key text, size bigint)
language plpgsql stable as $$
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
            select s.b, s.c, s.p, s.l, s.t, o.key::text, o.size
              from unnest(page.base_offsets, page.record_counts, page.positions, page.lengths, page.timestamps, page.objects)
                   with ordinality s (b, c, p, l, t, o, i)
              join bearlake.object o on o.position = s.o and o.position > 0
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
            select s.b, s.c, s.a, s.l, s.t, entry.object_key::text, entry.object_size
              from unnest(entry.partitions, entry.base_offsets, entry.record_counts, entry.positions, entry.lengths,
                          entry.timestamps) with ordinality s (p, b, c, a, l, t, i)
             where s.p = p_partition and s.b + s.c > floor_offset and (p_timestamp is null or s.t >= p_timestamp)
             order by s.i limit remaining;
        get diagnostics part = row_count;
        remaining := remaining - part;
    end loop;
end $$;

-- The largest timestamp of the slices that end behind the partition's start offset, null if there is none.
create function bearlake.max_timestamp(p_partition bigint) returns bigint language sql stable as $$
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

-- Bytes of the slices that end in (p_from, p_to].
create function bearlake.size_between(p_partition bigint, p_from bigint, p_to bigint) returns bigint language sql stable as $$
    select coalesce(sum(size), 0)::bigint from (
        select case when p.base_offset >= p_from and p.end_offset <= p_to then p.size_bytes else
                   (select sum(s.l) from unnest(p.base_offsets, p.record_counts, p.lengths) s (b, c, l)
                     where s.b + s.c > p_from and s.b + s.c <= p_to) end as size
          from bearlake.index_page p
         where p.partition = p_partition and p.end_offset > p_from and p.base_offset < p_to
        union all
        select s.l
          from bearlake.log_tail e, bearlake.log l,
               lateral unnest(l.partitions, l.base_offsets, l.record_counts, l.lengths) s (p, b, c, l)
         where l.position > e.rolled and l.kind = 1 and l.partitions @> array[p_partition] and s.p = p_partition
           and s.b + s.c > p_from and s.b + s.c <= p_to
    ) found
$$;

create function bearlake.trim_partition(p_partition bigint, p_start bigint, out start_offset bigint, out end_offset bigint)
language plpgsql as $$
declare
    slot constant integer := (p_partition & 31) + 1;
    at bigint;
    gone bigint;
begin
    select g.starts[slot], g.ends[slot] into start_offset, end_offset
      from bearlake.partition_group g where g.group_key = p_partition >> 5 for no key update;
    if start_offset is null then
        raise exception 'no such partition' using errcode = 'BL002';
    end if;
    if p_start > end_offset then
        raise exception 'offset % is behind the end offset', p_start
            using errcode = 'BL003', detail = start_offset || ' ' || end_offset;
    end if;
    if p_start <= start_offset then
        return;
    end if;
    gone := bearlake.size_between(p_partition, start_offset, p_start);
    update bearlake.partition_group g set starts[slot] = p_start, sizes_before[slot] = sizes_before[slot] + gone
     where g.group_key = p_partition >> 5;
    start_offset := p_start;
    at := bearlake.next_position();
    insert into bearlake.log (position, kind, partition, start_offset)
    values (at, 2, p_partition, p_start);
    insert into bearlake.sweep values (at, p_partition, p_partition, p_start);
    perform pg_notify('bearlake.log', at::text);
end $$;

-- Copies the oldest entries that are only in the log, at most p_entry_limit with together p_slice_limit slices (but at least one),
-- into index pages of about p_page_slices; then deletes rolled up entries except the newest p_entry_count_min, at most twice
-- p_entry_limit. One caller works (it holds the tail's row), the others return 0. Returns the number of entries rolled up.
create function bearlake.roll_up(
    p_entry_count_min bigint, p_entry_limit integer, p_slice_limit integer, p_page_slices integer
) returns bigint language plpgsql as $$
declare
    tail bearlake.log_tail;
    upto bigint;
    cut bigint;
    head bigint;
begin
    select * into tail from bearlake.log_tail t for update skip locked;
    if not found then
        return 0;
    end if;
    select h.position into head from bearlake.log_head h;
    select coalesce(max(c.position), tail.rolled) into upto
      from (select l.position, sum(coalesce(cardinality(l.partitions), 0)) over (order by l.position) as slice_count
              from (select * from bearlake.log f where f.position > tail.rolled order by f.position limit p_entry_limit) l) c
     where c.slice_count <= p_slice_limit or c.position = tail.rolled + 1;
    cut := least(upto, head - p_entry_count_min, tail.truncated + 2 * p_entry_limit);
    if upto > tail.rolled then
        perform bearlake.append_pages(tail.rolled, upto, p_page_slices);
    end if;
    if cut > tail.truncated then
        delete from bearlake.log l where l.position > tail.truncated and l.position <= cut;
    end if;
    if upto > tail.rolled or cut > tail.truncated then
        update bearlake.log_tail set rolled = upto, truncated = greatest(cut, tail.truncated);
    end if;
    return upto - tail.rolled;
end $$;

-- Appends the slices of the entries (p_from, p_upto] to the pages of their partitions.
create function bearlake.append_pages(p_from bigint, p_upto bigint, p_page_slices integer) returns void language sql as $$
    insert into bearlake.index_page as page
    with slices as (
        select s.*, l.position as o
          from bearlake.log l,
               lateral unnest(l.partitions, l.base_offsets, l.record_counts, l.positions, l.lengths, l.timestamps)
               s (partition, b, c, p, l, t)
         where l.position > p_from and l.position <= p_upto and l.kind = 1
         order by s.partition, s.b
    ), appended as (
        select partition, min(b) as base_offset, max(b + c) as end_offset, max(t) as max_timestamp,
               sum(l)::bigint as size_bytes, count(*) as slice_count,
               array_agg(b) as base_offsets, array_agg(c) as record_counts, array_agg(p) as positions,
               array_agg(l) as lengths, array_agg(t) as timestamps, array_agg(o) as objects
          from slices group by partition
    )
    select a.partition, coalesce(last.base_offset, a.base_offset), a.end_offset, a.max_timestamp, a.size_bytes,
           a.base_offsets, a.record_counts, a.positions, a.lengths, a.timestamps, a.objects
      from appended a
      left join lateral (
          select f.base_offset from (
              select p.base_offset, cardinality(p.base_offsets) as slice_count
                from bearlake.index_page p where p.partition = a.partition order by p.base_offset desc limit 1
          ) f where f.slice_count + a.slice_count <= p_page_slices
      ) last on true
     order by a.partition
    on conflict (partition, base_offset) do update
       set end_offset = excluded.end_offset,
           max_timestamp = greatest(page.max_timestamp, excluded.max_timestamp),
           size_bytes = page.size_bytes + excluded.size_bytes,
           base_offsets = page.base_offsets || excluded.base_offsets,
           record_counts = page.record_counts || excluded.record_counts,
           positions = page.positions || excluded.positions,
           lengths = page.lengths || excluded.lengths,
           timestamps = page.timestamps || excluded.timestamps,
           objects = page.objects || excluded.objects
$$;

-- Drops at most p_limit index pages (and rows of deleted streams) that nobody can read any more; returns how many.
-- Holds the tail's row as roll_up does: a page that is appended to at the same time must not go.
create function bearlake.sweep(p_limit integer) returns integer language plpgsql as $$
declare
    task bearlake.sweep;
    remaining integer := p_limit;
    part integer;
    rolled_position bigint;
begin
    select t.rolled into rolled_position from bearlake.log_tail t for update skip locked;
    if not found then
        return 0;
    end if;
    for task in
        select * from bearlake.sweep w where w.position <= rolled_position order by w.position limit 100
    loop
        with gone as (
            delete from bearlake.index_page p
             where (p.partition, p.base_offset) in (
                   select q.partition, q.base_offset from bearlake.index_page q
                    where q.partition between task.partition_first and task.partition_last
                      and (task.end_offset is null or q.end_offset <= task.end_offset and q.base_offset < task.end_offset)
                    order by q.partition, q.base_offset limit remaining)
            returning p.objects
        ), used as (
            select u.o, count(*) as slice_count from gone, lateral unnest(gone.objects) u (o) group by u.o
        ), counted as (
            update bearlake.object o set slice_count = o.slice_count - used.slice_count
              from used where o.position = used.o and o.position > 0
        )
        select count(*) into part from gone;
        remaining := remaining - part;
        if task.end_offset is null and remaining > 0 then
            delete from bearlake.producer p where (p.partition, p.producer_id) in (
                select q.partition, q.producer_id from bearlake.producer q
                 where q.partition between task.partition_first and task.partition_last limit remaining);
            get diagnostics part = row_count;
            remaining := remaining - part;
            delete from bearlake.group_offset g where (g.name, g.partition) in (
                select h.name, h.partition from bearlake.group_offset h
                 where h.partition between task.partition_first and task.partition_last limit remaining);
            get diagnostics part = row_count;
            remaining := remaining - part;
        end if;
        exit when remaining <= 0;
        delete from bearlake.sweep w where w.position = task.position;
    end loop;
    return p_limit - remaining;
end $$;

-- Forgets results of tokens older than p_older_ms, and forbidden tokens older than p_forbidden_ms, at most p_limit of each.
-- That an object is committed is never forgotten here.
create function bearlake.forget_tokens(p_older_ms bigint, p_forbidden_ms bigint, p_limit integer) returns void language sql as $$
    update bearlake.object o set outcomes = null
     where o.key in (select f.key from bearlake.object f
                      where f.outcomes is not null and f.committed_ms < bearlake.now_ms() - p_older_ms
                      order by f.committed_ms limit p_limit for update skip locked);
    delete from bearlake.object o
     where o.key in (select f.key from bearlake.object f
                      where f.position = -1 and f.committed_ms < bearlake.now_ms() - p_forbidden_ms
                      order by f.committed_ms limit p_limit for update skip locked)
$$;
