-- bearlake.find_producer, as programs of layouts 26 and 27 call it.
--
-- Parameters: p_partition, p_name. p_asked_step_ms: not used.
-- Returns: as bearlake.find_producer.
-- Raises: as bearlake.find_producer.

create or replace function bearlake.named_producer(
    p_partition bigint, p_name text, p_asked_step_ms bigint,
    out producer_id bigint, out producer_epoch bigint, out last_sequence bigint, out partition_epoch bigint, out floor bigint
) language sql as $$
    select f.* from bearlake.find_producer(p_partition, p_name) f;
$$;
