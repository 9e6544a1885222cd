-- Named producers: their names, the partitions' epochs that fence them, and their rules in the commit (metadata/producers.py); batches
-- that are only accepted at an expected offset.

-- `asked_ms`: when a server asked for the name last, to the hour.
create table bearlake.producer_name (
    partition bigint not null,
    name text collate "C" not null,
    producer_id bigint not null,
    asked_ms bigint not null,
    primary key (partition, name)
);
create unique index producer_name_id on bearlake.producer_name (partition, producer_id);
create index producer_name_asked on bearlake.producer_name (asked_ms);

-- Named batches of an older epoch are fenced. Changed while the partition's group is locked, as a commit locks it.
create table bearlake.partition_epoch (
    partition bigint primary key,
    epoch bigint not null
);

-- Epochs of named producers have 64 bits.
alter table bearlake.producer alter column producer_epoch type bigint;
alter type bearlake.producer_state alter attribute producer_epoch type bigint;

-- What becomes of a named producer's batch: its kind (model.OutcomeKind), the base offset of a duplicate that is remembered (else -1),
-- and, if it is accepted, the batches to remember.
create function bearlake.judge_named(
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

-- Batches come ordered by partition (stable); p_states names for each batch its producer's index in p_state_* (0: none).
-- A commit of which nothing is accepted leaves no trace; a repeat is judged afresh.
-- Returns the position of the entry (0: nothing accepted) and (kind, base offset, start offset) per batch, in the order given.
-- p_named: for each batch 0, or 1 if its producer is a named one, 2 if it also goes in step; null: there is none. p_afters: sequence of
-- the batch that it sent before. p_expected: the end offset at which the batch is to be accepted, -1 any; null: there is none. It is
-- looked at last: a duplicate stays one.
-- Producer rules: metadata/producers.py, where their sources are (a test compares the two).
create function bearlake.commit_object(
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
                if has_expected then
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

-- As servers call it that know of neither names nor expected offsets: they may run beside newer ones.
create or replace function bearlake.commit_object(
    p_token text, p_node_id integer, p_epoch bigint, p_size bigint, p_groups bigint[],
    p_partitions bigint[], p_positions bigint[], p_lengths bigint[], p_counts bigint[], p_timestamps bigint[],
    p_states integer[], p_epochs integer[], p_sequences bigint[], p_state_partitions bigint[], p_state_producers bigint[],
    out log_position bigint, out outcomes bigint[]
) language sql as $$
    select * from bearlake.commit_object(
        p_token, p_node_id, p_epoch, p_size, p_groups, p_partitions, p_positions, p_lengths, p_counts, p_timestamps,
        p_states, p_epochs::bigint[], p_sequences, p_state_partitions, p_state_producers, null::integer[], null::bigint[], null::bigint[])
$$;

-- The producer of that name, made if there is none; its state and the partition's epoch as of now. Locks as a commit does, but only
-- when something is to be written: p_asked_step_ms is how exactly it is kept when the name was asked for.
create function bearlake.named_producer(
    p_partition bigint, p_name text, p_asked_step_ms bigint,
    out producer_id bigint, out producer_epoch bigint, out last_sequence bigint, out partition_epoch bigint
) language plpgsql as $$
declare
    at_ms constant bigint := bearlake.now_ms();
    asked bigint;
begin
    if not exists (select from bearlake.partition_group g
                    where g.group_key = p_partition >> 5 and g.starts[(p_partition & 31) + 1] is not null) then
        raise exception 'no partition %', p_partition using errcode = 'BL002';
    end if;
    select n.producer_id, n.asked_ms into producer_id, asked
      from bearlake.producer_name n where n.partition = p_partition and n.name = p_name;
    if asked is null or asked <= at_ms - p_asked_step_ms then
        perform from bearlake.partition_group g where g.group_key = p_partition >> 5 for no key update;
        if not found then
            raise exception 'no partition %', p_partition using errcode = 'BL002';
        end if;
        update bearlake.producer_name n set asked_ms = at_ms
         where n.partition = p_partition and n.name = p_name returning n.producer_id into producer_id;
        if not found then
            update bearlake.cluster c set producer_id_next = c.producer_id_next + 1 returning c.producer_id_next - 1 into producer_id;
            insert into bearlake.producer_name values (p_partition, p_name, producer_id, at_ms);
        end if;
    end if;
    select p.producer_epoch, p.batches[2] into producer_epoch, last_sequence
      from bearlake.producer p where p.partition = p_partition and p.producer_id = named_producer.producer_id;
    select e.epoch into partition_epoch from bearlake.partition_epoch e where e.partition = p_partition;
    producer_epoch := coalesce(producer_epoch, -1);
    last_sequence := coalesce(last_sequence, -1);
    partition_epoch := coalesce(partition_epoch, 0);
end $$;

create function bearlake.raise_partition_epoch(
    p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_partition bigint
) returns bigint language plpgsql as $$
declare
    raised bigint;
begin
    perform from bearlake.partition_group g
      where g.group_key = p_partition >> 5 and g.starts[(p_partition & 31) + 1] is not null for no key update;
    if not found then
        raise exception 'no partition %', p_partition using errcode = 'BL002';
    end if;
    perform bearlake.check_lease(p_lease, p_epoch, p_node_id, p_server_epoch);
    insert into bearlake.partition_epoch as e values (p_partition, 1)
    on conflict (partition) do update set epoch = e.epoch + 1 returning e.epoch into raised;
    return raised;
end $$;

-- Forgets at most p_limit producers without a batch since p_idle_ms, with their names, unless those were asked for meanwhile; and at
-- most as many names that never wrote. Locks their partitions as a commit does.
create or replace function bearlake.expire_producers(p_idle_ms bigint, p_limit integer) returns integer language plpgsql as $$
declare
    before_ms constant bigint := bearlake.now_ms() - p_idle_ms;
    partitions bigint[];
    ids bigint[];
    removed integer;
begin
    select array_agg(c.partition), array_agg(c.producer_id) into partitions, ids from (
        (select p.partition, p.producer_id from bearlake.producer p
          where p.updated_hour <= before_ms / 3600000 and p.updated_ms <= before_ms
            and not exists (select from bearlake.producer_name n
                             where n.partition = p.partition and n.producer_id = p.producer_id and n.asked_ms > before_ms)
          order by p.updated_hour limit p_limit)
        union all
        (select n.partition, n.producer_id from bearlake.producer_name n
          where n.asked_ms <= before_ms
            and not exists (select from bearlake.producer p where p.partition = n.partition and p.producer_id = n.producer_id)
          order by n.asked_ms limit p_limit)) c;
    perform from bearlake.partition_group g
      where g.group_key in (select distinct u >> 5 from unnest(partitions) u) order by g.group_key for no key update;
    delete from bearlake.producer p using unnest(partitions, ids) u (partition, producer_id)
     where p.partition = u.partition and p.producer_id = u.producer_id and p.updated_ms <= before_ms
       and not exists (select from bearlake.producer_name n
                        where n.partition = p.partition and n.producer_id = p.producer_id and n.asked_ms > before_ms);
    get diagnostics removed = row_count;
    delete from bearlake.producer_name n using unnest(partitions, ids) u (partition, producer_id)
     where n.partition = u.partition and n.producer_id = u.producer_id and n.asked_ms <= before_ms
       and not exists (select from bearlake.producer p where p.partition = n.partition and p.producer_id = n.producer_id);
    return removed;
end $$;

-- Drops at most p_limit rows that a deleted stream's partitions left behind; returns how many. Its tasks that are set aside, which
-- nobody will claim, go too.
create or replace function bearlake.sweep_partitions(p_first bigint, p_last bigint, p_limit integer) returns integer language plpgsql as $$
declare
    remaining integer := p_limit;
    part integer;
begin
    perform bearlake.drop_task(t) from bearlake.task t where t.stream_number = p_first >> 20 and t.state = 2;
    delete from bearlake.producer p where (p.partition, p.producer_id) in (
        select q.partition, q.producer_id from bearlake.producer q where q.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.producer_name n where (n.partition, n.name) in (
        select o.partition, o.name from bearlake.producer_name o where o.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.partition_epoch e where e.partition in (
        select f.partition from bearlake.partition_epoch f where f.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.group_offset g where (g.name, g.partition) in (
        select h.name, h.partition from bearlake.group_offset h where h.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.compaction_group c where c.group_key in (
        select d.group_key from bearlake.compaction_group d where d.group_key between p_first >> 5 and p_last >> 5 limit remaining);
    get diagnostics part = row_count;
    return p_limit - remaining + part;
end $$;
