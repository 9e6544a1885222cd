-- Raises the epoch of a partition for an exclusive producer: named producers of older epochs are fenced (decision 86).
--
-- Parameters: p_lease, p_epoch: the lease and its epoch. p_node_id, p_server_epoch: the server that holds it, and its epoch. p_partition.
-- Returns: the epoch.
-- Raises: BL001 as check_lease; BL002 no such partition.

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

-- Returns the epoch for producers beside others, and raises it, so that the former exclusive producer is fenced, unless a shared producer
-- has got an epoch since the last raise. Takes no lock where no producer was ever exclusive: the epoch is read first, so an exclusive
-- producer that comes in between fences it. p_lease: that of the exclusive producer.
-- Raises BL002 no such partition; BL004 a live server holds the lease.
create or replace function bearlake.share_partition_epoch(p_partition bigint, p_lease text) returns bigint language plpgsql as $$
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
