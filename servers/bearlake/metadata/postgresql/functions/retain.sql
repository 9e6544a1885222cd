-- Moves start offsets by the retention rule, if the stream still has the version whose configs the caller used (I12, decision 90). Locks
-- the stream's row first, and only if there is something to trim.
--
-- Parameters: p_number, p_version: the stream and its version. p_partitions: of this stream. p_before_ms: slices older than this go, ms;
--   null: no limit. p_size_max: slices go while the others have more bytes; null: no limit.
-- Returns: bounds of the partitions that moved.
-- Raises: BL002 the stream is deleted; BL004 it has another version.

create or replace function bearlake.retain_as_of(
    p_number bigint, p_version bigint, p_partitions bigint[], p_before_ms bigint, p_size_max bigint
) returns table (partition bigint, start_offset bigint, end_offset bigint) language plpgsql as $$
declare
    oldest_ms constant bigint := bearlake.now_ms() - p_before_ms;
begin
    if exists (select from bearlake.stream s where s.number = p_number and s.deleted_ms is null and s.version = p_version)
        and not exists (select from unnest(p_partitions) u where bearlake.retained_start(u, oldest_ms, p_size_max) is not null)
    then
        return;
    end if;
    perform bearlake.hold_stream(p_number, p_version);
    return query select * from bearlake.retain(p_partitions, p_before_ms, p_size_max);
end $$;

-- Does so without looking at the stream. Looks first without locks, since mostly nothing is to be moved.
create or replace function bearlake.retain(p_partitions bigint[], p_before_ms bigint, p_size_max bigint)
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

-- Returns where the partition would start: slices go from the front while they are older than p_oldest_ms, or while more than
-- p_size_max bytes remain without them. Null: nothing goes.
create or replace function bearlake.retained_start(p_partition bigint, p_oldest_ms bigint, p_size_max bigint) returns bigint
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
