-- Gives a task back with its error. A repeat finds the task given back and changes nothing.
--
-- Parameters: p_task, p_epoch: the task and the epoch of the claim. p_node_id, p_server_epoch: the worker that claims it, and its epoch.
--   p_error. p_retry_after_ms: no worker claims the task for so long, ms. p_is_aside: quarantine the task.
-- Raises: BL001 as hold_task.

create or replace function bearlake.fail_task(
    p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_error text, p_retry_after_ms bigint, p_is_aside boolean
) returns void language plpgsql as $$
begin
    if exists (select from bearlake.task t where t.id = p_task and t.epoch = p_epoch and not t.is_held) then
        return;
    end if;
    perform bearlake.hold_task(p_task, p_epoch, p_node_id, p_server_epoch);
    update bearlake.task t
       set is_held = false, attempt_count = t.attempt_count + 1, error = p_error, not_before_ms = bearlake.now_ms() + p_retry_after_ms,
           state = case when p_is_aside then 2 else 1 end
     where t.id = p_task;
end $$;
