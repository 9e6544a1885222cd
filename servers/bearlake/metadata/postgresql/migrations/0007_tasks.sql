-- The task queue, and what waits for compaction. Lock order: lease, task rows (claims skip those that others hold), the rest.

-- A task as callers see it: `node_id` and `server_epoch` are null unless a live server holds it, times are durations.
create view bearlake.queued_task as
select t.id, t.kind, t.state, t.stream_number, t.partitions, t.starts, t.ends, t.inputs, t.size_bytes, t.record_count,
       greatest(0, n.now - t.oldest_ms) as age_ms, t.epoch, s.node_id, s.epoch as server_epoch, t.attempt_count,
       greatest(0, t.not_before_ms - n.now) as wait_ms, t.error,
       (select array_agg(r.epoch order by r.epoch) from bearlake.task_result r where r.task_id = t.id) as result_epochs,
       (select array_agg(r.result order by r.epoch) from bearlake.task_result r where r.task_id = t.id) as results
  from bearlake.task t
 cross join (select bearlake.now_ms() as now) n
  left join bearlake.server s on t.is_held and s.node_id = t.node_id and s.epoch = t.server_epoch and not s.has_left
       and s.heartbeat_ms + s.timeout_ms > n.now;

-- Offers come as arrays, one element each; their ranges and inputs lie one after the other, *_ends names the last of each offer.
create function bearlake.offer_tasks(
    p_lease text, p_lease_epoch bigint, p_node_id integer, p_server_epoch bigint,
    p_kinds integer[], p_streams bigint[], p_sizes bigint[], p_counts bigint[], p_ages bigint[], p_range_ends integer[],
    p_input_ends integer[], p_partitions bigint[], p_starts bigint[], p_ends bigint[], p_inputs text[]
) returns setof bearlake.queued_task language plpgsql as $$
declare
    made bigint;
    all_made bigint[] := '{}';
    first integer := 1;
    first_input integer := 1;
    partitions bigint[];
    starts bigint[];
    ends bigint[];
    inputs text[];
begin
    perform from bearlake.lease l where l.name = p_lease for update;
    perform bearlake.check_lease(p_lease, p_lease_epoch, p_node_id, p_server_epoch);
    for i in 1 .. cardinality(p_kinds) loop
        partitions := p_partitions[first:p_range_ends[i]];
        starts := p_starts[first:p_range_ends[i]];
        ends := p_ends[first:p_range_ends[i]];
        inputs := p_inputs[first_input:p_input_ends[i]];
        first := p_range_ends[i] + 1;
        first_input := p_input_ends[i] + 1;
        continue when not bearlake.is_due(p_kinds[i], p_streams[i], partitions, starts, ends, inputs);
        insert into bearlake.task (kind, stream_number, partitions, starts, ends, inputs, size_bytes, record_count, oldest_ms)
        values (p_kinds[i], p_streams[i], partitions, starts, ends, inputs, p_sizes[i], p_counts[i], bearlake.now_ms() - p_ages[i])
        returning id into made;
        insert into bearlake.task_partition select p, made from unnest(partitions) p;
        insert into bearlake.task_input select k, made from unnest(inputs) k;
        all_made := all_made || made;
    end loop;
    return query select * from bearlake.queued_task q where q.id = any (all_made) order by q.id;
end $$;

-- Whether nobody has these ranges or inputs yet, the ranges start where their partitions' compaction goes on, and the inputs are
-- data files of the stream.
create function bearlake.is_due(
    p_kind integer, p_stream bigint, p_partitions bigint[], p_starts bigint[], p_ends bigint[], p_inputs text[]
) returns boolean language sql stable as $$
    select exists (select from bearlake.stream s where s.number = p_stream and s.deleted_ms is null)
       and not exists (select from bearlake.task_partition t where t.partition = any (p_partitions))
       and not exists (select from bearlake.task_input t where t.key = any (p_inputs))
       and cardinality(case when p_kind = 1 then p_partitions end) is distinct from 0
       and cardinality(case when p_kind = 2 then p_inputs end) is distinct from 0
       and cardinality(p_partitions) = (
           select count(*)
             from unnest(p_partitions, p_starts, p_ends) u (p, s, e)
             join bearlake.partition_group g on g.group_key = u.p >> 5
             join bearlake.compaction_group c on c.group_key = u.p >> 5
            where u.s = greatest(c.offsets[(u.p & 31) + 1], g.starts[(u.p & 31) + 1])
              and u.e between u.s + 1 and g.ends[(u.p & 31) + 1])
       and cardinality(p_inputs) = (
           select count(*) from bearlake.object o
            where o.key = any (p_inputs) and o.kind = 1 and o.stream_number = p_stream and o.deleted_ms is null)
