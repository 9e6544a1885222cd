-- Makes tasks of the offers that are due.
--
-- Parameters: p_lease, p_lease_epoch, p_node_id, p_server_epoch: the planner's lease. One element per offer: p_kinds
--   (compaction.TaskKind), p_streams, p_sizes (bytes), p_counts (records), p_ages (of the oldest record, ms), p_range_ends, p_input_ends
--   (index of the offer's last range and last input). One element per range: p_partitions, p_starts, p_ends. p_inputs: keys of data files.
-- Returns: the tasks made.
-- Raises: BL001 as check_lease.

create or replace function bearlake.offer_tasks(
    p_lease text, p_lease_epoch bigint, p_node_id integer, p_server_epoch bigint,
    p_kinds integer[], p_streams bigint[], p_sizes bigint[], p_counts bigint[], p_ages bigint[], p_range_ends integer[],
    p_input_ends integer[], p_partitions bigint[], p_starts bigint[], p_ends bigint[], p_inputs text[]
) returns setof bearlake.queued_task language plpgsql as $$
declare
    made bigint;
    all_made bigint[] := '{}';
    first integer := 1;
    first_input integer := 1;
    partitions bigint[];
    starts bigint[];
    ends bigint[];
    inputs text[];
begin
    perform from bearlake.lease l where l.name = p_lease for update;
    perform bearlake.check_lease(p_lease, p_lease_epoch, p_node_id, p_server_epoch);
    for i in 1 .. cardinality(p_kinds) loop
        partitions := p_partitions[first:p_range_ends[i]];
        starts := p_starts[first:p_range_ends[i]];
        ends := p_ends[first:p_range_ends[i]];
        inputs := p_inputs[first_input:p_input_ends[i]];
        first := p_range_ends[i] + 1;
        first_input := p_input_ends[i] + 1;
        continue when not bearlake.is_due(p_kinds[i], p_streams[i], partitions, starts, ends, inputs);
        insert into bearlake.task (kind, stream_number, partitions, starts, ends, inputs, size_bytes, record_count, oldest_ms)
        values (p_kinds[i], p_streams[i], partitions, starts, ends, inputs, p_sizes[i], p_counts[i], bearlake.now_ms() - p_ages[i])
        returning id into made;
        insert into bearlake.task_partition select p, made from unnest(partitions) p;
        insert into bearlake.task_input select k, made from unnest(inputs) k;
        all_made := all_made || made;
    end loop;
    return query select * from bearlake.queued_task q where q.id = any (all_made) order by q.id;
end $$;

-- Whether no task has these ranges or inputs, the ranges start where their partitions' compaction goes on, and the inputs are data files
-- of the stream.
create or replace function bearlake.is_due(
    p_kind integer, p_stream bigint, p_partitions bigint[], p_starts bigint[], p_ends bigint[], p_inputs text[]
) returns boolean language sql stable as $$
    select exists (select from bearlake.stream s where s.number = p_stream and s.deleted_ms is null)
       and not exists (select from bearlake.task_partition t where t.partition = any (p_partitions))
       and not exists (select from bearlake.task_input t where t.key = any (p_inputs))
       and cardinality(case when p_kind = 1 then p_partitions end) is distinct from 0
       and cardinality(case when p_kind = 2 then p_inputs end) is distinct from 0
       and cardinality(p_partitions) = (
           select count(*)
             from unnest(p_partitions, p_starts, p_ends) u (p, s, e)
             join bearlake.partition_group g on g.group_key = u.p >> 5
             join bearlake.compaction_group c on c.group_key = u.p >> 5
            where u.s = greatest(c.offsets[(u.p & 31) + 1], g.starts[(u.p & 31) + 1])
              and u.e between u.s + 1 and g.ends[(u.p & 31) + 1])
       and cardinality(p_inputs) = (
           select count(*) from bearlake.object o
            where o.key = any (p_inputs) and o.kind = 1 and o.stream_number = p_stream and o.deleted_ms is null)
$$;
