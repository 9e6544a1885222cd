-- Replaces index rows by rows of other objects (compaction). Holds the log's tail, so that no roll-up, sweep or other swap changes pages,
-- and its compaction groups, so that no start moves. It meets commits only at its end. Lock order: functions/commit.sql. A repeat
-- returns the first position.
--
-- Parameters: p_task, p_epoch: the task and the epoch of the claim. p_node_id, p_server_epoch: the worker that claims it, and its epoch.
--   p_is_final: whether the task ends with this swap. One element per object: p_keys, p_object_sizes (bytes), p_kinds (model.ObjectKind).
--   One element per new slice, by partition and offset: p_partitions, p_bases, p_counts (records), p_positions (byte in the object),
--   p_lengths (bytes), p_timestamps (ms), p_objects (index of its object, from 1). One element per range that they cover:
--   p_range_partitions, p_range_starts, p_range_ends (offsets, half-open), p_range_firsts, p_range_lasts (its slices, from 1),
--   p_range_turns (a partition's first range, second, …). p_entry_limit, p_slice_limit, p_page_slices: as roll_up.
-- Returns: the position of the SWAP entry; null: only a part of the log could be rolled up for it, call again. A SWAP entry has one array
--   element per range: partitions, base_offsets (start), record_counts (end - start).
-- Raises: BL001 another worker has the task, or a key is forbidden; BL004 the rows are not those that the task was offered for, or a key
--   is in use or not prepared by the task.

create or replace function bearlake.swap_rows(
    p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_is_final boolean,
    p_keys text[], p_object_sizes bigint[], p_kinds integer[],
    p_partitions bigint[], p_bases bigint[], p_counts bigint[], p_positions bigint[], p_lengths bigint[], p_timestamps bigint[],
    p_objects integer[],
    p_range_partitions bigint[], p_range_starts bigint[], p_range_ends bigint[],
    p_range_firsts integer[], p_range_lasts integer[], p_range_turns integer[],
    p_entry_limit integer, p_slice_limit integer, p_page_slices integer
) returns bigint language plpgsql as $$
declare
    tail bearlake.log_tail;
    task bearlake.task;
    at bigint;
    moves bearlake.move[];
    numbers bigint[];
    names bigint[];
    part record;
    placed bigint[] := '{}';
    m_partitions bigint[] := '{}';
    m_sizes bigint[] := '{}';
    oldest_ms bigint;
begin
    select * into tail from bearlake.log_tail t for update;
    -- 1. Is this a repeated request, or one of a worker that another worker has overtaken?
    at := bearlake.swapped_at(p_task, p_epoch, p_keys);
    if at is not null then
        return at;
    end if;
    task := bearlake.hold_task(p_task, p_epoch, p_node_id, p_server_epoch);
    perform bearlake.check_swap_keys(p_task, p_keys);
    perform from bearlake.compaction_group c
      where c.group_key in (select distinct u >> 5 from unnest(p_range_partitions || task.partitions) u) order by c.group_key for update;

    -- 2. What of the ranges is there and readable, and is it in the index?
    select array_agg(row(u.p, u.s, u.e, u.f, u.l, u.turn, g.starts[(u.p & 31) + 1])::bearlake.move order by u.p, u.s) into moves
      from unnest(p_range_partitions, p_range_starts, p_range_ends, p_range_firsts, p_range_lasts, p_range_turns) u (p, s, e, f, l, turn)
      join bearlake.partition_group g on g.group_key = u.p >> 5
     where g.starts[(u.p & 31) + 1] < u.e;
    if bearlake.is_unrolled(moves) then
        at := bearlake.roll_forward(tail.rolled, p_entry_limit, p_slice_limit, p_page_slices);
        if exists (select from bearlake.log_head h where h.position > at) and bearlake.is_unrolled(moves) then
            return null;
        end if;
    end if;

    -- 3. Replace the rows, one range of each partition at a time.
    select array_agg(nextval('bearlake.object_numbers')) into numbers from unnest(p_keys);
    select array_agg(numbers[u.o] order by u.i) into names from unnest(p_objects) with ordinality u (o, i);
    for one in 1 .. coalesce((select max(m.turn) from unnest(moves) m), 0) loop
        select * into part from bearlake.replace_rows(
            (select array_agg(m) from unnest(moves) m where m.turn = one), p_page_slices, task.kind,
            p_bases, p_counts, p_positions, p_lengths, p_timestamps, names);
        placed := placed || part.placed;
        m_partitions := m_partitions || part.partitions;
        m_sizes := m_sizes || part.old_sizes;
        oldest_ms := least(oldest_ms, part.oldest_ms);
    end loop;
    -- Bytes that new rows have below a start stay trimmed: see trimmed_size.
    if p_is_final then
        if task.kind = 1 then
            perform bearlake.advance_compacted(task, moves, m_partitions, m_sizes);
        end if;
        perform bearlake.remove_task(task);
    end if;

    -- 4. Position, worker, keys: the head's lock last, then single rows.
    at := bearlake.next_position();
    perform bearlake.check_server(p_node_id, p_server_epoch);
    perform bearlake.insert_objects(p_keys, numbers, p_object_sizes, p_kinds, placed, task.stream_number, at,
                                    case when not p_is_final then oldest_ms end);
    insert into bearlake.data_file
    select u.n, task.stream_number, at, u.k, coalesce(array_agg(s.p order by s.i) filter (where s.p is not null), '{}'),
           coalesce(array_agg(s.b order by s.i) filter (where s.p is not null), '{}'),
           coalesce(array_agg(s.c order by s.i) filter (where s.p is not null), '{}'),
           coalesce(array_agg(s.a order by s.i) filter (where s.p is not null), '{}'),
           coalesce(array_agg(s.l order by s.i) filter (where s.p is not null), '{}'),
           coalesce(array_agg(s.t order by s.i) filter (where s.p is not null), '{}')
      from unnest(p_keys, numbers, p_kinds) u (k, n, kind)
      left join unnest(p_partitions, p_bases, p_counts, p_positions, p_lengths, p_timestamps, names)
           with ordinality s (p, b, c, a, l, t, n, i) on s.n = u.n
     where u.kind = 1 group by u.n, u.k;
    insert into bearlake.log (position, kind, partitions, base_offsets, record_counts)
    select at, 4, coalesce(array_agg(m.p order by m.p, m.s), '{}'), coalesce(array_agg(m.s order by m.p, m.s), '{}'),
           coalesce(array_agg(m.e - m.s order by m.p, m.s), '{}') from unnest(moves) m;
    if p_is_final then
        insert into bearlake.task_closed values (task.id, task.epoch, at, bearlake.now_ms());
    end if;
    perform set_config('lock_timeout', '0', true), pg_notify('bearlake.log', at::text);
    return at;
end $$;

-- Returns the position of the swap of this claim that brought these objects, or that closed the task if it brought none; null: not done.
-- The task still has the objects if its swap only moved bytes.
create or replace function bearlake.swapped_at(p_task bigint, p_epoch bigint, p_keys text[]) returns bigint language sql as $$
    select min(o.swap_position) from bearlake.object o where o.key = any (p_keys)
    having count(o.swap_position) = cardinality(p_keys) and min(o.swap_position) = max(o.swap_position)
       and (exists (select from bearlake.task_closed c where c.id = p_task and c.epoch = p_epoch and c.position = min(o.swap_position))
            or (select count(*) from bearlake.task_object r where r.key = any (p_keys) and r.task_id = p_task) = cardinality(p_keys))
    union all
    select c.position from bearlake.task_closed c
     where c.id = p_task and c.epoch = p_epoch and c.position > 0 and cardinality(p_keys) = 0
$$;

-- Whether some move's rows are not in the index yet.
create or replace function bearlake.is_unrolled(p_moves bearlake.move[]) returns boolean language sql as $$
    select exists (select from unnest(p_moves) m
                    where m.e > coalesce((select q.end_offset from bearlake.index_page q
                                           where q.partition = m.p order by q.base_offset desc limit 1), 0))
$$;

-- I10: a swap names only objects that its own task prepared. The caller holds the task. Raises BL004.
create or replace function bearlake.check_swap_keys(p_task bigint, p_keys text[]) returns void language plpgsql as $$
declare
    foreign_key text;
begin
    select k into foreign_key from unnest(p_keys) k
     where not exists (select from bearlake.task_object o where o.key = k and o.task_id = p_task) limit 1;
    if found then
        raise exception 'the object % is not one that task % has prepared', foreign_key, p_task using errcode = 'BL004';
    end if;
end $$;
