-- Makes a quarantined task due again.
--
-- Parameters: p_task.
-- Returns: the task.
-- Raises: BL002 no such task.

create or replace function bearlake.retry_task(p_task bigint) returns setof bearlake.queued_task language plpgsql as $$
begin
    update bearlake.task t set state = 1, attempt_count = 0, not_before_ms = 0 where t.id = p_task;
    return query select * from bearlake.queued_task q where q.id = p_task;
    if not found then
        raise exception 'no task %', p_task using errcode = 'BL002';
    end if;
end $$;
