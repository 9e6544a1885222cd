-- Whether a server is live (metadata/liveness.py): it has neither left nor lapsed. No time decides.
--
-- Parameters: p_node_id, p_epoch: the server and its epoch.
-- Raises: none.

create or replace function bearlake.is_live(p_node_id integer, p_epoch bigint) returns boolean language sql volatile as
$$ select exists (select from bearlake.server s
                   where s.node_id = p_node_id and s.epoch = p_epoch and not s.has_left and not s.has_lapsed) $$;
