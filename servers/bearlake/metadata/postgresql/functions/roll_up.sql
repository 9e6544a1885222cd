-- One round of upkeep: rolls log entries up into index pages, then deletes rolled-up entries. One caller works, because it holds the
-- log tail's row; others return 0.
--
-- Parameters: p_entry_count_min: the newest entries to keep. p_entry_limit: entries to roll up; twice as many are deleted. p_slice_limit:
--   slices of these entries (an entry is never split). p_page_slices: slices of one index page, about.
-- Returns: the number of entries rolled up.
-- Raises: none.

create or replace function bearlake.roll_up(
    p_entry_count_min bigint, p_entry_limit integer, p_slice_limit integer, p_page_slices integer
) returns bigint language plpgsql as $$
declare
    tail bearlake.log_tail;
    upto bigint;
    cut bigint;
begin
    select * into tail from bearlake.log_tail t for update skip locked;
    if not found then
        return 0;
    end if;
    upto := bearlake.roll_forward(tail.rolled, p_entry_limit, p_slice_limit, p_page_slices);
    select least(upto, h.position - p_entry_count_min, tail.truncated + 2 * p_entry_limit) into cut from bearlake.log_head h;
    if cut > tail.truncated then
        delete from bearlake.log l where l.position > tail.truncated and l.position <= cut;
        update bearlake.log_tail set truncated = cut;
    end if;
    return upto - tail.rolled;
end $$;

-- Rolls up the oldest entries that are only in the log, at least one. The caller holds the log's tail. Returns the position that is
-- rolled up then.
create or replace function bearlake.roll_forward(p_rolled bigint, p_entry_limit integer, p_slice_limit integer, p_page_slices integer)
returns bigint language plpgsql as $$
declare
    upto bigint;
begin
    select coalesce(max(c.position), p_rolled) into upto
      from (select l.position, sum(coalesce(cardinality(l.partitions), 0)) over (order by l.position) as slice_count
              from (select * from bearlake.log f where f.position > p_rolled order by f.position limit p_entry_limit) l) c
     where c.slice_count <= p_slice_limit or c.position = p_rolled + 1;
    if upto > p_rolled then
        perform bearlake.append_pages(p_rolled, upto, p_page_slices);
        update bearlake.log_tail set rolled = upto;
    end if;
    return upto;
end $$;

-- Appends the slices of the entries (p_from, p_upto] to the pages of their partitions.
create or replace function bearlake.append_pages(p_from bigint, p_upto bigint, p_page_slices integer) returns void language sql as $$
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
