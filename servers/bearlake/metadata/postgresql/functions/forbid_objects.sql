-- Forbids keys that no task has registered and that the index does not name. Rules: metadata/task_object_rules.py. Forgets older bans first.
--
-- Parameters: p_keys: keys of objects.
-- Returns: those of the keys that are forbidden now.
-- Raises: none.

create or replace function bearlake.forbid_objects(p_keys text[]) returns setof text language plpgsql as $$
declare
    newest constant bigint := (select s.last_value from bearlake.claim_numbers s);
begin
    perform bearlake.forget_forbidden_objects();
    insert into bearlake.task_object (key, forbidden_at)
    select distinct k collate "C", newest from unnest(p_keys) k
     where not exists (select from bearlake.object o where o.key = k) order by 1
    on conflict (key) do nothing;
    -- The insert may have waited for a swap that ended the key's registration and brought it into the index.
    delete from bearlake.task_object t using bearlake.object o
     where t.key = any (p_keys) and t.forbidden_at is not null and o.key = t.key;
    return query select t.key::text from bearlake.task_object t where t.key = any (p_keys) and t.forbidden_at is not null;
end $$;

-- Forgets at most 1000 bans that no claim can meet any more. A claim that wrote a forbidden object has a smaller number than the ban, and
-- is held until it has ended.
create or replace function bearlake.forget_forbidden_objects() returns void language sql as $$
    delete from bearlake.task_object o
     where o.key in (select f.key from bearlake.task_object f
                      where f.forbidden_at < coalesce((select min(t.claim_number) from bearlake.task t where t.is_held),
                                                      9223372036854775807)
                      order by f.forbidden_at limit 1000 for update skip locked)
$$;
