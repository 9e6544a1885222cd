-- Sessions begin before a connection's first write, and end without anybody's help (DESIGN.md, I12, decisions 70 and 81;
-- postgresql/sessions.py). Nothing here ends a backend: one that waits for a synchronous standby would show its commit before the standby
-- has it, and nobody can tell from outside which backend is about to wait.

drop function bearlake.stop_backends(bigint[]);

-- Begins the session p_id, a number that the client chose, for this connection. Raises 55000 if the connection's commits would not be on
-- the disk of the synchronous standby; their level is pinned, so that a later change of the configuration does not lower it.
-- Forgets the sessions of backends that are gone, and those of earlier clients of this backend (a pooler's), without waiting for them.
create or replace function bearlake.begin_session(p_id bigint) returns void language plpgsql as $$
declare
    level constant text := current_setting('synchronous_commit');
    mine bearlake.session;
begin
    if level not in ('on', 'remote_apply') then
        raise exception 'synchronous_commit is %, it must be on or remote_apply', level using errcode = '55000';
    end if;
    mine.id := p_id;
    mine.pid := pg_backend_pid();
    select a.backend_start into mine.started_at from pg_stat_get_activity(mine.pid) a;
    delete from bearlake.session s where s.id in (
        select d.id from bearlake.session d
         where d.pid = mine.pid and d.started_at = mine.started_at or not bearlake.is_running(d.pid, d.started_at)
           for update skip locked
    );
    insert into bearlake.session overriding system value select mine.*;
    perform set_config('synchronous_commit', level, false), set_config('bearlake_session.id', p_id::text, false);
end $$;

-- After this, none of these sessions can change anything. Waits for one that is in the middle of a transaction (its row is locked), or
-- in the middle of beginning (its key is taken).
create or replace function bearlake.end_sessions(p_ids bigint[]) returns void language plpgsql as $$
begin
    insert into bearlake.session overriding system value
    select u.id, 0, '-infinity' from unnest(p_ids) u (id) order by u.id
    on conflict (id) do nothing;
    perform from bearlake.session s where s.id = any (p_ids) order by s.id for update;
    delete from bearlake.session s where s.id = any (p_ids);
end $$;

-- A commit that notifies takes a lock, which PostgreSQL gives to one commit at a time. Were that wait to end by lock_timeout at the moment
-- at which the lock is given, the same signal would end the commit's wait for the standby. So whoever notifies waits without that limit:
-- the wait ends when the commits before it have ended, or the client has gone (client_connection_check_interval).
do $$
declare
    f regprocedure;
begin
    for f in
        select p.oid from pg_proc p
         where p.pronamespace = (select x.relnamespace from pg_class x where x.oid = 'bearlake.session'::regclass)
           and p.prosrc like '%perform pg\_notify(%'
    loop
        execute replace(pg_get_functiondef(f), 'perform pg_notify(', 'perform set_config(''lock_timeout'', ''0'', true), pg_notify(');
    end loop;
end $$;
