-- Streams and servers. Lock order: stream row, partition groups by key, the log's head, then single rows.

create function bearlake.create_stream(p_name text, p_id uuid, p_partition_count integer, p_configs jsonb)
returns setof bearlake.stream language plpgsql as $$
declare
    made bearlake.stream;
begin
    insert into bearlake.stream (name, id, partition_count, configs, created_ms)
    values (p_name, p_id, p_partition_count, p_configs, bearlake.now_ms()) returning * into made;
    perform bearlake.grow_groups(made.number, 0, p_partition_count);
    return query select * from bearlake.stream_changed(made.number);
end $$;

-- Writes the STREAM entry, with its position as the stream's version.
create function bearlake.stream_changed(p_number bigint) returns setof bearlake.stream language plpgsql as $$
declare
    at constant bigint := bearlake.next_position();
begin
    insert into bearlake.log (position, kind, stream_number) values (at, 3, p_number);
    perform pg_notify('bearlake.log', at::text);
    return query update bearlake.stream s set version = at where s.number = p_number returning s.*;
end $$;

-- Adds the partitions [p_from, p_to) of a stream, empty.
create function bearlake.grow_groups(p_number bigint, p_from integer, p_to integer) returns void language plpgsql as $$
declare
    first_key constant bigint := (p_number << 20) >> 5;
    zeros bigint[];
begin
    if p_from & 31 > 0 then
        zeros := array_fill(0::bigint, array[least(p_to, (p_from | 31) + 1) - p_from]);
        update bearlake.partition_group g
           set starts = starts || zeros, ends = ends || zeros, sizes = sizes || zeros, sizes_before = sizes_before || zeros
         where g.group_key = first_key + (p_from >> 5);
    end if;
    insert into bearlake.partition_group
    select first_key + i, z.z, z.z, z.z, z.z
      from generate_series((p_from + 31) >> 5, (p_to - 1) >> 5) i,
           lateral (select array_fill(0::bigint, array[least(32, p_to - (i << 5))]) as z) z;
end $$;

create function bearlake.add_partitions(p_name text, p_partition_count integer)
returns setof bearlake.stream language plpgsql as $$
declare
    old bearlake.stream;
begin
    select * into old from bearlake.stream s where s.name = p_name and s.deleted_ms is null for no key update;
    if not found then
        raise exception 'no stream %', p_name using errcode = 'BL002';
    end if;
    if p_partition_count <= old.partition_count then
        raise exception 'stream % has % partitions already', p_name, old.partition_count using errcode = 'BL006';
    end if;
    update bearlake.stream s set partition_count = p_partition_count where s.number = old.number;
    perform bearlake.grow_groups(old.number, old.partition_count, p_partition_count);
    return query select * from bearlake.stream_changed(old.number);
end $$;

create function bearlake.alter_stream(p_name text, p_set jsonb, p_unset text[])
returns setof bearlake.stream language plpgsql as $$
declare
    stream_number bigint;
begin
    update bearlake.stream s set configs = (configs - p_unset) || p_set
     where s.name = p_name and s.deleted_ms is null returning s.number into stream_number;
    if not found then
        raise exception 'no stream %', p_name using errcode = 'BL002';
    end if;
    return query select * from bearlake.stream_changed(stream_number);
end $$;

-- Commits find no partition any more; what the stream leaves behind is swept by maintenance.
create function bearlake.delete_stream(p_name text) returns setof bearlake.stream language plpgsql as $$
declare
    stream_number bigint;
    changed bearlake.stream;
begin
    update bearlake.stream s set deleted_ms = bearlake.now_ms()
     where s.name = p_name and s.deleted_ms is null returning s.number into stream_number;
    if not found then
        raise exception 'no stream %', p_name using errcode = 'BL002';
    end if;
    perform from bearlake.partition_group g
      where g.group_key >= (stream_number << 15) and g.group_key < ((stream_number + 1) << 15)
      order by g.group_key for update;
    delete from bearlake.partition_group g
      where g.group_key >= (stream_number << 15) and g.group_key < ((stream_number + 1) << 15);
    select * into changed from bearlake.stream_changed(stream_number);
    insert into bearlake.sweep values (changed.version, stream_number << 20, ((stream_number + 1) << 20) - 1, null);
    return next changed;
end $$;

-- Holding the head, so that no commit of a former epoch can be between its check and its end.
create function bearlake.register_server(
    p_name text, p_zone text, p_endpoints jsonb, p_version text, p_timeout_ms bigint, out node_id integer, out epoch bigint
) language plpgsql as $$
begin
    perform from bearlake.log_head for update;
    insert into bearlake.server as s (node_id, name, epoch, zone, endpoints, version, timeout_ms, heartbeat_ms)
    select coalesce(max(o.node_id) + 1, 0), p_name, coalesce(max(o.epoch), 0) + 1, p_zone, p_endpoints,
           p_version, p_timeout_ms, bearlake.now_ms()
      from bearlake.server o
    on conflict (name) do update
       set epoch = excluded.epoch, zone = excluded.zone, endpoints = excluded.endpoints, version = excluded.version,
           timeout_ms = excluded.timeout_ms, heartbeat_ms = excluded.heartbeat_ms, is_draining = false, has_left = false
    returning s.node_id, s.epoch into node_id, epoch;
