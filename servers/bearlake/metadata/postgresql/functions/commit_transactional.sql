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
    refusals integer[];
    admitted integer[];
    producers bigint[];
    places bigint[];
    begun bigint[];
    firsts bigint[];
begin
    perform from bearlake.transactional_id t where t.producer_id = any (p_state_producers) order by t.producer_id for no key update;
    -- The kinds of transactions.may_write; 0: the batch is admitted.
    with added as (
        select t.producer_id, u.partition from bearlake.transactional_id t, lateral unnest(t.partitions) u (partition)
         where t.producer_id = any (p_state_producers) and t.state = 1
    ), decided as (
        select b.k, case when b.way = 0 then 0
                         when t.producer_id is null or b.epoch > t.epoch then 9
                         when b.epoch < t.epoch then 3
                         when b.way = 2 or a.partition is not null then 0
                         else 9 end as refusal
          from unnest(p_transactional, p_partitions, p_states, p_epochs) with ordinality b (way, partition, state, epoch, k)
          left join unnest(p_state_producers) with ordinality s (producer, number) on s.number = b.state
          left join bearlake.transactional_id t on t.producer_id = s.producer and b.way > 0
          left join added a on a.producer_id = t.producer_id and a.partition = b.partition
    )
    select array_agg(d.refusal order by d.k), coalesce(array_agg(d.k::integer order by d.k) filter (where d.refusal = 0), '{}')
      into refusals, admitted from decided d;
    if cardinality(admitted) = cardinality(refusals) then
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
        select array_agg(o.cell order by o.k, o.field) into outcomes
          from (select admitted[(c.i + 2) / 3] as k, c.i as field, c.cell from unnest(outcomes) with ordinality c (cell, i)
                union all
                select r.k, f.field, f.cell from unnest(refusals) with ordinality r (refusal, k),
                       lateral unnest(array[r.refusal, -1, -1]) with ordinality f (cell, field) where r.refusal > 0) o;
        update bearlake.object o set outcomes = commit_transactional.outcomes where o.key = p_token;
    end if;
    with accepted as materialized (
        select b.partition, s.producer, outcomes[3 * b.k - 1] as base
          from unnest(p_transactional, p_partitions, p_states) with ordinality b (way, partition, state, k)
          join unnest(p_state_producers) with ordinality s (producer, number) on s.number = b.state
         where b.way > 0 and outcomes[3 * b.k - 2] = 0
    ), opened as (
        insert into bearlake.open_transaction (partition, producer_id, first_offset)
        select a.partition, a.producer, min(a.base) from accepted a group by a.partition, a.producer
        on conflict do nothing returning partition, producer_id, first_offset
    )
    select (select array_agg(distinct a.producer) from accepted a), array_agg(o.partition order by o.partition, o.producer_id),
           array_agg(o.producer_id order by o.partition, o.producer_id), array_agg(o.first_offset order by o.partition, o.producer_id)
      into producers, places, begun, firsts from opened o;
    if places is not null then
        update bearlake.log l
           set transactions = (
               select array_agg(f.cell order by o.i, f.field)
                 from unnest(places, begun, firsts) with ordinality o (partition, producer, first, i),
                      lateral unnest(array[0, o.partition, o.producer, o.first, -1, bearlake.open_offset(o.partition)])
                      with ordinality f (cell, field))
         where l.position = log_position;
    end if;
    update bearlake.transactional_id t
       set state = 1, started_ms = bearlake.now_ms(), changed_ms = bearlake.now_ms(), version = t.version + 1
     where t.producer_id = any (producers) and t.state <> 1;
end $$;

-- Returns the elements of these indexes, in this order; null of a null array.
create or replace function bearlake.chosen(p_values anyarray, p_indexes integer[]) returns anyarray language sql immutable as $$
    select case when p_values is null then null
                else coalesce((select array_agg(p_values[u.k] order by u.i) from unnest(p_indexes) with ordinality u (k, i)), p_values[1:0])
           end
$$;
