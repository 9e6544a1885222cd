-- Ends a transaction in one step: assigns the markers' offsets, forgets the open transactions, remembers aborted ones, and puts the
-- pending offsets of groups in place. Locks the transactional id, then the partitions as a commit does, the offsets, then the log's head.
--
-- Parameters: p_version: the row's version. The row afterwards: p_name, p_producer_id, p_epoch, p_state, p_timeout_ms, p_last_producer_id,
--   p_last_epoch. p_is_commit: it commits. p_marker_epoch: epoch of the markers. p_marker_bytes: bytes of one marker.
-- Returns: the row as stored.
-- Raises: BL004 as put_transaction.

create or replace function bearlake.end_transaction(
    p_name text, p_version bigint, p_producer_id bigint, p_epoch integer, p_state integer, p_timeout_ms bigint,
    p_last_producer_id bigint, p_last_epoch integer, p_is_commit boolean, p_marker_epoch integer, p_marker_bytes integer
) returns setof bearlake.transactional_id language plpgsql as $$
declare
    ended bigint;
    now_ms bigint;
    log_position bigint;
    marker_key text;
    n integer;
    k integer := 1;
    slot integer;
    g record;
    g_ends bigint[];
    g_sizes bigint[];
    partitions bigint[];
    firsts bigint[];
    bases bigint[];
    changes bigint[] := '{}';
begin
    select t.producer_id into ended from bearlake.transactional_id t where t.name = p_name for update;
    return query select * from bearlake.put_transaction(
        p_name, p_version, p_producer_id, p_epoch, p_state, p_timeout_ms, p_last_producer_id, p_last_epoch, -1, '{}', '{}');
    perform from bearlake.partition_group p
      where p.group_key in (select o.partition >> 5 from bearlake.open_transaction o where o.producer_id = ended)
      order by p.group_key for no key update;
    now_ms := bearlake.now_ms();
    with gone as (
        delete from bearlake.open_transaction o where o.producer_id = ended returning o.partition, o.first_offset
    )
    select array_agg(o.partition order by o.partition), array_agg(o.first_offset order by o.partition) into partitions, firsts
      from gone o join bearlake.partition_group p on p.group_key = o.partition >> 5
     where p.starts[(o.partition & 31) + 1] is not null;
    n := coalesce(cardinality(partitions), 0);
    for g in
        select p.group_key, p.ends, p.sizes from bearlake.partition_group p
         where p.group_key in (select u >> 5 from unnest(partitions) u) order by p.group_key
    loop
        g_ends := g.ends;
        g_sizes := g.sizes;
        -- Partitions and groups come in the same order.
        while k <= n and partitions[k] >> 5 = g.group_key loop
            slot := (partitions[k] & 31) + 1;
            bases[k] := g_ends[slot];
            g_ends[slot] := g_ends[slot] + 1;
            g_sizes[slot] := g_sizes[slot] + p_marker_bytes;
            k := k + 1;
        end loop;
        update bearlake.partition_group p set ends = g_ends, sizes = g_sizes where p.group_key = g.group_key;
    end loop;
    -- Before the log's head, which all commits need. The pending offsets first, as delete_group does. Offsets of deleted streams are left
    -- out; partitions of Kafka's internal topics belong to no stream (decision 198).
    perform from bearlake.pending_offset o where o.producer_id = ended order by o.name, o.partition for update;
    with placed as (
        delete from bearlake.pending_offset o where o.producer_id = ended
        returning o.name, o.partition, o.committed_offset, o.leader_epoch, o.metadata
    )
    insert into bearlake.group_offset (name, partition, committed_offset, leader_epoch, metadata, committed_ms)
    select o.name, o.partition, o.committed_offset, o.leader_epoch, o.metadata, now_ms
      from placed o
     where p_is_commit
       and not exists (select from bearlake.stream s where s.number = o.partition >> 20 and s.deleted_ms is not null)
     order by o.name, o.partition
    on conflict (name, partition) do update
       set committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch,
           metadata = excluded.metadata, committed_ms = excluded.committed_ms;
    if n > 0 then
        log_position := bearlake.next_position();
        marker_key := format('markers/%s-%s-%s-%s-%s-%s', ended, p_marker_epoch, p_version + 1,
                             case when p_is_commit then 'commit' else 'abort' end, now_ms, n);
        select array_agg(f order by o.i, f.j) into changes
          from unnest(partitions, firsts, bases) with ordinality o (p, s, b, i),
               lateral unnest(array[case when p_is_commit then 1 else 2 end, o.p, ended, o.s, o.b,
                                    bearlake.open_offset(o.p)]) with ordinality f (f, j);
        insert into bearlake.object (key, number, size, committed_ms, slice_count, outcomes)
        values (marker_key, log_position, n * p_marker_bytes, now_ms, n, '{}');
        insert into bearlake.log (position, kind, object_key, object_size, partitions, base_offsets, record_counts, positions, lengths,
                                  timestamps, transactions)
        select log_position, 1, marker_key, n * p_marker_bytes, partitions, bases, array_fill(1::bigint, array[n]),
               array_agg(((i - 1) * p_marker_bytes)::bigint order by i), array_fill(p_marker_bytes::bigint, array[n]),
               array_fill(now_ms, array[n]), changes
          from generate_series(1, n) i;
        if not p_is_commit then
            -- A transaction that begins right behind the marker of the producer's last aborted one extends that one (Aborted). The
            -- condition "not in" builds a hash table; "not exists" would compare each partition with each (see commit_transactional).
            with joined as (
                update bearlake.aborted_transaction a set marker_offset = o.b from unnest(partitions, bases, firsts) o (p, b, s)
                 where a.partition = o.p and a.marker_offset = o.s - 1 and a.producer_id = ended
                returning a.partition
            )
            insert into bearlake.aborted_transaction
            select o.p, o.b, ended, o.s from unnest(partitions, bases, firsts) o (p, b, s)
             where o.p not in (select j.partition from joined j);
        end if;
        perform set_config('lock_timeout', '0', true), pg_notify('bearlake.log', log_position::text);
    end if;
end $$;

-- Returns the smallest first offset of the partition's open transactions; -1: there are none.
create or replace function bearlake.open_offset(p_partition bigint) returns bigint language sql stable as
$$ select coalesce(min(o.first_offset), -1) from bearlake.open_transaction o where o.partition = p_partition $$;
