-- Keys of objects that tasks wrote: registered to an open task, or forbidden by the orphan sweep. Rules: metadata/task_object_rules.py.
-- One row per key, so that the primary key decides between `prepare` and `forbid`: each inserts its rows by key, and whoever meets a row
-- of a transaction that is under way waits for its end. Rows of a task change only while its row in bearlake.task is locked.

create table bearlake.task_object (
    key text collate "C" primary key,
    task_id bigint,      -- null: the key is forbidden
    forbidden_at bigint, -- number of the newest claim when it was forbidden
    check ((task_id is null) <> (forbidden_at is null))
);
create index task_object_task on bearlake.task_object (task_id) where task_id is not null;
create index task_object_forbidden on bearlake.task_object (forbidden_at) where forbidden_at is not null;

-- Claims are numbered in the order in which they are given: each grows the task's epoch.
create sequence bearlake.claim_numbers;
alter table bearlake.task add column claim_number bigint not null default 0;

create function bearlake.number_claim() returns trigger language plpgsql as $$
begin
    new.claim_number := nextval('bearlake.claim_numbers');
    return new;
end $$;
create trigger number_claim before update of epoch on bearlake.task
    for each row when (new.epoch > old.epoch) execute function bearlake.number_claim();

-- What older programs forbade stays forbidden, until the claims of that time have ended.
insert into bearlake.task_object (key, forbidden_at)
select o.key, 0 from bearlake.object o where o.number = -1 and not starts_with(o.key, 'wal/');
delete from bearlake.object o where o.number = -1 and not starts_with(o.key, 'wal/');

-- What they prepared is registered. Results are JSON (compaction/encoding.py, version 1).
insert into bearlake.task_object (key, task_id)
select distinct on (k.key) k.key, r.task_id
  from (select t.task_id, convert_from(t.result, 'UTF8')::jsonb as json
          from bearlake.task_result t where substr(t.result, 1, 1) = '{') r,
       lateral jsonb_array_elements(r.json -> 'items') i,
       lateral (select f -> 'swap' -> 'object' ->> 0 from jsonb_array_elements(i -> 'files') f
                union all
                select s -> 'object' ->> 0 from jsonb_array_elements(i -> 'kept') s) k (key)
on conflict (key) do nothing;

-- Registers the keys to the task (null: there is no result to remember). A repeat finds its own rows.
drop function bearlake.prepare_task(bigint, bigint, integer, bigint, bytea);
create function bearlake.prepare_task(
    p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_result bytea, p_keys text[]
) returns void language plpgsql as $$
declare
    refused text;
