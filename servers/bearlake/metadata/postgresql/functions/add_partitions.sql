-- Grows a stream.
--
-- Parameters: p_name. p_partition_count: the new count.
-- Returns: the stream's row.
-- Raises: BL002 no such stream; BL006 it is terminated, or has as many partitions.

create or replace function bearlake.add_partitions(p_name text, p_partition_count integer)
returns setof bearlake.stream language plpgsql as $$
declare
    old bearlake.stream;
begin
    select * into old from bearlake.stream s where s.name = p_name and s.deleted_ms is null for no key update;
    if not found then
        raise exception 'no stream %', p_name using errcode = 'BL002';
    end if;
    if old.is_terminated then
        raise exception 'stream % is terminated, it cannot be grown', p_name using errcode = 'BL006';
    end if;
    if p_partition_count <= old.partition_count then
        raise exception 'stream % has % partitions already', p_name, old.partition_count using errcode = 'BL006';
    end if;
    update bearlake.stream s set partition_count = p_partition_count where s.number = old.number;
    perform bearlake.grow_groups(old.number, old.partition_count, p_partition_count);
    return query select * from bearlake.stream_changed(old.number);
end $$;