$$;

-- Oldest first; workers that claim at the same time pass each other by. Tasks of deleted streams are dropped on the way.
create function bearlake.claim_tasks(p_node_id integer, p_server_epoch bigint, p_limit integer, p_bytes_max bigint)
returns setof bearlake.queued_task language plpgsql as $$
declare
    candidates bigint[];
    dropped bigint;
begin
    perform bearlake.check_server(p_node_id, p_server_epoch);
    if not bearlake.is_live(p_node_id, p_server_epoch) then
        raise exception 'epoch % of server % is not live', p_server_epoch, p_node_id using errcode = 'BL001';
    end if;
    loop
        select array_agg(c.id) into candidates
          from (select t.id from bearlake.task t
                 where t.state = 1 and t.not_before_ms <= bearlake.now_ms()
                   and (not t.is_held or not bearlake.is_live(t.node_id, t.server_epoch))
                 order by t.id limit p_limit for update skip locked) c;
        select count(bearlake.drop_task(t)) into dropped
          from bearlake.task t join bearlake.stream s on s.number = t.stream_number
         where t.id = any (candidates) and s.deleted_ms is not null;
        exit when dropped = 0;
    end loop;
    update bearlake.task t
       set epoch = t.epoch + 1, is_held = true, node_id = p_node_id, server_epoch = p_server_epoch
      from (select c.id, sum(c.size_bytes) over (order by c.id) as total,
                   row_number() over (order by c.id) as place
              from bearlake.task c where c.id = any (candidates)) fit
     where t.id = fit.id and (fit.total <= p_bytes_max or fit.place = 1);
    return query select * from bearlake.queued_task q
      where q.id = any (candidates) and q.node_id = p_node_id and q.server_epoch = p_server_epoch order by q.id;
end $$;

-- Removes a task without its being done.
create function bearlake.drop_task(p_task bearlake.task) returns boolean language plpgsql as $$
begin
    perform bearlake.remove_task(p_task);
    insert into bearlake.task_closed values (p_task.id, p_task.epoch, 0, bearlake.now_ms());
    return true;
end $$;

