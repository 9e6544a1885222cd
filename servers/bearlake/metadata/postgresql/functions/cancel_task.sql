-- Removes a task that is not done. A repeat changes nothing.
--
-- Parameters: p_task, p_epoch: the task and the epoch of the claim. p_node_id, p_server_epoch: the worker that claims it, and its epoch.
-- Raises: BL001 as hold_task.

create or replace function bearlake.cancel_task(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint)
returns void language plpgsql as $$
begin
    if not exists (select from bearlake.task_closed c where c.id = p_task and c.epoch = p_epoch and c.position = 0) then
        perform bearlake.drop_task(bearlake.hold_task(p_task, p_epoch, p_node_id, p_server_epoch));
    end if;
end $$;
