-- Decides a batch of an idempotent producer that is not the next one of the epoch that its state has. commit_object decides the next
-- one itself. Rules: metadata/producers.py.
--
-- Parameters: p_state: the producer's state in the partition. p_partition, p_producer_id. p_epoch, p_first, p_count: the batch's epoch, first
--   sequence number and records. p_seen: as commit_object.
-- Returns: kind: model.OutcomeKind; 0: accepted, and the first batch of its epoch. answer: base offset of a duplicate, else -1.
-- Raises: none.

create or replace function bearlake.decide_idempotent(
    p_state bearlake.producer_state, p_partition bigint, p_producer_id bigint, p_epoch bigint, p_first bigint, p_count bigint,
    p_seen bigint, out kind bigint, out answer bigint
) language plpgsql as $$
begin
    kind := 0;
    answer := -1;
    if p_state.producer_epoch = p_epoch then
        kind := 2;
        for i in 0 .. cardinality(p_state.batches) / 3 - 1 loop
            if p_state.batches[3 * i + 1] = p_first and p_state.batches[3 * i + 2] = ((p_first + p_count - 1) & 2147483647) then
                kind := 1;
                answer := p_state.batches[3 * i + 3];
                exit;
            end if;
        end loop;
    elsif p_state.producer_epoch > p_epoch then
        kind := 3;
    elsif p_first <> 0 then
        -- I9. An unknown id above the largest that may have had a state has lost none: a batch before this one is missing.
        kind := case when p_state.producer_epoch is null and (
            p_producer_id <= (select c.producer_id_expired from bearlake.cluster c)
            or p_producer_id <= (select r.former_producer_id from bearlake.stream r where r.number = p_partition >> 20)
        ) then 7 else 2 end;
    elsif p_state.producer_epoch is null and exists (
        select from bearlake.cluster c where p_producer_id <= c.producer_id_expired and p_seen < c.position_floor
    ) then
        kind := 8; -- a commit of a producer that expired since may have stored it
    end if;
end $$;
