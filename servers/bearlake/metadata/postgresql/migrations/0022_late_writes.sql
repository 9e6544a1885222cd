-- Writes of subscriptions, schemas and exclusive producers that arrive late, or from a server that was overtaken (DESIGN.md, I12, decisions
-- 85 and 86). Functions under their former names stay for servers of the version before.

-- deletion_count: how often cursors of the partition were deleted; who creates one names it.
-- is_exclusive: the newest epoch was given to a producer that was to be alone, and nobody has produced beside others since.
alter table bearlake.partition_epoch
    add column deletion_count bigint not null default 0,
    add column is_exclusive boolean not null default false;
update bearlake.partition_epoch set is_exclusive = true;

-- The cursor; made, if there is none, when p_after is the number of deletions. The row of partition_epoch orders both: the transaction that
-- holds it sees all deletions before.
create function bearlake.create_cursor_after(
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
    return query select * from bearlake.subscription_cursor c where c.partition = p_partition and c.name = p_name;
    if found then
        return;
    end if;
    insert into bearlake.partition_epoch (partition, epoch) values (p_partition, 0) on conflict (partition) do nothing;
    select e.deletion_count into deletions from bearlake.partition_epoch e where e.partition = p_partition for share;
    if deletions <> p_after then
        raise exception 'subscriptions of partition % were deleted meanwhile', p_partition using errcode = 'BL004';
    end if;
    return query select * from bearlake.create_cursor(p_partition, p_name, p_mark_delete, p_properties);
end $$;

create or replace function bearlake.delete_cursors(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_partition bigint, p_names text[]
) returns void language plpgsql as $$
begin
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.partition_epoch as e (partition, epoch, deletion_count) values (p_partition, 0, 1)
    on conflict (partition) do update set deletion_count = e.deletion_count + 1;
    delete from bearlake.subscription_cursor c where c.partition = p_partition and c.name = any (p_names);
end $$;

create or replace function bearlake.raise_partition_epoch(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_partition bigint
) returns bigint language plpgsql as $$
declare
    raised bigint;
begin
    perform from bearlake.partition_group g
      where g.group_key = p_partition >> 5 and g.starts[(p_partition & 31) + 1] is not null for no key update;
    if not found then
        raise exception 'no partition %', p_partition using errcode = 'BL002';
    end if;
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.partition_epoch as e (partition, epoch, is_exclusive) values (p_partition, 1, true)
    on conflict (partition) do update set epoch = e.epoch + 1, is_exclusive = true returning e.epoch into raised;
    return raised;
end $$;

-- The epoch for producers beside others. Raised, so that the former exclusive producer is fenced, unless one has been told since the last
-- raise. Without locks where no producer was ever alone: the epoch is read first, so an exclusive producer that comes in between fences it.
create function bearlake.share_partition_epoch(p_partition bigint, p_lease text) returns bigint language plpgsql as $$
declare
    known bearlake.partition_epoch;
    held bearlake.lease;
begin
    perform from bearlake.partition_group g
      where g.group_key = p_partition >> 5 and g.starts[(p_partition & 31) + 1] is not null;
    if not found then
        raise exception 'no partition %', p_partition using errcode = 'BL002';
    end if;
    select * into known from bearlake.partition_epoch e where e.partition = p_partition;
    select * into held from bearlake.lease l where l.name = p_lease;
    if held.node_id is null and not coalesce(known.is_exclusive, false) then
        return coalesce(known.epoch, 0);
    end if;
    -- Locks in the order of raise_partition_epoch and acquire_lease.
    perform from bearlake.partition_group g where g.group_key = p_partition >> 5 for no key update;
    select * into held from bearlake.lease l where l.name = p_lease for update;
    if held.node_id is not null then
        perform from bearlake.server s where s.node_id = held.node_id for share;
        if bearlake.is_live(held.node_id, held.server_epoch) then
            raise exception 'lease % is held by server %', p_lease, held.node_id using errcode = 'BL004';
        end if;
        update bearlake.lease l set node_id = null, server_epoch = null where l.name = p_lease;
    end if;
    update bearlake.partition_epoch e set epoch = e.epoch + 1, is_exclusive = false where e.partition = p_partition and e.is_exclusive;
    return coalesce((select e.epoch from bearlake.partition_epoch e where e.partition = p_partition), 0);
end $$;

-- As set_schema_rule, if the subject has that revision.
create function bearlake.set_schema_rule_at(p_context text, p_subject text, p_revision bigint, p_what text, p_value text) returns void
language plpgsql as $$
begin
    perform bearlake.lock_schemas(p_context, p_subject, p_revision);
    perform bearlake.set_schema_rule(p_context, p_subject, p_what, p_value);
end $$;
