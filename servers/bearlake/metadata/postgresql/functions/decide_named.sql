-- Decides a batch of a named producer. Rules: metadata/producers.py.
--
-- Parameters: p_state: the producer's state. p_partition_epoch: the partition's epoch. p_is_in_step: whether sequence numbers have no
--   gaps. p_epoch, p_sequence: of the batch. p_after: the sequence number sent before; -1: none. p_base: the offset that the batch would
--   get.
-- Returns: kind: model.OutcomeKind. answer: base offset of a duplicate that is remembered, else -1. batches: what to remember if
--   accepted.
-- Raises: none.

create or replace function bearlake.decide_named(
    p_state bearlake.producer_state, p_partition_epoch bigint, p_is_in_step boolean, p_epoch bigint, p_sequence bigint,
    p_after bigint, p_base bigint,
    out kind bigint, out answer bigint, out batches bigint[]
) language plpgsql immutable as $$
declare
    is_new constant boolean := p_state.producer_epoch is null or (p_is_in_step and p_epoch > p_state.producer_epoch);
    last constant bigint := p_state.batches[2];
begin
    kind := 0;
    answer := -1;
    if (p_epoch < p_partition_epoch and not p_is_in_step) or p_epoch < p_state.producer_epoch then
        kind := 3;
    elsif is_new then
        if (p_is_in_step and p_sequence <> 0) or (not p_is_in_step and p_after >= 0) then
            kind := 2;
        end if;
    elsif p_sequence <= last then
        kind := 1;
        for i in 0 .. cardinality(p_state.batches) / 3 - 1 loop
            if p_state.batches[3 * i + 1] = p_sequence then
                answer := p_state.batches[3 * i + 3];
                exit;
            end if;
        end loop;
    elsif (p_is_in_step and p_sequence <> last + 1) or (not p_is_in_step and p_after > last) then
        kind := 2;
    end if;
    if kind = 0 then
        batches := array[p_sequence, p_sequence, p_base] || case when is_new then null else p_state.batches[1:12] end;
    end if;
end $$;
