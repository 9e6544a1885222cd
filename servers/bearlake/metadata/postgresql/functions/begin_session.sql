-- Begins a session of this connection (I12, decisions 70 and 82; postgresql/sessions.py). Pins the level of synchronous_commit, so that a
-- later change of the configuration does not lower it. Forgets sessions of backends that are gone, and of earlier clients of this
-- backend (a pooler's), without waiting for them. Nothing here ends a backend (decision 81).
--
-- Parameters: p_id: the id that the client chose.
-- Raises: 55000 commits would not be on the disk of the synchronous standby. BL012 in layouts that this program cannot use (decision
--   101).

create or replace function bearlake.begin_session(p_id bigint) returns void language plpgsql as $$
declare
    level constant text := current_setting('synchronous_commit');
    mine bearlake.session;
begin
    if level not in ('on', 'remote_apply') then
        raise exception 'synchronous_commit is %, it must be on or remote_apply', level using errcode = '55000';
    end if;
    perform bearlake.take_turn(0);
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

-- Whether the backend still runs. PostgreSQL hides the start time of other users' backends: such a backend counts as running.
create or replace function bearlake.is_running(p_pid integer, p_started_at timestamptz) returns boolean language sql volatile as
$$ select exists (select from pg_stat_get_activity(p_pid) a where coalesce(a.backend_start = p_started_at, true)) $$;
