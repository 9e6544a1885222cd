-- Deletes access rules, then creates others, if nothing changed since the caller read the revision. Servers learn of it by an entry of the
-- log, written as a STREAM entry of stream 0, which does not exist.
--
-- Parameters: p_revision: the revision that the caller read. p_count_max: the most rules that there may be then. One element per rule:
--   p_is_new (true: create; false: delete), p_resources, p_names, p_patterns, p_principals, p_hosts, p_operations, p_permissions. Rules
--   that exist stay, and the deletion of other rules has no effect.
-- Returns: the position of the entry.
-- Raises: BL004 the rules have another revision; BL006 there would be more than p_count_max rules.

create or replace function bearlake.change_access_rules(
    p_revision bigint, p_count_max bigint, p_is_new boolean[], p_resources text[], p_names text[], p_patterns text[], p_principals text[],
    p_hosts text[], p_operations text[], p_permissions text[]
) returns bigint language plpgsql as $$
declare
    present bigint;
    rule_count bigint;
    at bigint;
begin
    select s.revision into present from bearlake.access_state s for update;
    if present <> p_revision then
        raise exception 'the access rules have revision %, not %', present, p_revision using errcode = 'BL004';
    end if;
    delete from bearlake.access_rule r
     using unnest(p_is_new, p_resources, p_names, p_patterns, p_principals, p_hosts, p_operations, p_permissions)
           u (is_new, resource, name, pattern, principal, host, operation, permission)
     where not u.is_new and (r.resource, r.name, r.pattern, r.principal, r.host, r.operation, r.permission)
         = (u.resource, u.name, u.pattern, u.principal, u.host, u.operation, u.permission);
    insert into bearlake.access_rule
    select u.resource, u.name, u.pattern, u.principal, u.host, u.operation, u.permission
      from unnest(p_is_new, p_resources, p_names, p_patterns, p_principals, p_hosts, p_operations, p_permissions)
           u (is_new, resource, name, pattern, principal, host, operation, permission)
     where u.is_new
        on conflict do nothing;
    select count(*) into rule_count from bearlake.access_rule;
    if rule_count > p_count_max then
        raise exception 'there would be % access rules; the limit is %', rule_count, p_count_max using errcode = 'BL006';
    end if;
    update bearlake.access_state set revision = present + 1;
    at := bearlake.next_position();
    insert into bearlake.log (position, kind, stream_number) values (at, 3, 0);
    perform set_config('lock_timeout', '0', true), pg_notify('bearlake.log', at::text);
    return at;
end $$;