begin
    perform bearlake.hold_task(p_task, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.task_object (key, task_id)
    select distinct k collate "C", p_task from unnest(p_keys) k
     where not exists (select from bearlake.object o where o.key = k) order by 1
    on conflict (key) do nothing;
    -- A statement of its own: it sees what the insert waited for.
    select k into refused from unnest(p_keys) k
     where not exists (select from bearlake.task_object o where o.key = k and o.task_id = p_task) limit 1;
    if found then
        raise exception 'the object % was forbidden or is in use: write it anew under another key', refused using errcode = 'BL004';
    end if;
    if p_result is not null then
        insert into bearlake.task_result values (p_task, p_epoch, p_result)
        on conflict (task_id, epoch) do update set result = excluded.result;
    end if;
end $$;

-- Forgets bans that no claim can run into any more, at most 1000. A claim that wrote a forbidden object had its number before the ban, and
-- shows here until it has ended.
create function bearlake.forget_forbidden_objects() returns void language sql as $$
    delete from bearlake.task_object o
     where o.key in (select f.key from bearlake.task_object f
                      where f.forbidden_at < coalesce((select min(t.claim_number) from bearlake.task t where t.is_held), 9223372036854775807)
                      order by f.forbidden_at limit 1000 for update skip locked)
$$;

-- Forbids keys that no task has registered and that the index does not name; returns those that are forbidden now.
-- Forgets older bans on the way.
create function bearlake.forbid_objects(p_keys text[]) returns setof text language plpgsql as $$
declare
    newest constant bigint := (select s.last_value from bearlake.claim_numbers s);
begin
    perform bearlake.forget_forbidden_objects();
    insert into bearlake.task_object (key, forbidden_at)
    select distinct k collate "C", newest from unnest(p_keys) k
     where not exists (select from bearlake.object o where o.key = k) order by 1
    on conflict (key) do nothing;
    -- The insert may have waited for a swap that ended the key's registration and brought it into the index.
    delete from bearlake.task_object t using bearlake.object o
     where t.key = any (p_keys) and t.forbidden_at is not null and o.key = t.key;
    return query select t.key::text from bearlake.task_object t where t.key = any (p_keys) and t.forbidden_at is not null;
end $$;

-- Forbids tokens that no commit has used and that are not keys of a task's objects; returns those that are forbidden now.
create or replace function bearlake.forbid_tokens(p_tokens text[]) returns setof text language plpgsql as $$
begin
    insert into bearlake.object (key, number, size, committed_ms)
    select t, -1, 0, bearlake.now_ms() from (select distinct unnest(p_tokens) collate "C" as t order by 1) tokens
     where not exists (select from bearlake.task_object r where r.key = t and r.task_id is not null)
    on conflict (key) do nothing;
    return query select o.key::text from bearlake.object o where o.key = any (p_tokens) and o.number = -1;
end $$;

-- Removes the task with all that belongs to it. Its row in task_closed answers repeated calls.
create or replace function bearlake.remove_task(p_task bearlake.task) returns void language plpgsql as $$
begin
    delete from bearlake.task_partition p where p_task.kind = 1 and p.partition = any (p_task.partitions) and p.task_id = p_task.id;
    delete from bearlake.task_input i where p_task.kind = 2 and i.key = any (p_task.inputs) and i.task_id = p_task.id;
    delete from bearlake.task_result r where r.task_id = p_task.id;
    delete from bearlake.task_object o where o.task_id = p_task.id;
    delete from bearlake.task t where t.id = p_task.id;
end $$;

-- Gives tasks back; nobody claims them for p_wait_ms.
drop function bearlake.release_tasks(bigint[], bigint[], integer[], bigint[]);
create function bearlake.release_tasks(
    p_tasks bigint[], p_epochs bigint[], p_node_ids integer[], p_server_epochs bigint[], p_wait_ms bigint
) returns void language sql as $$
    update bearlake.task t
       set is_held = false,
           not_before_ms = greatest(t.not_before_ms, case when p_wait_ms > 0 then bearlake.now_ms() + p_wait_ms else 0 end)
     where t.id in (select o.id from bearlake.task o
                      join unnest(p_tasks, p_epochs, p_node_ids, p_server_epochs) u (id, epoch, node_id, server_epoch)
                        on o.id = u.id and o.epoch = u.epoch and o.node_id = u.node_id and o.server_epoch = u.server_epoch
                     order by o.id for update of o)
$$;

-- I10: a swap names only objects that its own task prepared. The caller holds the task.
create function bearlake.check_swap_keys(p_task bigint, p_keys text[]) returns void language plpgsql as $$
declare
    foreign_key text;
begin
    select k into foreign_key from unnest(p_keys) k
     where not exists (select from bearlake.task_object o where o.key = k and o.task_id = p_task) limit 1;
    if found then
        raise exception 'the object % is not one that task % has prepared', foreign_key, p_task using errcode = 'BL004';
    end if;
end $$;

-- Position of the swap of this claim that brought these objects, or that closed the task if it brought none; null: not done. The task has
-- them still if its swap only moved bytes.
create or replace function bearlake.swapped_at(p_task bigint, p_epoch bigint, p_keys text[]) returns bigint language sql as $$
    select min(o.swap_position) from bearlake.object o where o.key = any (p_keys)
    having count(o.swap_position) = cardinality(p_keys) and min(o.swap_position) = max(o.swap_position)
       and (exists (select from bearlake.task_closed c where c.id = p_task and c.epoch = p_epoch and c.position = min(o.swap_position))
            or (select count(*) from bearlake.task_object r where r.key = any (p_keys) and r.task_id = p_task) = cardinality(p_keys))
    union all
    select c.position from bearlake.task_closed c
     where c.id = p_task and c.epoch = p_epoch and c.position > 0 and cardinality(p_keys) = 0
$$;

-- New slices come by (partition, offset) with the index of their object; r_*: the ranges that they cover, and which slices.
-- Returns the position of the SWAP entry, or null when only a part of the log could be rolled up for it: call again.
create or replace function bearlake.swap_rows(
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
    perform bearlake.check_swap_keys(p_task, p_keys);
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
