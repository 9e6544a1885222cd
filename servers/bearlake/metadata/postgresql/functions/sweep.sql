-- Removes index pages, and the front of pages, that no reader can reach, and rows that deleted streams left behind. Holds the log
-- tail's row as roll_up does: a page must not go while rows are appended to it.
--
-- Parameters: p_limit: pages and rows.
-- Returns: the number removed.
-- Raises: none.

create or replace function bearlake.sweep(p_limit integer) returns integer language plpgsql as $$
declare
    task bearlake.sweep;
    remaining integer := p_limit;
    part integer;
    rolled_position bigint;
    released bigint[];
begin
    select t.rolled into rolled_position from bearlake.log_tail t for update skip locked;
    if not found then
        return 0;
    end if;
    for task in
        select * from bearlake.sweep w where w.position <= rolled_position order by w.position limit p_limit
    loop
        with gone as (
            delete from bearlake.index_page p
             where (p.partition, p.base_offset) in (
                   select q.partition, q.base_offset from bearlake.index_page q
                    where q.partition between task.partition_first and task.partition_last
                      and (task.end_offset is null or q.end_offset <= task.end_offset and q.base_offset < task.end_offset)
                    order by q.partition, q.base_offset limit remaining)
            returning p.objects
        )
        select (select count(*) from gone), array_agg(u.o) into part, released from gone, lateral unnest(gone.objects) u (o);
        remaining := remaining - part;
        if remaining > 0 and task.end_offset is not null then
            released := released || bearlake.cut_page(task.partition_first, task.end_offset);
            delete from bearlake.aborted_transaction a
             where a.partition = task.partition_first and a.marker_offset < least(task.end_offset, (
                   select b.marker_offset from bearlake.aborted_transaction b
                    where b.partition = task.partition_first order by b.marker_offset offset remaining limit 1));
            get diagnostics part = row_count;
            remaining := remaining - part;
        elsif remaining > 0 then
            remaining := remaining - bearlake.sweep_partitions(task.partition_first, task.partition_last, remaining);
        end if;
        perform bearlake.release_objects(released);
        exit when remaining <= 0;
        delete from bearlake.sweep w where w.position = task.position;
    end loop;
    return p_limit - remaining;
end $$;

-- Removes the rows that end at or below p_start from the page that holds p_start. Returns the objects that they named.
create or replace function bearlake.cut_page(p_partition bigint, p_start bigint) returns bigint[] language plpgsql as $$
declare
    page bearlake.index_page;
    n integer;
begin
    select * into page from bearlake.index_page p
     where p.partition = p_partition and p.base_offset < p_start order by p.base_offset desc limit 1;
    -- Rows lie without gaps: the row that holds p_start stays with all behind it.
    n := width_bucket(p_start, page.base_offsets) - 1;
    if page.partition is null or page.end_offset <= p_start or n <= 0 then
        return '{}';
    end if;
    update bearlake.index_page p
       set base_offset = page.base_offsets[n + 1],
           max_timestamp = (select max(t) from unnest(page.timestamps[n + 1:]) t),
           size_bytes = (select sum(l) from unnest(page.lengths[n + 1:]) l),
           base_offsets = page.base_offsets[n + 1:],
           record_counts = page.record_counts[n + 1:],
           positions = page.positions[n + 1:],
           lengths = page.lengths[n + 1:],
           timestamps = page.timestamps[n + 1:],
           objects = page.objects[n + 1:]
     where p.partition = p_partition and p.base_offset = page.base_offset;
    return page.objects[:n];
end $$;

-- Deletes at most p_limit rows that the partitions [p_first, p_last] of a deleted stream left behind, and its quarantined tasks, which no
-- worker will claim. Returns how many.
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
    delete from bearlake.subscription_cursor c where (c.partition, c.name) in (
        select d.partition, d.name from bearlake.subscription_cursor d where d.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.group_offset g where (g.name, g.partition) in (
        select h.name, h.partition from bearlake.group_offset h where h.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.aborted_transaction a where (a.partition, a.marker_offset) in (
        select b.partition, b.marker_offset from bearlake.aborted_transaction b
         where b.partition between p_first and p_last limit remaining);
    get diagnostics part = row_count;
    remaining := remaining - part;
    delete from bearlake.compaction_group c where c.group_key in (
        select d.group_key from bearlake.compaction_group d where d.group_key between p_first >> 5 and p_last >> 5 limit remaining);
    get diagnostics part = row_count;
    return p_limit - remaining + part;
end $$;

-- Counts down the index rows that name objects: one element of p_numbers per row that is gone.
create or replace function bearlake.release_objects(p_numbers bigint[]) returns void language sql as $$
    update bearlake.object o
       set slice_count = o.slice_count - u.row_count,
           unused_ms = case when o.slice_count = u.row_count then bearlake.now_ms() else o.unused_ms end
      from (select n, count(*) as row_count from unnest(p_numbers) n group by n) u
     where o.number = u.n and o.number <> -1
$$;
