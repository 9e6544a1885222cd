-- Takes the next position of the log, and holds the log's head until the transaction ends.
-- Positions therefore become visible in order (I2). A sequence would show them out of order.
--
-- Returns: the position.

create or replace function bearlake.next_position() returns bigint language plpgsql as $$
declare
    at bigint;
begin
    update bearlake.log_head h set position = h.position + 1 returning h.position into at;
    return at;
end $$;
