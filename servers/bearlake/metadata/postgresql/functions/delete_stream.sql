-- Deletes a stream: commits find its partitions no more, and bearlake.sweep removes what it leaves behind.
--
-- Parameters: p_name.
-- Returns: the stream's row.
-- Raises: BL002 no such stream.

create or replace function bearlake.delete_stream(p_name text) returns setof bearlake.stream language plpgsql as $$
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
