-- Cursors of durable subscriptions. See metadata/subscriptions.py.

-- Rows are rewritten by each save: the free space keeps small ones within their page (HOT); the ranges are packed already.
create table bearlake.subscription_cursor (
    partition bigint not null,
    name text collate "C" not null,
    mark_delete bigint not null,
    acknowledged bytea not null,
    properties text not null, -- JSON object of strings
    created_ms bigint not null,
    revision bigint not null,
    primary key (partition, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
alter table bearlake.subscription_cursor alter column acknowledged set storage external;

-- The cursor, made at p_mark_delete within the bounds as of now if there is none. The partition cannot be deleted meanwhile.
create function bearlake.create_cursor(p_partition bigint, p_name text, p_mark_delete bigint, p_properties text)
returns setof bearlake.subscription_cursor language plpgsql as $$
declare
    bounds bigint[];
begin
    select array[g.starts[(p_partition & 31) + 1], g.ends[(p_partition & 31) + 1]] into bounds
      from bearlake.partition_group g where g.group_key = p_partition >> 5 for key share;
    if bounds[1] is null then
        raise exception 'no partition %', p_partition using errcode = 'BL002';
    end if;
    insert into bearlake.subscription_cursor
    values (p_partition, p_name, least(greatest(p_mark_delete, bounds[1]), bounds[2]), '', p_properties, bearlake.now_ms(), 0)
    on conflict (partition, name) do nothing;
    return query select * from bearlake.subscription_cursor c where c.partition = p_partition and c.name = p_name;
end $$;

-- Partition, name, … of the cursors of a partition that exists.
create function bearlake.cursors_of(p_partition bigint) returns setof bearlake.subscription_cursor language sql stable as $$
    select c.* from bearlake.partition_group g join bearlake.subscription_cursor c on c.partition = p_partition
     where g.group_key = p_partition >> 5 and g.starts[(p_partition & 31) + 1] is not null order by c.name
$$;

-- Moves cursors. Save i is of partition p_partitions[i] under the lease p_leases[i], …; update j belongs to save p_saves[j].
-- Returns the partitions whose lease is overtaken; nothing of theirs is changed. Holds the leases until the transaction ends.
create function bearlake.save_cursors(
    p_partitions bigint[], p_leases text[], p_epochs bigint[], p_node_ids integer[], p_server_epochs bigint[],
    p_saves integer[], p_names text[], p_marks bigint[], p_acknowledged bytea[], p_revisions bigint[], p_properties text[]
) returns setof bigint language plpgsql as $$
declare
    is_held boolean[];
begin
    perform from bearlake.lease l where l.name = any (p_leases) order by l.name for share;
    select array_agg(l.name is not null and s.node_id is not null order by u.i) into is_held
      from unnest(p_leases, p_epochs, p_node_ids, p_server_epochs) with ordinality u (name, epoch, node_id, server_epoch, i)
      left join bearlake.lease l
        on l.name = u.name and l.epoch = u.epoch and l.node_id = u.node_id and l.server_epoch = u.server_epoch
      left join bearlake.server s on s.node_id = u.node_id and s.epoch = u.server_epoch and not s.has_left;
    update bearlake.subscription_cursor c
       set mark_delete = u.mark_delete, acknowledged = u.acknowledged, revision = u.revision,
           properties = coalesce(u.properties, c.properties)
      from unnest(p_saves, p_names, p_marks, p_acknowledged, p_revisions, p_properties)
           u (save, name, mark_delete, acknowledged, revision, properties)
     where is_held[u.save] and c.partition = p_partitions[u.save] and c.name = u.name and c.revision < u.revision;
    return query select u.partition from unnest(p_partitions, is_held) u (partition, is_held) where not u.is_held;
end $$;

create function bearlake.delete_cursors(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_partition bigint, p_names text[]
) returns void language plpgsql as $$
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    delete from bearlake.subscription_cursor c where c.partition = p_partition and c.name = any (p_names);
end $$;

-- Drops at most p_limit rows that a deleted stream's partitions left behind; returns how many. Its tasks that are set aside, which
-- nobody will claim, go too.
create or replace function bearlake.sweep_partitions(p_first bigint, p_last bigint, p_limit integer) returns integer language plpgsql as $$
declare
    remaining integer := p_limit;
    part integer;
begin
    perform bearlake.drop_task(t) from bearlake.task t where t.stream_number = p_first >> 20 and t.state = 2;
    delete from bearlake.producer p where (p.partition, p.producer_id) in (
        select q.partition, q.producer_id from bearlake.producer q where q.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.producer_name n where (n.partition, n.name) in (
        select o.partition, o.name from bearlake.producer_name o where o.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.partition_epoch e where e.partition in (
        select f.partition from bearlake.partition_epoch f where f.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.subscription_cursor c where (c.partition, c.name) in (
        select d.partition, d.name from bearlake.subscription_cursor d where d.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.group_offset g where (g.name, g.partition) in (
        select h.name, h.partition from bearlake.group_offset h where h.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.compaction_group c where c.group_key in (
        select d.group_key from bearlake.compaction_group d where d.group_key between p_first >> 5 and p_last >> 5 limit remaining);
    get diagnostics part = row_count;
    return p_limit - remaining + part;
end $$;
