-- Streams that take no more batches (StreamCatalog.terminate). The rule is judged where offsets are assigned: under the lock of the
-- partitions' row, which the termination takes too.

alter table bearlake.stream add column is_terminated boolean not null default false;
alter table bearlake.partition_group add column is_terminated boolean not null default false;

create function bearlake.terminate_stream(p_name text) returns setof bearlake.stream language plpgsql as $$
declare
    found_stream bearlake.stream;
begin
    select * into found_stream from bearlake.stream s where s.name = p_name and s.deleted_ms is null for no key update;
    if not found then
        raise exception 'no stream %', p_name using errcode = 'BL002';
    end if;
    if found_stream.is_terminated then
        return next found_stream;
        return;
    end if;
    update bearlake.stream s set is_terminated = true where s.number = found_stream.number;
    perform from bearlake.partition_group g
      where g.group_key >= (found_stream.number << 15) and g.group_key < ((found_stream.number + 1) << 15)
      order by g.group_key for no key update;
    update bearlake.partition_group g set is_terminated = true
      where g.group_key >= (found_stream.number << 15) and g.group_key < ((found_stream.number + 1) << 15);
    return query select * from bearlake.stream_changed(found_stream.number);
end $$;

create or replace function bearlake.add_partitions(p_name text, p_partition_count integer)
returns setof bearlake.stream language plpgsql as $$
declare
    old bearlake.stream;
begin
    select * into old from bearlake.stream s where s.name = p_name and s.deleted_ms is null for no key update;
    if not found then
        raise exception 'no stream %', p_name using errcode = 'BL002';
    end if;
    if old.is_terminated then
        raise exception 'stream % is terminated, it cannot be grown', p_name using errcode = 'BL006';
    end if;
    if p_partition_count <= old.partition_count then
        raise exception 'stream % has % partitions already', p_name, old.partition_count using errcode = 'BL006';
    end if;
    update bearlake.stream s set partition_count = p_partition_count where s.number = old.number;
    perform bearlake.grow_groups(old.number, old.partition_count, p_partition_count);
    return query select * from bearlake.stream_changed(old.number);
end $$;

-- Batches come ordered by partition (stable); p_states names for each batch its producer's index in p_state_* (0: none).
-- A commit of which nothing is accepted leaves no trace; a repeat is judged afresh.
-- Returns the position of the entry (0: nothing accepted) and (kind, base offset, start offset) per batch, in the order given.
-- p_named: for each batch 0, or 1 if its producer is a named one, 2 if it also goes in step; null: there is none. p_afters: sequence of
-- the batch that it sent before. p_expected: the end offset at which the batch is to be accepted, -1 any; null: there is none. It is
-- looked at last: a duplicate stays one.
-- Producer rules: metadata/producers.py, where their sources are (a test compares the two).
create or replace function bearlake.commit_object(
    p_token text, p_node_id integer, p_epoch bigint, p_size bigint, p_groups bigint[],
    p_partitions bigint[], p_positions bigint[], p_lengths bigint[], p_counts bigint[], p_timestamps bigint[],
    p_states integer[], p_epochs bigint[], p_sequences bigint[], p_state_partitions bigint[], p_state_producers bigint[],
    p_named integer[], p_afters bigint[], p_expected bigint[],
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
                    select j.kind, j.answer, j.batches into kind, answer, remembered
                      from bearlake.judge_named(state, partition_epochs[s], p_named[k] = 2, p_epochs[k], first, p_afters[k], base) j;
                    if kind = 0 then
                        state.producer_epoch := p_epochs[k];
                        state.batches := remembered;
                        state.is_changed := true;
                    end if;
                -- The producer's state says: next, one of the last five, a newer epoch, or not to be accepted.
                elsif state.producer_epoch = p_epochs[k] then
                    if first <> ((state.batches[2] + 1) & 2147483647) then
                        kind := 2;
                        for i in 0 .. cardinality(state.batches) / 3 - 1 loop
                            if state.batches[3 * i + 1] = first
                                and state.batches[3 * i + 2] = ((first + count - 1) & 2147483647) then
                                kind := 1;
                                answer := state.batches[3 * i + 3];
                                exit;
                            end if;
                        end loop;
                    else
                        state.batches := array[first, (first + count - 1) & 2147483647, base] || state.batches[1:12];
                        state.is_changed := true;
                    end if;
                else
                    if state.producer_epoch > p_epochs[k] then
                        kind := 3;
                    elsif first <> 0 and (base = 0 or state.producer_epoch is not null) then
                        kind := 2;
                    else
                        state.producer_epoch := p_epochs[k];
                        state.batches := array[first, (first + count - 1) & 2147483647, base];
                        state.is_changed := true;
                    end if;
                end if;
            end if;
            -- What was stored before stays a duplicate.
            if g.is_terminated and kind not in (1, 4) then
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

    -- 3. Token, position, server: in this order, the head's lock last. Then what was decided is written.
    if exists (select from bearlake.object o where o.key = p_token) then
        raise exception 'token is known' using errcode = 'BL009';
    end if;
    if n > 0 then
        log_position := bearlake.next_position();
    else
        log_position := 0;
    end if;
    -- Registration and leaving take the head too: whoever reads here while holding it cannot miss a newer epoch.
    perform bearlake.check_server(p_node_id, p_epoch);
    if n = 0 then
        return;
    end if;
    insert into bearlake.object values (p_token, log_position, p_size, bearlake.now_ms(), n, outcomes) on conflict (key) do nothing;
    if not found then
        raise exception 'token is known' using errcode = 'BL009';
    end if;
    insert into bearlake.log values (
        log_position, 1, p_token, p_size, s_partitions, s_bases, s_counts, s_positions, s_lengths, s_timestamps
    );
    if has_producers then
        if state_index > 0 then
            states[state_index] := state;
        end if;
        update bearlake.producer p
           set producer_epoch = u.producer_epoch, batches = u.batches, updated_ms = now_ms, updated_hour = now_ms / 3600000
          from unnest(states) with ordinality u (producer_epoch, batches, is_known, is_changed, i)
         where u.is_known and u.is_changed
           and p.partition = p_state_partitions[u.i] and p.producer_id = p_state_producers[u.i];
        insert into bearlake.producer
        select p_state_partitions[u.i], p_state_producers[u.i], u.producer_epoch, u.batches, now_ms, now_ms / 3600000
          from unnest(states) with ordinality u (producer_epoch, batches, is_known, is_changed, i)
         where u.is_changed and not u.is_known;
    end if;
    perform pg_notify('bearlake.log', log_position::text);
end $$;
