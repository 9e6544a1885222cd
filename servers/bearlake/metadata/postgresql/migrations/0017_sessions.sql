-- A write that its client gave up cannot happen later (DESIGN.md, I12; postgresql/database.py).
-- Each connection that writes has a row in `session`, and carries its id in the parameter `bearlake_session.id`. The first statement
-- of a transaction that changes a table locks that row until the transaction ends. Deleting the row waits for such a transaction;
-- afterwards the session changes nothing any more, however late its statements arrive. Deleting a row is always safe: a living
-- process connects again.

-- `pid` and `started_at` name the backend as pg_stat_activity does.
create table bearlake.session (
    id bigint generated always as identity primary key,
    pid integer not null,
    started_at timestamptz not null
) with (fillfactor = 50);

-- Raises BL010 if the session of this connection was deleted. Connections without a session (psql, programs before this layout) pass.
-- Only the first check of a transaction looks: `is_held` is undone together with the lock, also when a subtransaction rolls back.
create function bearlake.check_session() returns trigger language plpgsql as $$
begin
    if current_setting('bearlake_session.is_held', true) = 'yes' then
        return null;
    end if;
    if current_setting('bearlake_session.id', true) <> '' then
        perform from bearlake.session s where s.id = current_setting('bearlake_session.id')::bigint for key share;
        if not found then
            raise exception 'session % has ended', current_setting('bearlake_session.id') using errcode = 'BL010';
        end if;
    end if;
    perform set_config('bearlake_session.is_held', 'yes', true);
    return null;
end $$;

-- Guards a table. Every migration that creates a table calls this for it.
create function bearlake.fence_table(p_table text) returns void language plpgsql as $$
begin
    execute 'create trigger fence before insert or update or delete or truncate on bearlake.' || quote_ident(p_table)
         || ' for each statement execute function bearlake.check_session()';
end $$;

-- Whether the backend still runs. PostgreSQL hides the start time of other users' backends: such a one counts as running.
create function bearlake.is_running(p_pid integer, p_started_at timestamptz) returns boolean language sql volatile as
$$ select exists (select from pg_stat_get_activity(p_pid) a where coalesce(a.backend_start = p_started_at, true)) $$;

-- Makes a session for this connection and returns its id. Forgets the sessions of backends that are gone, without waiting for them.
create or replace function bearlake.begin_session() returns bigint language plpgsql as $$
declare
    made bigint;
begin
    delete from bearlake.session s where s.id in (
        select d.id from bearlake.session d where not bearlake.is_running(d.pid, d.started_at) for update skip locked
    );
    insert into bearlake.session (pid, started_at)
    select pg_backend_pid(), a.backend_start from pg_stat_get_activity(pg_backend_pid()) a returning id into made;
    perform set_config('bearlake_session.id', made::text, false);
    return made;
end $$;

-- Terminates the backends of these sessions, as far as PostgreSQL lets this user: a courtesy, so that one that waits for a lock, or does
-- not know yet that its client has gone, ends now.
create function bearlake.stop_backends(p_ids bigint[]) returns void language sql as $$
    select pg_terminate_backend(s.pid)
      from bearlake.session s, lateral pg_stat_get_activity(s.pid) a
     where s.id = any (p_ids) and a.backend_start = s.started_at
       and a.usesysid = (select r.oid from pg_roles r where r.rolname = current_user)
$$;

-- After this, none of these sessions can change anything. Waits for one that is in the middle of a transaction.
create function bearlake.end_sessions(p_ids bigint[]) returns void language plpgsql as $$
begin
    perform bearlake.stop_backends(p_ids);
    perform from bearlake.session s where s.id = any (p_ids) order by s.id for update;
    delete from bearlake.session s where s.id = any (p_ids);
end $$;

select bearlake.fence_table(c.relname)
  from pg_class c
 where c.relnamespace = (select x.relnamespace from pg_class x where x.oid = 'bearlake.session'::regclass)
   and c.relkind = 'r' and c.relname not in ('session', 'migration');
