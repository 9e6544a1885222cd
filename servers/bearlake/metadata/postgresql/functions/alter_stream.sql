-- Changes the configs of a stream.
--
-- Parameters: p_name. p_set: object of strings to set. p_unset: names to remove.
-- Returns: the stream's row.
-- Raises: BL002 no such stream.

create or replace function bearlake.alter_stream(p_name text, p_set jsonb, p_unset text[])
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
