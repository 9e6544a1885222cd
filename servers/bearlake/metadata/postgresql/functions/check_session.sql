-- Trigger of all tables: refuses a write of a session that was ended (I12, decision 70). Each connection that writes has a row in
-- bearlake.session, and its id in the parameter bearlake_session.id. The first statement of a transaction that changes a table locks that
-- row until the transaction ends. Deleting the row waits for such a transaction; afterwards the session changes nothing, however late its
-- statements arrive. Deleting a row is always safe: a living process connects again.
--
-- Only the first check of a transaction looks: is_held is undone together with the lock, also when a subtransaction rolls back. Connections
-- without a session (psql) pass. Two exceptions (decision 100): schema/log.sql and schema/partitions.sql.
--
-- Raises: BL010 the session has ended.

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

-- Guards a table. schema/ and migrations call it for each table that they create.
create or replace function bearlake.fence_table(p_table text) returns void language plpgsql as $$
begin
    execute 'create trigger fence before insert or update or delete or truncate on bearlake.' || quote_ident(p_table)
         || ' for each statement execute function bearlake.check_session()';
end $$;
