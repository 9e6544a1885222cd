-- Forgets idle producers with their names, unless a server asked for the name meanwhile, and as many names that never wrote. Locks
-- the partitions as a commit does, but skips those that are locked: a commit that finds a state gone finds the floors raised. Servers learn
-- of it by a log entry.
--
-- Parameters: p_idle_ms: a producer without a batch for so long by the producer clock is idle, ms, from 0. p_limit: producers, and names,
-- at most.
-- Returns: the number of producers forgotten, or that of names that never wrote, whichever is larger.
-- Raises: none.

create or replace function bearlake.expire_producers(p_idle_ms bigint, p_limit integer) returns integer language plpgsql as $$
declare
    -- metadata/producers.py: newest_idle_minute.
    newest constant bigint := (select c.producer_minute - 1 - (p_idle_ms + 59999) / 60000 from bearlake.cluster c);
    partitions bigint[];
    ids bigint[];
    removed integer;
    names integer;
    largest bigint;
    touched bigint;
    removed_named integer;
    entry bigint;
begin
    select array_agg(c.partition), array_agg(c.producer_id) into partitions, ids from (
        (select p.partition, p.producer_id from bearlake.producer p
          where p.used_minute <= newest
            and not exists (select from bearlake.producer_name n
                             where n.partition = p.partition and n.producer_id = p.producer_id and n.asked_minute > newest)
          order by p.used_minute limit p_limit)
        union all
        (select n.partition, n.producer_id from bearlake.producer_name n
          where n.asked_minute <= newest
            and not exists (select from bearlake.producer p where p.partition = n.partition and p.producer_id = n.producer_id)
          order by n.asked_minute limit p_limit)) c;
    -- Waits for no row while it holds others: the commits to those would wait, too, and one busy row would keep all idle producers. Those
    -- of a locked row stay for the next call. A row that is gone was that of a deleted stream, to which nothing commits.
    with held as materialized (
        select g.group_key from bearlake.partition_group g
         where g.group_key in (select distinct u >> 5 from unnest(partitions) u) order by g.group_key for no key update skip locked
    )
    select array_agg(u.partition), array_agg(u.producer_id) into partitions, ids
      from unnest(partitions, ids) u (partition, producer_id)
     where exists (select from held h where h.group_key = u.partition >> 5)
        or not exists (select from bearlake.partition_group g where g.group_key = u.partition >> 5);
    with gone as (
        delete from bearlake.producer p using unnest(partitions, ids) u (partition, producer_id)
         where p.partition = u.partition and p.producer_id = u.producer_id and p.used_minute <= newest
           and not exists (select from bearlake.producer_name n
                            where n.partition = p.partition and n.producer_id = p.producer_id and n.asked_minute > newest)
        returning p.partition, p.producer_id
    )
    select count(*), max(g.producer_id) filter (where g.is_idempotent), max(g.partition), count(*) filter (where not g.is_idempotent)
      into removed, largest, touched, removed_named
      from (select d.partition, d.producer_id, not exists (
                select from bearlake.producer_name n where n.partition = d.partition and n.producer_id = d.producer_id) is_idempotent
              from gone d) g;
    if removed > 0 then -- all servers hear of it by an entry of the log, as if the stream had changed
        entry := bearlake.next_position();
        insert into bearlake.log (position, kind, stream_number) values (entry, 3, touched >> 20);
        update bearlake.cluster c
           set producer_id_expired = greatest(c.producer_id_expired, largest),
               position_floor = case when largest is null then c.position_floor else entry end,
               named_floor = case when removed_named > 0 then entry else c.named_floor end;
        perform set_config('lock_timeout', '0', true), pg_notify('bearlake.log', entry::text);
    end if;
    delete from bearlake.producer_name n using unnest(partitions, ids) u (partition, producer_id)
     where n.partition = u.partition and n.producer_id = u.producer_id and n.asked_minute <= newest
       and not exists (select from bearlake.producer p where p.partition = n.partition and p.producer_id = n.producer_id);
    get diagnostics names = row_count;
    return greatest(removed, names - removed_named);
end $$;
