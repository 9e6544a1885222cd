-- Liveness by counters instead of times: the rules of metadata/liveness.py. No time of this database decides who is live.

alter table bearlake.server
    add column heartbeat_count bigint not null default 0,
    add column lapse_count bigint not null default 0,
    add column has_lapsed boolean not null default false;

create or replace function bearlake.is_live(p_node_id integer, p_epoch bigint) returns boolean language sql volatile as
$$ select exists (select from bearlake.server s
                   where s.node_id = p_node_id and s.epoch = p_epoch and not s.has_left and not s.has_lapsed) $$;

-- As in 0007_tasks.sql, but for what makes a worker live.
create or replace view bearlake.queued_task as
select t.id, t.kind, t.state, t.stream_number, t.partitions, t.starts, t.ends, t.inputs, t.size_bytes, t.record_count,
       greatest(0, n.now - t.oldest_ms) as age_ms, t.epoch, s.node_id, s.epoch as server_epoch, t.attempt_count,
       greatest(0, t.not_before_ms - n.now) as wait_ms, t.error,
       (select array_agg(r.epoch order by r.epoch) from bearlake.task_result r where r.task_id = t.id) as result_epochs,
       (select array_agg(r.result order by r.epoch) from bearlake.task_result r where r.task_id = t.id) as results
  from bearlake.task t
 cross join (select bearlake.now_ms() as now) n
  left join bearlake.server s on t.is_held and s.node_id = t.node_id and s.epoch = t.server_epoch and not s.has_left
       and not s.has_lapsed;

alter table bearlake.server drop column heartbeat_ms;

-- Holding the head, so that no commit of a former epoch can be between its check and its end.
create or replace function bearlake.register_server(
    p_name text, p_zone text, p_endpoints jsonb, p_version text, p_timeout_ms bigint, out node_id integer, out epoch bigint
) language plpgsql as $$
begin
    perform from bearlake.log_head for update;
    insert into bearlake.server as s (node_id, name, epoch, zone, endpoints, version, timeout_ms)
    select coalesce(max(o.node_id) + 1, 0), p_name, coalesce(max(o.epoch), 0) + 1, p_zone, p_endpoints, p_version, p_timeout_ms
      from bearlake.server o
    on conflict (name) do update
       set epoch = excluded.epoch, zone = excluded.zone, endpoints = excluded.endpoints, version = excluded.version,
           timeout_ms = excluded.timeout_ms, heartbeat_count = 0, lapse_count = 0, has_lapsed = false, is_draining = false,
           has_left = false
    returning s.node_id, s.epoch into node_id, epoch;
end $$;

-- Its leases are free from then on, since it is not live.
create or replace function bearlake.leave_server(p_node_id integer, p_epoch bigint) returns void language plpgsql as $$
begin
    perform from bearlake.log_head for update;
    update bearlake.server s set has_left = true where s.node_id = p_node_id and s.epoch = p_epoch;
end $$;

-- One heartbeat: the server is live, and learns how often it had lapsed. Waits for whoever is taking one of its leases (acquire_lease), so
-- that what it looks up afterwards is decided.
create function bearlake.beat_server(p_node_id integer, p_epoch bigint) returns bigint language plpgsql as $$
declare
    lapses bigint;
begin
    update bearlake.server s set heartbeat_count = s.heartbeat_count + 1, has_lapsed = false
     where s.node_id = p_node_id and s.epoch = p_epoch and not s.has_left
    returning s.lapse_count into lapses;
    if not found then
        perform bearlake.check_server(p_node_id, p_epoch);
    end if;
    return lapses;
end $$;

-- A repeat changes nothing and returns true again.
create function bearlake.lapse_server(p_node_id integer, p_epoch bigint, p_heartbeat_count bigint)
returns boolean language plpgsql as $$
begin
    update bearlake.server s set has_lapsed = true, lapse_count = s.lapse_count + (not s.has_lapsed)::integer
     where s.node_id = p_node_id and s.epoch = p_epoch and not s.has_left and s.heartbeat_count = p_heartbeat_count;
    return found;
end $$;

-- Locks in the order: lease, then the server that holds it. That lock makes the holder's next heartbeat wait for the end of this
-- transaction: no server is revived while somebody who has seen it lapsed takes its lease.
create or replace function bearlake.acquire_lease(p_name text, p_node_id integer, p_epoch bigint) returns bigint language plpgsql as $$
declare
    held bearlake.lease;
begin
    perform bearlake.check_server(p_node_id, p_epoch);
    if not bearlake.is_live(p_node_id, p_epoch) then
        raise exception 'epoch % of server % is not live', p_epoch, p_node_id using errcode = 'BL001';
    end if;
    insert into bearlake.lease values (p_name, 1, p_node_id, p_epoch) on conflict (name) do nothing;
    if found then
        return 1;
    end if;
    select * into held from bearlake.lease l where l.name = p_name for update;
    if held.node_id = p_node_id and held.server_epoch = p_epoch then
        return held.epoch;
    end if;
    perform from bearlake.server s where s.node_id = held.node_id for share;
    if held.node_id is not null and bearlake.is_live(held.node_id, held.server_epoch) then
        raise exception 'lease is held by server %', held.node_id using errcode = 'BL004';
    end if;
    update bearlake.lease l set epoch = held.epoch + 1, node_id = p_node_id, server_epoch = p_epoch where l.name = p_name;
    return held.epoch + 1;
end $$;
