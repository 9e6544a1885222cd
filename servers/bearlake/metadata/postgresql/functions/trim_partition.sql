-- Moves the start offset of a partition forward. A function that moves a start holds the compaction group's row: a swap must see
-- the start that holds when the swap ends.
--
-- Parameters: p_partition. p_start: the new start offset; smaller ones change nothing.
-- Returns: start_offset, end_offset after it.
-- Raises: BL002 no such partition; BL003 p_start is larger than the end offset.

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

-- Moves the start. The caller holds the partition's two groups, has checked p_start, and calls write_trims.
create or replace function bearlake.move_start(p_partition bigint, p_start bigint) returns void language plpgsql as $$
declare
    slot constant integer := (p_partition & 31) + 1;
begin
    update bearlake.partition_group g
       set starts[slot] = p_start,
           sizes_before[slot] = g.sizes_before[slot] + bearlake.trimmed_size(
               p_partition, g.starts[slot], p_start, g.sizes[slot] - g.sizes_before[slot])
     where g.group_key = p_partition >> 5;
end $$;

-- Writes one TRIM entry for each partition, and the sweep of what lies below the new starts.
create or replace function bearlake.write_trims(p_partitions bigint[], p_starts bigint[]) returns void language plpgsql as $$
declare
    last bigint;
begin
    update bearlake.log_head h set position = h.position + cardinality(p_partitions) returning h.position into last;
    insert into bearlake.log (position, kind, partition, start_offset)
    select last - cardinality(p_partitions) + u.i, 2, u.p, u.s from unnest(p_partitions, p_starts) with ordinality u (p, s, i);
    insert into bearlake.sweep
    select last - cardinality(p_partitions) + u.i, u.p, u.p, u.s from unnest(p_partitions, p_starts) with ordinality u (p, s, i);
    perform set_config('lock_timeout', '0', true), pg_notify('bearlake.log', last::text);
end $$;

-- Returns the bytes that are not readable any more when the start moves from p_from to p_to. A row of a swap may hold bytes that already
-- lay below the start and must not count twice: the bytes left after p_to decide then. p_usage: readable bytes of the partition.
create or replace function bearlake.trimmed_size(
    p_partition bigint, p_from bigint, p_to bigint, p_usage bigint
) returns bigint language sql stable as $$
    select case when p.base < p_from and p.number < -1 and p.base + p.count <= p_to
                then greatest(0, p_usage - bearlake.size_between(p_partition, p_to, 9223372036854775807))
                else bearlake.size_between(p_partition, p_from, p_to) end
      from (select 1) one
      left join (select q.base_offsets[q.i] as base, q.record_counts[q.i] as count, q.objects[q.i] as number
                   from (select i.*, width_bucket(p_from, i.base_offsets) as i from bearlake.index_page i
                          where i.partition = p_partition and i.base_offset <= p_from order by i.base_offset desc limit 1) q
                  where q.end_offset > p_from) p on true
$$;

-- Returns the bytes of the slices that end in (p_from, p_to].
create or replace function bearlake.size_between(p_partition bigint, p_from bigint, p_to bigint) returns bigint language sql stable as $$
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