end $$;

create function bearlake.leave_server(p_node_id integer, p_epoch bigint) returns void language plpgsql as $$
begin
    perform from bearlake.log_head for update;
    update bearlake.server s set has_left = true where s.node_id = p_node_id and s.epoch = p_epoch;
    update bearlake.lease l set node_id = null, server_epoch = null
     where l.node_id = p_node_id and l.server_epoch = p_epoch;
end $$;

create function bearlake.is_live(p_node_id integer, p_epoch bigint) returns boolean language sql volatile as
$$ select exists (select from bearlake.server s
                   where s.node_id = p_node_id and s.epoch = p_epoch and not s.has_left
                     and s.heartbeat_ms + s.timeout_ms > bearlake.now_ms()) $$;

create function bearlake.acquire_lease(p_name text, p_node_id integer, p_epoch bigint) returns bigint language plpgsql as $$
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
    if held.node_id is not null and bearlake.is_live(held.node_id, held.server_epoch) then
        raise exception 'lease is held by server %', held.node_id using errcode = 'BL004';
    end if;
    update bearlake.lease l set epoch = held.epoch + 1, node_id = p_node_id, server_epoch = p_epoch where l.name = p_name;
    return held.epoch + 1;
end $$;

-- Holds the lease's row until the transaction ends, so that nobody takes it over in the middle of a fenced write.
create function bearlake.check_lease(p_name text, p_epoch bigint, p_node_id integer, p_server_epoch bigint)
returns void language plpgsql as $$
begin
    perform from bearlake.lease l
      where l.name = p_name and l.epoch = p_epoch and l.node_id = p_node_id and l.server_epoch = p_server_epoch for share;
    if not found then
        raise exception 'lease % of epoch % is overtaken', p_name, p_epoch using errcode = 'BL001';
    end if;
    perform bearlake.check_server(p_node_id, p_server_epoch);
end $$;

-- Locks in the order: lease, then servers. Absent offsets are fine.
create function bearlake.save_group(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text, p_protocol_type text, p_state bytea
) returns void language plpgsql as $$
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.consumer_group values (p_group, p_protocol_type, p_state)
    on conflict (name) do update set protocol_type = excluded.protocol_type, state = excluded.state;
end $$;

create function bearlake.commit_group_offsets(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text,
    p_partitions bigint[], p_offsets bigint[], p_leader_epochs integer[], p_metadata text[]
) returns void language plpgsql as $$
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.group_offset
    select p_group, u.partition, u.o, u.e, u.m, bearlake.now_ms()
      from unnest(p_partitions, p_offsets, p_leader_epochs, p_metadata) u (partition, o, e, m) order by u.partition
    on conflict (name, partition) do update
       set committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch,
           metadata = excluded.metadata, committed_ms = excluded.committed_ms;
end $$;

create function bearlake.delete_group_offsets(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text, p_partitions bigint[]
) returns void language plpgsql as $$
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    delete from bearlake.group_offset o where o.name = p_group and o.partition = any (p_partitions);
end $$;

create function bearlake.delete_group(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text
) returns void language plpgsql as $$
declare
    had_snapshot boolean;
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    delete from bearlake.consumer_group c where c.name = p_group;
    had_snapshot := found;
    delete from bearlake.group_offset o where o.name = p_group;
    if not (found or had_snapshot) then
        raise exception 'no group %', p_group using errcode = 'BL002';
    end if;
end $$;

-- Groups by name behind p_after. Skips from name to name in the index of offsets: a group may have many of them.
create function bearlake.list_groups(p_after text, p_limit integer)
returns table (name text, protocol_type text) language sql stable as $$
    with recursive named (name, seen) as (
        select min(o.name collate "C"), 1 from bearlake.group_offset o where o.name > p_after collate "C"
        union all
        select (select min(o.name collate "C") from bearlake.group_offset o where o.name > n.name collate "C"), n.seen + 1
          from named n where n.name is not null and n.seen < p_limit
    ), listed as (
        select n.name, '' as protocol_type from named n where n.name is not null
        union all
        (select c.name, c.protocol_type from bearlake.consumer_group c
          where c.name > p_after collate "C" order by c.name limit p_limit)
    )
    select l.name::text, max(l.protocol_type) from listed l group by l.name order by l.name collate "C" limit p_limit
$$;
