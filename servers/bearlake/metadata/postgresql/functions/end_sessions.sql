-- Ends sessions: when this returns, none of them can change anything. Waits for a session in the middle of a transaction (its row is
-- locked), before it takes a turn, so that a session that hangs takes no turn from others; and for one that is beginning (its key is
-- taken).
--
-- Parameters: p_ids: ids of sessions.
-- Raises: none.

create or replace function bearlake.end_sessions(p_ids bigint[]) returns void language plpgsql as $$
begin
    perform from bearlake.session s where s.id = any (p_ids) order by s.id for update;
    perform bearlake.take_turn(1);
    insert into bearlake.session overriding system value
    select u.id, 0, '-infinity' from unnest(p_ids) u (id) order by u.id
    on conflict (id) do nothing;
    perform from bearlake.session s where s.id = any (p_ids) order by s.id for update;
    delete from bearlake.session s where s.id = any (p_ids);
end $$;
