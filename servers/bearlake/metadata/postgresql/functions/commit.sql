-- Assigns offsets: the commit of a WAL object in one call. Producer rules: metadata/producers.py, which names their sources.
-- A test compares the two.
--
-- Promises: the accepted batches of a partition take its next offsets without gaps (I2). A token is decided once: a repeat raises
-- BL009, and bearlake.token_result has the first result. A commit of which no batch is accepted writes no entry, but its token and
-- outcomes are remembered.
--
-- Lock order of all functions: the log's tail, the stream's row, task rows, compaction groups by key, partition groups by key, leases by
-- name, the server that holds a lease, the log's head, then single rows.
--
-- A transaction that notifies takes a lock when it commits, which PostgreSQL gives to one commit at a time. If that wait ended by
-- lock_timeout at the moment at which the lock is given, the same signal would end the commit's wait for the standby (decision 81). So
-- every function that notifies switches lock_timeout off first: the wait ends when the commits before it have ended, or when the client
-- has gone (client_connection_check_interval).
--
-- Parameters: p_token: the object's key. p_node_id, p_epoch: the committing server and its epoch. p_size: bytes of the object. p_groups:
--   group keys of the partitions, ascending, each once. One element per batch, ordered by partition (stable):
--     p_partitions, p_positions (byte in the object), p_lengths (bytes), p_counts (records), p_timestamps (largest, ms),
--     p_states: index of the batch's producer in p_state_*, from 1; 0: no producer,
--     p_epochs, p_sequences: the producer's epoch and first sequence number,
--     p_named: 0; 1 for a named producer; 2 for a named producer in step. Null: no batch is named,
--     p_afters: the sequence number that a named producer sent before this batch; -1: none,
--     p_expected: the end offset at which the batch is to be accepted; -1: any. Null: no batch expects one. Checked last, so a duplicate
--       stays a duplicate.
--     p_state_partitions, p_state_producers: each partition and producer id once. p_states, p_epochs, p_sequences are null if there is
--       none.
--     p_seen: a log position that the server knew before it received any of the batches.
-- Returns: log_position: position of the log entry; 0: no batch was accepted. outcomes: per batch its kind (model.OutcomeKind), base
--   offset (-1: none) and the partition's start offset (-1: none), in the order given.
-- Raises: BL001 the server's epoch is not its newest; BL009 the token has a result; BL011 the token is older than the remembered ones
--   (I8).

create or replace function bearlake.commit_object(
    p_token text, p_node_id integer, p_epoch bigint, p_size bigint, p_groups bigint[],
    p_partitions bigint[], p_positions bigint[], p_lengths bigint[], p_counts bigint[], p_timestamps bigint[],
    p_states integer[], p_epochs bigint[], p_sequences bigint[], p_state_partitions bigint[], p_state_producers bigint[],
    p_named integer[], p_afters bigint[], p_expected bigint[], p_seen bigint,
    out log_position bigint, out outcomes bigint[]
) language plpgsql as $$
declare
    batch_count constant integer := cardinality(p_partitions);
    has_producers constant boolean := p_states is not null;
    has_named constant boolean := p_named is not null;
    has_expected constant boolean := p_expected is not null;
    partition_epochs bigint[];
    states bearlake.producer_state[];
    state bearlake.producer_state;
    state_index integer := 0;
    now_ms bigint;
    k integer := 1;
    g record;
    g_end bigint;
    g_ends bigint[];
    g_sizes bigint[];
    g_changed boolean;
    current bigint := -1;
    slot integer;
    start bigint;
    base bigint;
    kind bigint;
    answer bigint;
    first bigint;
    remembered bigint[];
    before bearlake.producer_state;
    count bigint;
    s integer;
    n integer := 0;
    named_floor bigint;
    slice_end bigint := -1;
    s_partitions bigint[]; s_bases bigint[]; s_counts bigint[]; s_positions bigint[]; s_lengths bigint[]; s_timestamps bigint[];
