-- Forgets idle producers with their names, unless a server asked for the name meanwhile, and as many names that never wrote. Locks
-- the partitions as a commit does: a commit that finds a state gone finds the floors raised. Servers learn of it by a log entry.
--
-- Parameters: p_idle_ms: a producer without a batch for so long by the producer clock is idle, ms, from 0. p_limit: producers, and names,
-- at most.
-- Returns: the number of producers forgotten.
-- Raises: none.

create or replace function bearlake.expire_producers(p_idle_ms bigint, p_limit integer) returns integer language plpgsql as $$
declare
    -- metadata/producers.py: newest_idle_minute.
    newest constant bigint := (select c.producer_minute - 1 - (p_idle_ms + 59999) / 60000 from bearlake.cluster c);
    partitions bigint[];
    ids bigint[];
    removed integer;
    largest bigint;
    touched bigint;
    has_named boolean;
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
    perform from bearlake.partition_group g
      where g.group_key in (select distinct u >> 5 from unnest(partitions) u) order by g.group_key for no key update;
    with gone as (
        delete from bearlake.producer p using unnest(partitions, ids) u (partition, producer_id)
         where p.partition = u.partition and p.producer_id = u.producer_id and p.used_minute <= newest
           and not exists (select from bearlake.producer_name n
                            where n.partition = p.partition and n.producer_id = p.producer_id and n.asked_minute > newest)
        returning p.partition, p.producer_id
    )
    select count(*), max(g.producer_id) filter (where g.is_idempotent), max(g.partition), coalesce(bool_or(not g.is_idempotent), false)
      into removed, largest, touched, has_named
      from (select d.partition, d.producer_id, not exists (
                select from bearlake.producer_name n where n.partition = d.partition and n.producer_id = d.producer_id) is_idempotent
              from gone d) g;
    if removed > 0 then -- all servers hear of it by an entry of the log, as if the stream had changed
        entry := bearlake.next_position();
        insert into bearlake.log (position, kind, stream_number) values (entry, 3, touched >> 20);
        update bearlake.cluster c
           set producer_id_expired = greatest(c.producer_id_expired, largest),
               position_floor = case when largest is null then c.position_floor else entry end,
               named_floor = case when has_named then entry else c.named_floor end;
        perform set_config('lock_timeout', '0', true), pg_notify('bearlake.log', entry::text);
    end if;
    delete from bearlake.producer_name n using unnest(partitions, ids) u (partition, producer_id)
     where n.partition = u.partition and n.producer_id = u.producer_id and n.asked_minute <= newest
       and not exists (select from bearlake.producer p where p.partition = n.partition and p.producer_id = n.producer_id);
    return removed;
end $$;
