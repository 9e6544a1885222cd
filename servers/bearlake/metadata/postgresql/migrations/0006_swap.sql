-- The swap: index rows get a new home. Lock order everywhere, also with what 0002 says: the log's tail, a task's row, compaction
-- groups by key, partition groups by key, the log's head, single rows. A swap holds the tail (so that no roll-up, sweep or other
-- swap changes pages) and its compaction groups (so that no start moves) while it works; commits it meets only at the end.

-- Rolls up the oldest entries that are only in the log, at most p_entry_limit with together p_slice_limit slices (but at least one);
-- the caller holds the tail. Returns the position that is rolled up then.
create function bearlake.roll_forward(p_rolled bigint, p_entry_limit integer, p_slice_limit integer, p_page_slices integer)
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

-- One round of upkeep: rolls entries up, then deletes rolled up ones except the newest p_entry_count_min, at most twice
-- p_entry_limit. One caller works (it holds the tail's row), the others return 0. Returns the number of entries rolled up.
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

-- A move of one partition's range [s, e) to new rows, elements f to l of the arrays of new slices; `start` is the partition's.
-- `turn`: a partition's first range, second, …: each statement takes one range per partition.
create type bearlake.move as (p bigint, s bigint, e bigint, f integer, l integer, turn integer, start bigint);

-- Replaces the rows of the moves of one turn; p_numbers names each new slice's object. Returns the readable bytes of the old rows by
-- move, the object of each new row, and when the oldest of the old objects was committed.
create function bearlake.replace_rows(
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
    ), judged as (
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
    select (select format('partition %s has no rows from %s to %s with as many bytes', j.p, j.s, j.e) from judged j
             where ((j.old_s = j.s or j.old_s between j.s and j.start) and j.old_e = j.e and j.old_count = j.old_e - j.old_s
                    and (j.old_size = j.new_size or j.start > j.s)) is not true
             limit 1),
           (select array_agg(o.o) from old o where o.is_replaced),
           (select array_agg(n.o) from new n),
           array_agg(j.p order by j.p), array_agg(j.old_size order by j.p)
      into bad, replaced, placed, partitions, old_sizes
      from judged j;
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

-- Locks the task; the claim must be its newest and not given back, its worker in its newest epoch (though perhaps not live).
create function bearlake.hold_task(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint)
returns bearlake.task language plpgsql as $$
declare
    task bearlake.task;
begin
    select * into task from bearlake.task t where t.id = p_task for update;
    if not found or not task.is_held or task.epoch <> p_epoch or (task.node_id, task.server_epoch) is distinct from (p_node_id, p_server_epoch) then
        raise exception 'task % is not held in epoch % any more', p_task, p_epoch using errcode = 'BL001';
    end if;
    perform bearlake.check_server(p_node_id, p_server_epoch);
    return task;
end $$;

-- Removes the task with all that belongs to it. Its row in task_closed answers repeated calls.
create function bearlake.remove_task(p_task bearlake.task) returns void language plpgsql as $$
begin
    delete from bearlake.task_partition p where p_task.kind = 1 and p.partition = any (p_task.partitions) and p.task_id = p_task.id;
    delete from bearlake.task_input i where p_task.kind = 2 and i.key = any (p_task.inputs) and i.task_id = p_task.id;
    delete from bearlake.task_result r where r.task_id = p_task.id;
    delete from bearlake.task t where t.id = p_task.id;
end $$;

-- Position of the swap that brought these objects, or that closed the task in this epoch if it brought none; null: not done.
create function bearlake.swapped_at(p_task bigint, p_epoch bigint, p_keys text[]) returns bigint language sql as $$
    select min(o.swap_position) from bearlake.object o where o.key = any (p_keys)
    having count(o.swap_position) = cardinality(p_keys) and min(o.swap_position) = max(o.swap_position)
    union all
    select c.position from bearlake.task_closed c
     where c.id = p_task and c.epoch = p_epoch and c.position > 0 and cardinality(p_keys) = 0
$$;

-- Whether some move's rows are not in the index yet.
create function bearlake.is_unrolled(p_moves bearlake.move[]) returns boolean language sql as $$
    select exists (select from unnest(p_moves) m
                    where m.e > coalesce((select q.end_offset from bearlake.index_page q
                                           where q.partition = m.p order by q.base_offset desc limit 1), 0))
$$;

-- Moves the compacted offsets of the task's ranges to their ends. p_sizes: readable bytes that each of the moves took.
create function bearlake.advance_compacted(p_task bearlake.task, p_moves bearlake.move[], p_partitions bigint[], p_sizes bigint[])
returns void language plpgsql as $$
declare
    part record;
    c bearlake.compaction_group;
    g bearlake.partition_group;
    slot integer;
begin
    for part in
        select t.p, max(t.s) as s, max(t.e) as e, min(t.moved_s) as moved_s, max(t.moved_e) as moved_e, sum(t.moved)::bigint as moved
          from (select u.p, u.s, u.e, null::bigint as moved_s, null::bigint as moved_e, 0 as moved
                  from unnest(p_task.partitions, p_task.starts, p_task.ends) u (p, s, e)
                union all
                select m.p, null, null, m.s, m.e, 0 from unnest(p_moves) m
                union all
                select m.p, null, null, null, null, m.moved from unnest(p_partitions, p_sizes) m (p, moved)) t
         group by t.p having max(t.e) is not null order by t.p
    loop
        if c.group_key is distinct from part.p >> 5 then
            update bearlake.compaction_group u set offsets = c.offsets, sizes = c.sizes where u.group_key = c.group_key;
            select * into c from bearlake.compaction_group o where o.group_key = part.p >> 5;
            select * into g from bearlake.partition_group o where o.group_key = part.p >> 5;
        end if;
        slot := (part.p & 31) + 1;
        continue when c.group_key is null or g.group_key is null or part.e <= c.offsets[slot];
        if part.e > g.starts[slot]
            and (part.moved_s <= greatest(part.s, g.starts[slot]) and part.moved_e >= part.e) is not true then
            raise exception 'the swap leaves out offsets up to % of partition %', part.e, part.p using errcode = 'BL004';
        end if;
        c.offsets[slot] := part.e;
        c.sizes[slot] := greatest(c.sizes[slot], g.sizes_before[slot]) + part.moved;
    end loop;
    update bearlake.compaction_group u set offsets = c.offsets, sizes = c.sizes where u.group_key = c.group_key;
end $$;

-- New slices come by (partition, offset) with the index of their object; r_*: the ranges that they cover, and which slices.
-- Returns the position of the SWAP entry, or null when only a part of the log could be rolled up for it: call again.
create function bearlake.swap_rows(
    p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_is_final boolean,
    p_keys text[], p_object_sizes bigint[], p_kinds integer[],
    p_partitions bigint[], p_bases bigint[], p_counts bigint[], p_positions bigint[], p_lengths bigint[], p_timestamps bigint[],
    p_objects integer[], r_partitions bigint[], r_starts bigint[], r_ends bigint[], r_firsts integer[], r_lasts integer[], r_turns integer[],
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
    -- 1. A repeat, or somebody who was overtaken?
    at := bearlake.swapped_at(p_task, p_epoch, p_keys);
    if at is not null then
        return at;
    end if;
    task := bearlake.hold_task(p_task, p_epoch, p_node_id, p_server_epoch);
    perform from bearlake.compaction_group c
      where c.group_key in (select distinct u >> 5 from unnest(r_partitions || task.partitions) u) order by c.group_key for update;

    -- 2. What of the ranges is there and readable, and is it in the index?
    select array_agg(row(u.p, u.s, u.e, u.f, u.l, u.turn, g.starts[(u.p & 31) + 1])::bearlake.move order by u.p, u.s) into moves
      from unnest(r_partitions, r_starts, r_ends, r_firsts, r_lasts, r_turns) u (p, s, e, f, l, turn)
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
    perform pg_notify('bearlake.log', at::text);
    return at;
end $$;

-- Registers what a swap brought; p_placed: the object of each new row; p_oldest_ms: its age, if bytes only moved.
create function bearlake.insert_objects(
    p_keys text[], p_numbers bigint[], p_sizes bigint[], p_kinds integer[], p_placed bigint[],
    p_stream_number bigint, p_position bigint, p_oldest_ms bigint
) returns void language plpgsql as $$
declare
    made integer;
begin
    insert into bearlake.object
        (key, number, size, committed_ms, slice_count, kind, stream_number, swap_position, unused_ms)
    select u.k, u.n, u.z, coalesce(p_oldest_ms, bearlake.now_ms()), count(r.n), u.kind,
           case when u.kind = 1 then p_stream_number else 0 end, p_position,
           case when count(r.n) = 0 then bearlake.now_ms() end
      from unnest(p_keys, p_numbers, p_sizes, p_kinds) u (k, n, z, kind) left join unnest(p_placed) r (n) on r.n = u.n
     group by u.k, u.n, u.z, u.kind order by u.k collate "C"
    on conflict (key) do nothing;
    get diagnostics made = row_count;
    if made = cardinality(p_keys) then
        return;
    elsif exists (select from bearlake.object o where o.key = any (p_keys) and o.number = -1) then
        raise exception 'a key of the swap is forbidden' using errcode = 'BL001';
    end if;
    raise exception 'a key of the swap is in use' using errcode = 'BL004';
end $$;
