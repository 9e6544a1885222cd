-- The commit of a WAL object in one call. Lock order everywhere: partition groups by key, then the log's head, then single rows.
-- Error codes: BL001 Fenced, BL002 NotFound, BL003 OutOfRange, BL004 Conflict, BL005 AlreadyExists, BL006 Invalid,
-- BL009 the token is known already: ask for its first result.

create type bearlake.producer_state as (producer_epoch integer, batches bigint[], is_known boolean, is_changed boolean);

-- The next position of the log; holds the head until the transaction ends. Fact of PostgreSQL: a sequence would be visible out of order.
create function bearlake.next_position() returns bigint language plpgsql as $$
declare
    at bigint;
begin
    update bearlake.log_head h set position = h.position + 1 returning h.position into at;
    return at;
end $$;

create function bearlake.check_server(p_node_id integer, p_epoch bigint) returns void language plpgsql as $$
begin
    if not exists (select from bearlake.server s where s.node_id = p_node_id and s.epoch = p_epoch and not s.has_left) then
        raise exception 'epoch % of server % is not its newest, or it has left', p_epoch, p_node_id using errcode = 'BL001';
    end if;
end $$;

-- Batches come ordered by partition (stable); p_states names for each batch its producer's index in p_state_* (0: none).
-- A commit of which nothing is accepted leaves no trace; a repeat is judged afresh.
-- Returns the position of the entry (0: nothing accepted) and (kind, base offset, start offset) per batch, in the order given.
-- Producer rules: KIP-98, KAFKA-5793, KAFKA-15591; the same as metadata/ledger.py (a test compares the two).
create function bearlake.commit_object(
    p_token text, p_node_id integer, p_epoch bigint, p_size bigint, p_groups bigint[],
    p_partitions bigint[], p_positions bigint[], p_lengths bigint[], p_counts bigint[], p_timestamps bigint[],
    p_states integer[], p_epochs integer[], p_sequences bigint[], p_state_partitions bigint[], p_state_producers bigint[],
    out log_position bigint, out outcomes bigint[]
) language plpgsql as $$
declare
    batch_count constant integer := cardinality(p_partitions);
    has_producers constant boolean := p_states is not null;
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
                first := p_sequences[k];
                -- The producer's state says: next, one of the last five, a newer epoch, or not to be accepted.
                if state.producer_epoch = p_epochs[k] then
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
            if kind = 0 then
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

-- The first result of a token that is known already.
create function bearlake.token_result(p_token text, out log_position bigint, out outcomes bigint[]) language plpgsql stable as $$
begin
    select o.position, o.outcomes into log_position, outcomes from bearlake.object o where o.key = p_token;
    if log_position = -1 then
        raise exception 'commit token is forbidden' using errcode = 'BL001';
    elsif outcomes is null then
        raise exception 'commit token was used too long ago' using errcode = 'BL004';
    end if;
end $$;

-- Forbids tokens that no commit has used; returns those that are forbidden now.
create function bearlake.forbid_tokens(p_tokens text[]) returns setof text language plpgsql as $$
begin
    insert into bearlake.object (key, position, size, committed_ms)
    select t, -1, 0, bearlake.now_ms() from (select distinct unnest(p_tokens) as t order by 1) tokens
    on conflict (key) do nothing;
    return query select o.key::text from bearlake.object o where o.key = any (p_tokens) and o.position = -1;
end $$;

-- Forgets at most p_limit producers without a batch since p_idle_ms; locks their partitions as a commit does.
create function bearlake.expire_producers(p_idle_ms bigint, p_limit integer) returns integer language plpgsql as $$
declare
    before_ms constant bigint := bearlake.now_ms() - p_idle_ms;
    partitions bigint[];
    ids bigint[];
    removed integer;
begin
    select array_agg(c.partition), array_agg(c.producer_id) into partitions, ids
      from (select p.partition, p.producer_id from bearlake.producer p
             where p.updated_hour <= before_ms / 3600000 and p.updated_ms <= before_ms
             order by p.updated_hour limit p_limit) c;
    perform from bearlake.partition_group g
      where g.group_key in (select distinct u >> 5 from unnest(partitions) u) order by g.group_key for no key update;
    delete from bearlake.producer p using unnest(partitions, ids) u (partition, producer_id)
     where p.partition = u.partition and p.producer_id = u.producer_id and p.updated_ms <= before_ms;
    get diagnostics removed = row_count;
    return removed;
end $$;
