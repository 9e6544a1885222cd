-- Ends a stream: its partitions accept no more batches. Takes the lock of the partitions' rows, under which commits assign offsets, so no
-- batch is accepted after it. A repeat changes nothing.
--
-- Parameters: p_name.
-- Returns: the stream's row.
-- Raises: BL002 no such stream.

create or replace function bearlake.terminate_stream(p_name text) returns setof bearlake.stream language plpgsql as $$
declare
    found_stream bearlake.stream;
begin
    select * into found_stream from bearlake.stream s where s.name = p_name and s.deleted_ms is null for no key update;
    if not found then
        raise exception 'no stream %', p_name using errcode = 'BL002';
    end if;
    if found_stream.is_terminated then
        return next found_stream;
        return;
    end if;
    update bearlake.stream s set is_terminated = true where s.number = found_stream.number;
    perform from bearlake.partition_group g
      where g.group_key >= (found_stream.number << 15) and g.group_key < ((found_stream.number + 1) << 15)
      order by g.group_key for no key update;
    update bearlake.partition_group g set is_terminated = true
      where g.group_key >= (found_stream.number << 15) and g.group_key < ((found_stream.number + 1) << 15);
    return query select * from bearlake.stream_changed(found_stream.number);
end $$;
