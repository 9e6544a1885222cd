-- Gives tasks back. Claims that are not held any more are passed over.
--
-- Parameters: One element per claim: p_tasks, p_epochs, p_node_ids, p_server_epochs. p_wait_ms: no worker claims the tasks for so long,
--   ms.
-- Raises: none.

create or replace function bearlake.release_tasks(
    p_tasks bigint[], p_epochs bigint[], p_node_ids integer[], p_server_epochs bigint[], p_wait_ms bigint
) returns void language sql as $$
    update bearlake.task t
       set is_held = false,
           not_before_ms = greatest(t.not_before_ms, case when p_wait_ms > 0 then bearlake.now_ms() + p_wait_ms else 0 end)
     where t.id in (select o.id from bearlake.task o
                      join unnest(p_tasks, p_epochs, p_node_ids, p_server_epochs) u (id, epoch, node_id, server_epoch)
                        on o.id = u.id and o.epoch = u.epoch and o.node_id = u.node_id and o.server_epoch = u.server_epoch
                     order by o.id for update of o)
$$;
