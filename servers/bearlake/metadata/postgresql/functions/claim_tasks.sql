-- Claims tasks, the oldest first. Workers that claim at the same time pass each other by. Tasks of deleted streams are dropped on the way.
-- Stops at the first task that does not fit.
--
-- Parameters: p_node_id, p_server_epoch: the worker and its epoch. p_limit: tasks. p_bytes_max: bytes of all of them; the first may be
--   larger.
-- Returns: the tasks claimed.
-- Raises: BL001 the worker is not live.

create or replace function bearlake.claim_tasks(p_node_id integer, p_server_epoch bigint, p_limit integer, p_bytes_max bigint)
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

-- Claims tasks of some streams, and some first (compaction.TaskChoice). p_streams, p_first: regular expressions of stream names. A task of
-- a stream that p_first[i] is the first to match counts as p_head_starts[i] ms older than it is; the oldest comes first.
create or replace function bearlake.claim_chosen_tasks(
    p_node_id integer, p_server_epoch bigint, p_limit integer, p_bytes_max bigint,
    p_streams text[], p_first text[], p_head_starts bigint[]
) returns setof bearlake.queued_task language plpgsql as $$
declare
    candidates bigint[];
    dropped bigint;
begin
    perform bearlake.check_server(p_node_id, p_server_epoch);
    if not bearlake.is_live(p_node_id, p_server_epoch) then
        raise exception 'epoch % of server % is not live', p_server_epoch, p_node_id using errcode = 'BL001';
    end if;
    loop
        select array_agg(c.id order by c.due_ms, c.id) into candidates
          from (select t.id, t.oldest_ms - coalesce(
                           (select h.ms from unnest(p_first, p_head_starts) with ordinality h (pattern, ms, place)
                             where s.name ~ h.pattern order by h.place limit 1), 0) as due_ms
                  from bearlake.task t join bearlake.stream s on s.number = t.stream_number
                 where t.state = 1 and t.not_before_ms <= bearlake.now_ms()
                   and (not t.is_held or not bearlake.is_live(t.node_id, t.server_epoch))
                   and (cardinality(p_streams) = 0 or s.name ~ any (p_streams))
                 order by due_ms, t.id limit p_limit for update of t skip locked) c;
        select count(bearlake.drop_task(t)) into dropped
          from bearlake.task t join bearlake.stream s on s.number = t.stream_number
         where t.id = any (candidates) and s.deleted_ms is not null;
        exit when dropped = 0;
    end loop;
    update bearlake.task t
       set epoch = t.epoch + 1, is_held = true, node_id = p_node_id, server_epoch = p_server_epoch
      from (select c.id, sum(c.size_bytes) over (order by u.place) as total, u.place
              from unnest(candidates) with ordinality u (id, place) join bearlake.task c on c.id = u.id) fit
     where t.id = fit.id and (fit.total <= p_bytes_max or fit.place = 1);
    return query select * from bearlake.queued_task q
      where q.id = any (candidates) and q.node_id = p_node_id and q.server_epoch = p_server_epoch
      order by array_position(candidates, q.id);
end $$;
