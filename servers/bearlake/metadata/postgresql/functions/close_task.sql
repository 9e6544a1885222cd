-- Removes a task that is not done, with all that belongs to it. Its row in task_closed answers repeated calls.
--
-- Parameters: p_task: its row.
-- Returns: true.
-- Raises: none.

create or replace function bearlake.drop_task(p_task bearlake.task) returns boolean language plpgsql as $$
begin
    perform bearlake.remove_task(p_task);
    insert into bearlake.task_closed values (p_task.id, p_task.epoch, 0, bearlake.now_ms());
    return true;
end $$;

-- Removes a task with everything that belongs to it, except its row in task_closed.
create or replace function bearlake.remove_task(p_task bearlake.task) returns void language plpgsql as $$
begin
    delete from bearlake.task_partition p where p_task.kind = 1 and p.partition = any (p_task.partitions) and p.task_id = p_task.id;
    delete from bearlake.task_input i where p_task.kind = 2 and i.key = any (p_task.inputs) and i.task_id = p_task.id;
    delete from bearlake.task_result r where r.task_id = p_task.id;
    delete from bearlake.task_object o where o.task_id = p_task.id;
    delete from bearlake.task t where t.id = p_task.id;
end $$;
