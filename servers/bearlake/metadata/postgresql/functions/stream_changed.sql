-- Writes the STREAM entry of the log, with its position as the stream's version.
--
-- Parameters: p_number: the stream's number.
-- Returns: the stream's row.
-- Raises: none.

create or replace function bearlake.stream_changed(p_number bigint) returns setof bearlake.stream language plpgsql as $$
declare
    at constant bigint := bearlake.next_position();
begin
    insert into bearlake.log (position, kind, stream_number) values (at, 3, p_number);
    perform set_config('lock_timeout', '0', true), pg_notify('bearlake.log', at::text);
    return query update bearlake.stream s set version = at where s.number = p_number returning s.*;
end $$;
