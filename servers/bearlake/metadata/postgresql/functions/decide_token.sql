-- Decides a commit token, once (I8): takes the log position of a commit that accepted batches, and remembers the outcomes.
--
-- Parameters: p_token, p_node_id, p_epoch, p_size: as commit_object. p_slice_count: accepted slices. p_outcomes: what commit_object returns.
-- Returns: the position of the log entry; 0: no batch was accepted, so there is no entry.
-- Raises: BL001 the server's epoch is not its newest; BL009 the token has a result; BL011 the token is older than the remembered ones.

create or replace function bearlake.decide_token(
    p_token text, p_node_id integer, p_epoch bigint, p_size bigint, p_slice_count integer, p_outcomes bigint[]
) returns bigint language plpgsql as $$
declare
    log_position bigint := 0;
    floor text collate "C";
begin
    -- Token, position, server: in this order, the head's lock last.
    if exists (select from bearlake.object o where o.key = p_token) then
        raise exception 'token is known' using errcode = 'BL009';
    end if;
    if p_slice_count > 0 then
        update bearlake.log_head h set position = h.position + 1 returning h.position, h.token_floor into log_position, floor;
    end if;
    -- Registration and leaving take the head too: a transaction that reads here while holding it cannot miss a newer epoch.
    perform bearlake.check_server(p_node_id, p_epoch);
    -- A refusal is remembered as a forbidden key with a size and outcomes: its bytes are an orphan's.
    insert into bearlake.object
    values (p_token, case when p_slice_count > 0 then log_position else -1 end, p_size, bearlake.now_ms(), p_slice_count,
            coalesce(p_outcomes, '{}'))
    on conflict (key) do nothing;
    if not found then
        raise exception 'token is known' using errcode = 'BL009';
    end if;
    -- The floor is raised under the head's lock before a key is forgotten. A transaction without this lock reads the floor after the
    -- insertion, which has waited for a deletion of the key.
    if p_slice_count = 0 then
        select h.token_floor into floor from bearlake.log_head h;
    end if;
    if p_token collate "C" <= floor then
        raise exception 'the object % is older than the commits that the metadata store remembers (back to %): this server''s clock is'
            ' behind the store''s clock, or the server stood still for too long', p_token, floor using errcode = 'BL011';
    end if;
    return log_position;
end $$;
