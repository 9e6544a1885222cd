-- Locks the row of one incarnation of a stream, so that a change by name in the same transaction finds this incarnation.
--
-- Parameters: p_number: the stream's number. p_version: the version that it must have, null: any.
-- Returns: its name.
-- Raises: BL002 it is deleted; BL004 it has another version.

create or replace function bearlake.hold_stream(p_number bigint, p_version bigint) returns text language plpgsql as $$
declare
    held bearlake.stream;
begin
    select * into held from bearlake.stream s where s.number = p_number and s.deleted_ms is null for no key update;
    if not found then
        raise exception 'stream % is deleted', coalesce((select s.name from bearlake.stream s where s.number = p_number), p_number::text)
            using errcode = 'BL002';
    end if;
    if p_version <> held.version then
        raise exception 'stream % has changed: it has version %, not %', held.name, held.version, p_version using errcode = 'BL004';
    end if;
    return held.name;
end $$;