create function bearlake.prepare_task(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_result bytea)
returns void language plpgsql as $$
begin
    perform bearlake.hold_task(p_task, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.task_result values (p_task, p_epoch, p_result)
    on conflict (task_id, epoch) do update set result = excluded.result;
end $$;

create function bearlake.release_tasks(p_tasks bigint[], p_epochs bigint[], p_node_ids integer[], p_server_epochs bigint[])
returns void language sql as $$
    update bearlake.task t set is_held = false
     where t.id in (select o.id from bearlake.task o
                      join unnest(p_tasks, p_epochs, p_node_ids, p_server_epochs) u (id, epoch, node_id, server_epoch)
                        on o.id = u.id and o.epoch = u.epoch and o.node_id = u.node_id and o.server_epoch = u.server_epoch
                     order by o.id for update of o)
$$;

-- A repeat finds the task given up already and changes nothing.
create function bearlake.fail_task(
    p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_error text, p_retry_after_ms bigint, p_is_aside boolean
) returns void language plpgsql as $$
begin
    if exists (select from bearlake.task t where t.id = p_task and t.epoch = p_epoch and not t.is_held) then
        return;
    end if;
    perform bearlake.hold_task(p_task, p_epoch, p_node_id, p_server_epoch);
    update bearlake.task t
       set is_held = false, attempt_count = t.attempt_count + 1, error = p_error, not_before_ms = bearlake.now_ms() + p_retry_after_ms,
           state = case when p_is_aside then 2 else 1 end
     where t.id = p_task;
end $$;

create function bearlake.cancel_task(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint)
returns void language plpgsql as $$
begin
    if not exists (select from bearlake.task_closed c where c.id = p_task and c.epoch = p_epoch and c.position = 0) then
        perform bearlake.drop_task(bearlake.hold_task(p_task, p_epoch, p_node_id, p_server_epoch));
    end if;
end $$;

create function bearlake.retry_task(p_task bigint) returns setof bearlake.queued_task language plpgsql as $$
begin
    update bearlake.task t set state = 1, attempt_count = 0, not_before_ms = 0 where t.id = p_task;
    return query select * from bearlake.queued_task q where q.id = p_task;
    if not found then
        raise exception 'no task %', p_task using errcode = 'BL002';
    end if;
end $$;

-- Partitions of one group with readable records that are not compacted: from where on, to where, and their bytes.
create function bearlake.backlog_of(p_group bearlake.partition_group, p_compacted bearlake.compaction_group)
returns table (partition bigint, compacted bigint, end_offset bigint, size bigint) language sql immutable as $$
    select (p_group.group_key << 5) + u.i - 1, greatest(u.c, u.s), u.e, u.z - greatest(u.y, u.b)
      from unnest(p_group.starts, p_group.ends, p_group.sizes, p_group.sizes_before, p_compacted.offsets, p_compacted.sizes)
           with ordinality u (s, e, z, b, c, y, i)
     where u.e > greatest(u.c, u.s)
$$;

-- Commit times of the slices that hold these offsets, which must be readable.
create function bearlake.commit_times(p_partitions bigint[], p_offsets bigint[])
returns table (partition bigint, committed_ms bigint) language sql stable set enable_hashjoin = on as $$
    with asked as materialized (
        select u.p, u.f, (select q.objects[width_bucket(u.f, q.base_offsets)]
                            from (select * from bearlake.index_page i
                                   where i.partition = u.p and i.base_offset <= u.f order by i.base_offset desc limit 1) q
                           where q.end_offset > u.f) as number
          from unnest(p_partitions, p_offsets) u (p, f)
    ), unrolled as (
        select a.p, min(s.position) as number
          from (select l.position, x.* from bearlake.log_tail e, bearlake.log l,
                       lateral unnest(l.partitions, l.base_offsets, l.record_counts) x (p, b, c)
                 where l.position > e.rolled and l.kind = 1) s
          join asked a on a.p = s.p and s.b + s.c > a.f
         where a.number is null group by a.p
    )
    select n.p, o.committed_ms
      from (select a.p, a.number from asked a where a.number is not null union all select u.p, u.number from unrolled u) n
      join bearlake.object o on o.number = n.number and o.number <> -1
$$;

-- Partitions behind p_after that have a backlog, by key. Groups of which nothing was written since they were compacted cost one
-- comparison of arrays.
create function bearlake.uncompacted(p_after bigint, p_limit integer)
returns table (partition bigint, compacted bigint, end_offset bigint, size bigint, age_ms bigint) language sql stable as $$
    with open as materialized (
        select b.*
          from bearlake.partition_group g join bearlake.compaction_group c on c.group_key = g.group_key,
               lateral bearlake.backlog_of(g, c) b
         where g.group_key >= p_after >> 5 and g.ends <> c.offsets and b.partition > p_after
         order by g.group_key, b.partition limit p_limit
    ), asked as (
        select array_agg(o.partition order by o.partition) as partitions, array_agg(o.compacted order by o.partition) as offsets from open o
    )
    -- A union instead of a join: no plan of it can be quadratic.
    select r.p, max(r.f), max(r.e), max(r.z), greatest(0, bearlake.now_ms() - max(r.ms))
      from (select o.partition as p, o.compacted as f, o.end_offset as e, o.size as z, null::bigint as ms from open o
            union all
            select t.partition, null, null, null, t.committed_ms
              from asked a, lateral bearlake.commit_times(a.partitions, a.offsets) t) r
     group by r.p having max(r.f) is not null order by r.p
$$;

-- Streams that have a backlog, by number; the age is that of the oldest among the 32 partitions with the most bytes.
create function bearlake.stream_backlogs()
returns table (stream_number bigint, size bigint, record_count bigint, partition_count bigint, age_ms bigint)
language sql stable as $$
    with open as materialized (
        select b.*, row_number() over (partition by b.partition >> 20 order by b.size desc) as place
          from bearlake.partition_group g join bearlake.compaction_group c on c.group_key = g.group_key,
               lateral bearlake.backlog_of(g, c) b
         where g.ends <> c.offsets
    ), asked as (
        select array_agg(o.partition order by o.partition) as partitions, array_agg(o.compacted order by o.partition) as offsets
          from open o where o.place <= 32
    )
    select r.n, sum(r.z)::bigint, sum(r.c)::bigint, sum(r.one)::bigint, greatest(0, bearlake.now_ms() - min(r.ms))
      from (select o.partition >> 20 as n, o.size as z, o.end_offset - o.compacted as c, 1 as one, null::bigint as ms from open o
            union all
            select t.partition >> 20, 0, 0, 0, t.committed_ms
              from asked a, lateral bearlake.commit_times(a.partitions, a.offsets) t) r
     group by r.n order by r.n
$$;
