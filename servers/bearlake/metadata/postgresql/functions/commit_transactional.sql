-- Commits an object that has transactional batches: commit_object, and before it the rule of transactions.may_write; after it, the
-- transactions that the accepted batches begin are registered. Locks the transactional ids first.
--
-- Parameters: as commit_object: p_token, p_node_id, p_epoch, p_size, p_groups, p_partitions, p_positions, p_lengths, p_counts,
--   p_timestamps, p_states, p_epochs, p_sequences, p_state_partitions, p_state_producers, p_named, p_afters, p_expected, p_seen.
--   p_transactional: one element per batch; 0: it is not; 1: its partition must have been added; 2: it adds its partition, and begins the
--   transaction.
-- Returns, raises: as commit_object.

create or replace function bearlake.commit_transactional(
    p_token text, p_node_id integer, p_epoch bigint, p_size bigint, p_groups bigint[],
    p_partitions bigint[], p_positions bigint[], p_lengths bigint[], p_counts bigint[], p_timestamps bigint[],
    p_states integer[], p_epochs bigint[], p_sequences bigint[], p_state_partitions bigint[], p_state_producers bigint[],
    p_named integer[], p_afters bigint[], p_expected bigint[], p_seen bigint, p_transactional integer[],
    out log_position bigint, out outcomes bigint[]
) language plpgsql as $$
declare
    batch_count constant integer := cardinality(p_partitions);
    refusals integer[] := array_fill(0, array[batch_count]);
    is_refused boolean := false;
    admitted integer[] := '{}';
    merged bigint[];
    held bearlake.transactional_id;
    producer bigint;
    begun bigint[] := '{}';
    changes bigint[] := '{}';
    at integer := 0;
begin
    perform from bearlake.transactional_id t where t.producer_id = any (p_state_producers) order by t.producer_id for no key update;
    for k in 1 .. batch_count loop
        if p_transactional[k] > 0 then
            producer := case when p_states[k] > 0 then p_state_producers[p_states[k]] else -1 end;
            select * into held from bearlake.transactional_id t where t.producer_id = producer;
            refusals[k] := case when held.producer_id is null or p_epochs[k] > held.epoch then 9
                                when p_epochs[k] < held.epoch then 3
                                when p_transactional[k] = 2 or (held.state = 1 and p_partitions[k] = any (held.partitions)) then 0
                                else 9 end;
        end if;
        if refusals[k] > 0 then
            is_refused := true;
        else
            admitted := admitted || k;
        end if;
    end loop;
    if not is_refused then
        select c.log_position, c.outcomes into log_position, outcomes from bearlake.commit_object(
            p_token, p_node_id, p_epoch, p_size, p_groups, p_partitions, p_positions, p_lengths, p_counts, p_timestamps, p_states,
            p_epochs, p_sequences, p_state_partitions, p_state_producers, p_named, p_afters, p_expected, p_seen) c;
    else
        select c.log_position, c.outcomes into log_position, outcomes from bearlake.commit_object(
            p_token, p_node_id, p_epoch, p_size, p_groups, bearlake.chosen(p_partitions, admitted),
            bearlake.chosen(p_positions, admitted), bearlake.chosen(p_lengths, admitted), bearlake.chosen(p_counts, admitted),
            bearlake.chosen(p_timestamps, admitted), bearlake.chosen(p_states, admitted), bearlake.chosen(p_epochs, admitted),
            bearlake.chosen(p_sequences, admitted), p_state_partitions, p_state_producers, bearlake.chosen(p_named, admitted),
            bearlake.chosen(p_afters, admitted), bearlake.chosen(p_expected, admitted), p_seen) c;
    end if;
    for k in 1 .. batch_count loop
        if refusals[k] > 0 then
            merged := merged || array[refusals[k]::bigint, -1, -1];
            continue;
        end if;
        at := at + 1;
        merged := merged || outcomes[3 * at - 2 : 3 * at];
        continue when p_transactional[k] = 0 or outcomes[3 * at - 2] <> 0;
        producer := p_state_producers[p_states[k]];
        begun := begun || producer;
        insert into bearlake.open_transaction values (p_partitions[k], producer, outcomes[3 * at - 1]) on conflict do nothing;
        if found then
            changes := changes || array[0, p_partitions[k], producer, outcomes[3 * at - 1], -1, bearlake.open_offset(p_partitions[k])];
        end if;
    end loop;
    if is_refused then
        outcomes := merged;
        update bearlake.object o set outcomes = merged where o.key = p_token;
    end if;
    if cardinality(changes) > 0 then
        update bearlake.log l set transactions = changes where l.position = log_position;
    end if;
    update bearlake.transactional_id t
       set state = 1, started_ms = bearlake.now_ms(), changed_ms = bearlake.now_ms(), version = t.version + 1
     where t.producer_id = any (begun) and t.state <> 1;
end $$;

-- Returns the elements of these indexes, in this order; null of a null array.
create or replace function bearlake.chosen(p_values anyarray, p_indexes integer[]) returns anyarray language sql immutable as $$
    select case when p_values is null then null
                else coalesce((select array_agg(p_values[u.k] order by u.i) from unnest(p_indexes) with ordinality u (k, i)), p_values[1:0])
           end
$$;
