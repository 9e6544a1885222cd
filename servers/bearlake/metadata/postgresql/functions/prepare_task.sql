-- Registers the keys of a task's new objects, and saves its result. A repeat finds its own rows.
--
-- Parameters: p_task, p_epoch: the task and the epoch of the claim. p_node_id, p_server_epoch: the worker that claims it, and its epoch.
--   p_result: null: no result. p_keys.
-- Raises: BL001 as hold_task; BL004 a key is forbidden or in use.

create or replace function bearlake.prepare_task(
    p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_result bytea, p_keys text[]
) returns void language plpgsql as $$
declare
    refused text;
begin
    perform bearlake.hold_task(p_task, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.task_object (key, task_id)
    select distinct k collate "C", p_task from unnest(p_keys) k
     where not exists (select from bearlake.object o where o.key = k) order by 1
    on conflict (key) do nothing;
    -- A statement of its own: it sees what the insert waited for.
    select k into refused from unnest(p_keys) k
     where not exists (select from bearlake.task_object o where o.key = k and o.task_id = p_task) limit 1;
    if found then
        raise exception 'the object % was forbidden or is in use: write it anew under another key', refused using errcode = 'BL004';
    end if;
    if p_result is not null then
        insert into bearlake.task_result values (p_task, p_epoch, p_result)
        on conflict (task_id, epoch) do update set result = excluded.result;
    end if;
end $$;
