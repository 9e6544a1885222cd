-- Forbids keys that no commit has used and that no task has registered.
--
-- Parameters: p_tokens: keys of objects.
-- Returns: those of the keys that are forbidden now.
-- Raises: none.

create or replace function bearlake.forbid_tokens(p_tokens text[]) returns setof text language plpgsql as $$
begin
    insert into bearlake.object (key, number, size, committed_ms)
    select t, -1, 0, bearlake.now_ms() from (select distinct unnest(p_tokens) collate "C" as t order by 1) tokens
     where not exists (select from bearlake.task_object r where r.key = t and r.task_id is not null)
    on conflict (key) do nothing;
    return query select o.key::text from bearlake.object o where o.key = any (p_tokens) and o.number = -1;
end $$;
