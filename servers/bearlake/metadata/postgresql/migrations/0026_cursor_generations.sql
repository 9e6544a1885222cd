-- Deletions and saves of cursors that arrive late (DESIGN.md, I12, decision 102; the rules are those of metadata/cursor_rules.py). Functions
-- under their former names stay for servers of the version before.

-- generation: the partition's count of deletions when the cursor was made: which of the cursors that have had its name it is.
alter table bearlake.subscription_cursor add column generation bigint not null default 0;

-- As before, with the generation. Its callers hold the row of partition_epoch, if there is one.
create or replace function bearlake.create_cursor(p_partition bigint, p_name text, p_mark_delete bigint, p_properties text)
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
    values (p_partition, p_name, least(greatest(p_mark_delete, bounds[1]), bounds[2]), '', p_properties, bearlake.now_ms(), 0,
            coalesce((select e.deletion_count from bearlake.partition_epoch e where e.partition = p_partition), 0))
    on conflict (partition, name) do nothing;
    return query select * from bearlake.subscription_cursor c where c.partition = p_partition and c.name = p_name;
end $$;

-- The cursor; made, if there is none, when p_after is the number of deletions. If there is one, the number grows: deletions that name the
-- former number are refused from now on. The row of partition_epoch orders all of them: the transaction that holds it sees those before.
create function bearlake.create_cursor_as_of(
    p_partition bigint, p_name text, p_mark_delete bigint, p_properties text, p_after bigint
) returns setof bearlake.subscription_cursor language plpgsql as $$
declare
    deletions bigint;
begin
    perform from bearlake.partition_group g
      where g.group_key = p_partition >> 5 and g.starts[(p_partition & 31) + 1] is not null for key share;
    if not found then
        raise exception 'no partition %', p_partition using errcode = 'BL002';
    end if;
    insert into bearlake.partition_epoch (partition, epoch) values (p_partition, 0) on conflict (partition) do nothing;
    select e.deletion_count into deletions from bearlake.partition_epoch e where e.partition = p_partition for no key update;
    return query select * from bearlake.subscription_cursor c where c.partition = p_partition and c.name = p_name;
    if found then
        update bearlake.partition_epoch e set deletion_count = e.deletion_count + 1 where e.partition = p_partition;
        return;
    end if;
    if deletions <> p_after then
        raise exception 'subscriptions of partition % were deleted meanwhile', p_partition using errcode = 'BL004';
    end if;
    return query select * from bearlake.create_cursor(p_partition, p_name, p_mark_delete, p_properties);
end $$;

-- Deletes cursor i if it is of generation p_generations[i], when p_after is the number of deletions; the number grows.
create function bearlake.delete_cursors_as_of(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_partition bigint, p_names text[], p_generations bigint[],
    p_after bigint
) returns void language plpgsql as $$
declare
    deletions bigint;
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.partition_epoch (partition, epoch) values (p_partition, 0) on conflict (partition) do nothing;
    select e.deletion_count into deletions from bearlake.partition_epoch e where e.partition = p_partition for no key update;
    if deletions <> p_after then
        raise exception 'subscriptions of partition % were found or deleted meanwhile', p_partition using errcode = 'BL004';
    end if;
    update bearlake.partition_epoch e set deletion_count = e.deletion_count + 1 where e.partition = p_partition;
    delete from bearlake.subscription_cursor c using unnest(p_names, p_generations) u (name, generation)
     where c.partition = p_partition and c.name = u.name and c.generation = u.generation;
end $$;

-- As save_cursors, but update j moves only a cursor of generation p_generations[j]. Returns the partitions whose lease is overtaken, with no
-- name, and the updates of the others that are not in the store.
create function bearlake.save_cursors_as_of(
    p_partitions bigint[], p_leases text[], p_epochs bigint[], p_node_ids integer[], p_server_epochs bigint[], p_saves integer[],
    p_names text[], p_generations bigint[], p_marks bigint[], p_acknowledged bytea[], p_revisions bigint[], p_properties text[]
) returns table (partition bigint, name text) language plpgsql as $$
#variable_conflict use_column
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
      from unnest(p_saves, p_names, p_generations, p_marks, p_acknowledged, p_revisions, p_properties)
           u (save, name, generation, mark_delete, acknowledged, revision, properties)
     where is_held[u.save] and c.partition = p_partitions[u.save] and c.name = u.name and c.generation = u.generation
       and c.revision < u.revision;
    return query
    select u.partition, null::text from unnest(p_partitions, is_held) u (partition, is_held) where not u.is_held
    union all
    select p_partitions[u.save], u.name from unnest(p_saves, p_names, p_generations, p_revisions) u (save, name, generation, revision)
     where is_held[u.save] and not exists (
        select from bearlake.subscription_cursor c
         where c.partition = p_partitions[u.save] and c.name = u.name and c.generation = u.generation and c.revision = u.revision);
end $$;
