-- Replaces and deletes quotas, if nothing changed since the caller read the revision. Servers learn of it by an entry of the log, written as
-- a STREAM entry of stream 0, which does not exist.
--
-- Parameters: p_revision: the revision that the caller read. p_count_max: the most quotas that there may be then. One element per change:
--   p_users, p_client_ids, p_addresses, p_keys, p_values. An element with a null value deletes the quota. No two changes name the same quota.
-- Returns: the position of the entry.
-- Raises: BL004 the quotas have another revision; BL006 there would be more than p_count_max quotas.

create or replace function bearlake.change_quotas(
    p_revision bigint, p_count_max bigint, p_users text[], p_client_ids text[], p_addresses text[], p_keys text[],
    p_values double precision[]
) returns bigint language plpgsql as $$
declare
    present bigint;
    quota_count bigint;
    at bigint;
begin
    select s.revision into present from bearlake.quota_state s for update;
    if present <> p_revision then
        raise exception 'the quotas have revision %, not %', present, p_revision using errcode = 'BL004';
    end if;
    delete from bearlake.quota q
     using unnest(p_users, p_client_ids, p_addresses, p_keys) u (name, client_id, address, key)
     where (q.user_name, q.client_id, q.address, q.key) = (u.name, u.client_id, u.address, u.key);
    insert into bearlake.quota (user_name, client_id, address, key, value)
    select u.name, u.client_id, u.address, u.key, u.value
      from unnest(p_users, p_client_ids, p_addresses, p_keys, p_values) u (name, client_id, address, key, value)
     where u.value is not null;
    select count(*) into quota_count from bearlake.quota;
    if quota_count > p_count_max then
        raise exception 'there would be % quotas; the limit is %', quota_count, p_count_max using errcode = 'BL006';
    end if;
    update bearlake.quota_state set revision = present + 1;
    at := bearlake.next_position();
    insert into bearlake.log (position, kind, stream_number) values (at, 3, 0);
    perform set_config('lock_timeout', '0', true), pg_notify('bearlake.log', at::text);
    return at;
end $$;
