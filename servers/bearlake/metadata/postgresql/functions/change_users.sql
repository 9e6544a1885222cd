-- Replaces and deletes credentials of users, if nothing changed since the caller read the revision.
--
-- Parameters: p_revision: the revision that the caller read. One element per change: p_names, p_mechanisms, p_iterations, p_salts,
--   p_stored_keys, p_server_keys. An element with null iterations deletes the credential. No two changes name the same credential.
-- Returns: the new revision.
-- Raises: BL004 the users have another revision.

create or replace function bearlake.change_users(
    p_revision bigint, p_names text[], p_mechanisms text[], p_iterations integer[], p_salts bytea[], p_stored_keys bytea[],
    p_server_keys bytea[]
) returns bigint language plpgsql as $$
declare
    present bigint;
begin
    select s.revision into present from bearlake.user_state s for update;
    if present <> p_revision then
        raise exception 'the users have revision %, not %', present, p_revision using errcode = 'BL004';
    end if;
    delete from bearlake.user_credential c
     using unnest(p_names, p_mechanisms, p_iterations) u (name, mechanism, iterations)
     where c.name = u.name and c.mechanism = u.mechanism and u.iterations is null;
    insert into bearlake.user_credential as c
    select u.name, u.mechanism, u.iterations, u.salt, u.stored_key, u.server_key
      from unnest(p_names, p_mechanisms, p_iterations, p_salts, p_stored_keys, p_server_keys)
           u (name, mechanism, iterations, salt, stored_key, server_key)
     where u.iterations is not null
        on conflict (name, mechanism) do update
       set iterations = excluded.iterations, salt = excluded.salt, stored_key = excluded.stored_key, server_key = excluded.server_key;
    update bearlake.user_state set revision = present + 1;
    return present + 1;
end $$;
