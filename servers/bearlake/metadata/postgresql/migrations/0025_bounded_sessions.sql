-- Bounds the backends that wait for a synchronous standby (DESIGN.md, I12, decision 99). A backend in that wait stays when its client has
-- gone. Without a bound, each process that starts while the standby is away would leave one behind, until there are no connections left.

-- Waits until fewer than four other transactions are at this kind of step, and counts as one of them until its own has ended: a commit
-- releases its locks after its wait for the standby. A backend that waits here ends by lock_timeout, or when its client has gone.
create function bearlake.take_turn(p_kind integer) returns void language plpgsql as $$
declare
    class constant integer := 'bearlake.session'::regclass::oid::integer;
    slot_count constant integer := 4;
begin
    for slot in 1..slot_count loop
        if pg_try_advisory_xact_lock(class, p_kind * slot_count + slot) then
            return;
        end if;
    end loop;
    perform pg_advisory_xact_lock(class, p_kind * slot_count + 1 + pg_backend_pid() % slot_count);
end $$;

-- As in 0020_lazy_sessions.sql, in turn.
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

-- As in 0020_lazy_sessions.sql, in turn. Waits for transactions in progress first, so that a session that hangs takes no turn from others.
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

-- What the triggers cost a commit (decision 100): each statement that fires one costs a call, the first of a transaction five times as much.
-- A row of the log, and the ends of a partition, change only in a transaction that takes a position, and that updates log_head, which is
-- fenced. So a commit fires two triggers instead of four. Every other change of these tables fires its own.
drop trigger fence on bearlake.log;
create trigger fence before update or delete or truncate on bearlake.log
    for each statement execute function bearlake.check_session();
do $$
declare
    columns constant text := (
        select string_agg(quote_ident(a.attname), ', ') from pg_attribute a
         where a.attrelid = 'bearlake.partition_group'::regclass and a.attnum > 0 and not a.attisdropped
           and a.attname not in ('ends', 'sizes'));
begin
    drop trigger fence on bearlake.partition_group;
    execute 'create trigger fence before insert or update of ' || columns || ' or delete or truncate on bearlake.partition_group'
         || ' for each statement execute function bearlake.check_session()';
end $$;

-- As in 0017_sessions.sql. An assignment needs no query of its own, which PERFORM does.
create or replace function bearlake.check_session() returns trigger language plpgsql as $$
declare
    mine text;
begin
    if current_setting('bearlake_session.is_held', true) = 'yes' then
        return null;
    end if;
    mine := current_setting('bearlake_session.id', true);
    if mine <> '' then
        perform from bearlake.session s where s.id = mine::bigint for key share;
        if not found then
            raise exception 'session % has ended', mine using errcode = 'BL010';
        end if;
    end if;
    mine := set_config('bearlake_session.is_held', 'yes', true);
    return null;
end $$;
