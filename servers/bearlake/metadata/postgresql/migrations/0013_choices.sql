-- Workers that take only some streams' tasks, and some first (compaction.TaskChoice); and when streams were compacted last.

-- Patterns are regular expressions of stream names. A task of a stream that p_first[i] is the first to match counts as
-- p_head_starts[i] milliseconds older than it is; the oldest comes first. Otherwise as claim_tasks.
create function bearlake.claim_chosen_tasks(
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

create table bearlake.stream_commits (
    stream_number bigint primary key,
    commit_count bigint not null,
    committed_ms bigint not null
) with (fillfactor = 50);

-- A task is done when its swap is in the log; a swap whose offsets were all trimmed meanwhile names no partition, and counts for none.
create function bearlake.count_commit() returns trigger language plpgsql as $$
begin
    insert into bearlake.stream_commits as c
    select l.partitions[1] >> 20, 1, new.closed_ms from bearlake.log l
     where l.position = new.position and cardinality(l.partitions) > 0
        on conflict (stream_number) do update
       set commit_count = c.commit_count + 1, committed_ms = greatest(c.committed_ms, excluded.committed_ms);
    return null;
end $$;
create trigger count_commit after insert on bearlake.task_closed
    for each row when (new.position > 0) execute function bearlake.count_commit();
