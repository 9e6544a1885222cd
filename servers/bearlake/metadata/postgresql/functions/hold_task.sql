-- Locks a task. The claim must be its newest and not given back, the worker in its newest epoch (it may have lapsed).
--
-- Parameters: p_task, p_epoch: the task and the epoch of the claim. p_node_id, p_server_epoch: the worker that claims it, and its epoch.
-- Returns: the task's row.
-- Raises: BL001 the claim is not held any more, or the worker's epoch is not its newest.

create or replace function bearlake.hold_task(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint)
returns bearlake.task language plpgsql as $$
declare
    task bearlake.task;
begin
    select * into task from bearlake.task t where t.id = p_task for update;
    if not found or not task.is_held or task.epoch <> p_epoch
        or (task.node_id, task.server_epoch) is distinct from (p_node_id, p_server_epoch) then
        raise exception 'task % is not held in epoch % any more', p_task, p_epoch using errcode = 'BL001';
    end if;
    perform bearlake.check_server(p_node_id, p_server_epoch);
    return task;
end $$;
