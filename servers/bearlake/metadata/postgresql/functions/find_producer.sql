-- The producer of a name, made if there is none, with its state and the partition's epoch as of now. Locks as a commit does, but only
-- if something is to be written.
--
-- Parameters: p_partition, p_name.
-- Returns: producer_id; producer_epoch and last_sequence, -1: none; partition_epoch; floor: the log position of the newest expiry of
--   named producers when the name was registered.
-- Raises: BL002 no such partition.

create or replace function bearlake.find_producer(
    p_partition bigint, p_name text,
    out producer_id bigint, out producer_epoch bigint, out last_sequence bigint, out partition_epoch bigint, out floor bigint
) language plpgsql as $$
declare
    minute constant integer := (select c.producer_minute from bearlake.cluster c);
    asked integer;
begin
    if not exists (select from bearlake.partition_group g
                    where g.group_key = p_partition >> 5 and g.starts[(p_partition & 31) + 1] is not null) then
        raise exception 'no partition %', p_partition using errcode = 'BL002';
    end if;
    select n.producer_id, n.asked_minute, n.floor into producer_id, asked, floor
      from bearlake.producer_name n where n.partition = p_partition and n.name = p_name;
    if asked is null or asked < minute then
        perform from bearlake.partition_group g where g.group_key = p_partition >> 5 for no key update;
        if not found then
            raise exception 'no partition %', p_partition using errcode = 'BL002';
        end if;
        update bearlake.producer_name n set asked_minute = minute
         where n.partition = p_partition and n.name = p_name returning n.producer_id, n.floor into producer_id, floor;
        if not found then
            update bearlake.cluster c set producer_id_next = c.producer_id_next + 1
                returning c.producer_id_next - 1, c.named_floor into producer_id, floor;
            insert into bearlake.producer_name values (p_partition, p_name, producer_id, floor, minute);
        end if;
    end if;
    select p.producer_epoch, p.batches[2] into producer_epoch, last_sequence
      from bearlake.producer p where p.partition = p_partition and p.producer_id = find_producer.producer_id;
    select e.epoch into partition_epoch from bearlake.partition_epoch e where e.partition = p_partition;
    producer_epoch := coalesce(producer_epoch, -1);
    last_sequence := coalesce(last_sequence, -1);
    partition_epoch := coalesce(partition_epoch, 0);
end $$;
