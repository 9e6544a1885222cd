-- Finds committed slices: index pages for what is rolled up, the log for newer slices. A stable function sees one snapshot, so a concurrent
-- roll-up neither hides a slice nor shows it twice.
--
-- Parameters: p_partition. p_offset: slices that end after it and after the start offset. p_timestamp: slices with a timestamp of at
--   least this, ms; null: all. p_limit: slices.
-- Returns: first row: start offset, end offset, log position. Then the slices in offset order; length and size are bytes.
-- Raises: BL002 no such partition.

create or replace function bearlake.locate(p_partition bigint, p_offset bigint, p_timestamp bigint, p_limit integer)
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