begin
    -- 1. Lock, and read the producers' states.
    if has_producers then
        -- Lock first: the states must be read by a later statement, which sees what the former holder of the locks wrote.
        perform from bearlake.partition_group p where p.group_key = any (p_groups) order by p.group_key for no key update;
        select array_agg(row(p.producer_epoch, p.batches, p.producer_epoch is not null, false)::bearlake.producer_state order by u.i)
          into states
          from unnest(p_state_partitions, p_state_producers) with ordinality u (partition, producer_id, i)
          left join bearlake.producer p on p.partition = u.partition and p.producer_id = u.producer_id;
        now_ms := bearlake.now_ms();
        if has_named then
            select array_agg(coalesce(e.epoch, 0) order by u.i) into partition_epochs
              from unnest(p_state_partitions) with ordinality u (partition, i)
              left join bearlake.partition_epoch e on e.partition = u.partition;
        end if;
    end if;

    -- 2. Decide batch by batch, row of partitions by row of partitions; both come in the same order.
    for g in
        select * from bearlake.partition_group p where p.group_key = any (p_groups) order by p.group_key for no key update
    loop
        g_end := (g.group_key + 1) << 5;
        g_ends := g.ends;
        g_sizes := g.sizes;
        g_changed := false;
        while k <= batch_count and p_partitions[k] < g_end loop
            if p_partitions[k] <> current then
                current := p_partitions[k];
                slot := (current & 31) + 1;
                start := null;
                if current >> 5 = g.group_key then
                    start := g.starts[slot];
                    base := g_ends[slot];
                end if;
                slice_end := -1;
            end if;
            kind := 0;
            answer := -1;
            count := p_counts[k];
            if start is null then
                kind := 4;
            elsif has_producers and p_states[k] > 0 then
                s := p_states[k];
                if s <> state_index then
                    if state_index > 0 then
                        states[state_index] := state;
                    end if;
                    state := states[s];
                    state_index := s;
                end if;
                if has_expected or g.is_terminated then
                    before := state;
                end if;
                first := p_sequences[k];
                if has_named and p_named[k] > 0 then
                    named_floor := 0;
                    if state.producer_epoch is null and not (p_epochs[k] < partition_epochs[s] and p_named[k] = 1) then
                        named_floor := (select r.floor from bearlake.producer_name r
                                         where r.partition = current and r.producer_id = p_state_producers[s]);
                    end if;
                    if named_floor is null then
                        kind := 7; -- a named producer begins by registration only
                    else
                        select j.kind, j.answer, j.batches into kind, answer, remembered
                          from bearlake.decide_named(state, partition_epochs[s], p_named[k] = 2, p_epochs[k], first, p_afters[k], base) j;
                        if kind = 0 and p_seen < named_floor then
                            kind := 8; -- a commit for the name's former producer, which was forgotten since, may have stored it
                        elsif kind = 0 then
                            state.producer_epoch := p_epochs[k];
                            state.batches := remembered;
                            state.is_changed := true;
                        end if;
                    end if;
                elsif state.producer_epoch = p_epochs[k] and first = ((state.batches[2] + 1) & 2147483647) then
                    state.batches := array[first, (first + count - 1) & 2147483647, base] || state.batches[1:12];
                    state.is_changed := true;
                else
                    select j.kind, j.answer into kind, answer
                      from bearlake.decide_idempotent(state, current, p_state_producers[s], p_epochs[k], first, count, p_seen) j;
                    if kind = 0 then
                        state.producer_epoch := p_epochs[k];
                        state.batches := array[first, (first + count - 1) & 2147483647, base];
                        state.is_changed := true;
                    end if;
                end if;
            end if;
            -- What was stored before stays a duplicate, and what may have been stays unsure.
            if g.is_terminated and kind not in (1, 4, 8) then
                kind := 6;
                answer := -1;
                if has_producers and p_states[k] > 0 then
                    state := before;
                end if;
            end if;
            if kind = 0 and (not has_expected or p_expected[k] = -1 or p_expected[k] = base) then
                answer := base;
                -- Joins the slice before it when their bytes lie back to back; what was rejected between them parts them.
                if p_positions[k] = slice_end then
                    s_counts[n] := s_counts[n] + count;
                    s_lengths[n] := s_lengths[n] + p_lengths[k];
                    if p_timestamps[k] > s_timestamps[n] then
                        s_timestamps[n] := p_timestamps[k];
                    end if;
                else
                    n := n + 1;
                    s_partitions[n] := current;
                    s_bases[n] := base;
                    s_counts[n] := count;
                    s_positions[n] := p_positions[k];
                    s_lengths[n] := p_lengths[k];
                    s_timestamps[n] := p_timestamps[k];
                end if;
                slice_end := p_positions[k] + p_lengths[k];
                base := base + count;
                g_ends[slot] := base;
                g_sizes[slot] := g_sizes[slot] + p_lengths[k];
                g_changed := true;
            elsif kind = 0 then
                kind := 5;
                answer := base;
                if has_producers and p_states[k] > 0 then
                    state := before;
                end if;
            end if;
            outcomes[3 * k - 2] := kind;
            outcomes[3 * k - 1] := answer;
            outcomes[3 * k] := coalesce(start, -1);
            k := k + 1;
        end loop;
        if g_changed then
            update bearlake.partition_group p set ends = g_ends, sizes = g_sizes where p.group_key = g.group_key;
        end if;
    end loop;
    -- Behind the last row that exists.
    for i in k .. batch_count loop
        outcomes[3 * i - 2] := 4;
        outcomes[3 * i - 1] := -1;
        outcomes[3 * i] := -1;
    end loop;

    -- 3. Decide the token, and write what was decided.
    log_position := bearlake.decide_token(p_token, p_node_id, p_epoch, p_size, n, outcomes);
    if n = 0 then
        return;
    end if;
    insert into bearlake.log values (
        log_position, 1, p_token, p_size, s_partitions, s_bases, s_counts, s_positions, s_lengths, s_timestamps
    );
    if has_producers then
        if state_index > 0 then
            states[state_index] := state;
        end if;
        perform bearlake.write_producers(p_state_partitions, p_state_producers, states, now_ms);
    end if;
    perform set_config('lock_timeout', '0', true), pg_notify('bearlake.log', log_position::text);
end $$;
