-- The first result of a token that is decided.
--
-- Parameters: p_token: key of the WAL object.
-- Returns: log_position and outcomes as commit_object; position 0: nothing was accepted.
-- Raises: BL001 the token is forbidden; BL004 its result is not kept any more; BL011 it was forgotten just now.

create or replace function bearlake.token_result(p_token text, out log_position bigint, out outcomes bigint[])
language plpgsql stable as $$
declare
    object_size bigint;
begin
    select o.number, o.outcomes, o.size into log_position, outcomes, object_size from bearlake.object o where o.key = p_token;
    if not found then
        raise exception 'the object % is older than the commits that the metadata store remembers: it was forgotten just now', p_token
            using errcode = 'BL011';
    elsif log_position = -1 and object_size = 0 then
        raise exception 'commit token is forbidden' using errcode = 'BL001';
    elsif outcomes is null then
        raise exception 'commit token was used too long ago' using errcode = 'BL004';
    end if;
    log_position := greatest(log_position, 0);
end $$;
