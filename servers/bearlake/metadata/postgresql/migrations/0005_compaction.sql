-- Tables of compaction: which object holds what, how far partitions are compacted, the task queue; and the sweep of what nobody reads.

-- An object's `number` is how index rows name it: the position of its commit's entry for a committed one, below -1 for one that a
-- swap brought (`swap_position`: that swap's entry), -1 for a forbidden key. `unused_ms`: since when nothing names it;
-- `deleted_ms`: when its bytes went. The row outlives the bytes, so that a late commit with the same token is still refused.
alter table bearlake.object rename column position to number;
alter table bearlake.object
    add column kind smallint not null default 0,
    add column stream_number bigint not null default 0,
    add column swap_position bigint,
    add column unused_ms bigint,
    add column deleted_ms bigint;
drop index bearlake.object_position;
create unique index object_number on bearlake.object (number) where number <> -1;
update bearlake.object set unused_ms = bearlake.now_ms() where slice_count = 0 and number <> -1;
create index object_unused on bearlake.object (kind, key) where unused_ms is not null and deleted_ms is null;
create index object_deleted on bearlake.object (deleted_ms) where deleted_ms is not null;
create sequence bearlake.object_numbers increment by -1 minvalue -9223372036854775807 maxvalue -2 start with -2;

-- Trims before this layout released whole pages only: the fronts of the pages that starts lie in are swept now.
insert into bearlake.sweep
select -row_number() over (), (g.group_key << 5) + s.i - 1, (g.group_key << 5) + s.i - 1, s.start
  from bearlake.partition_group g, lateral unnest(g.starts) with ordinality s (start, i)
 where s.start > 0;

-- What a swap put into a data file; also what was trimmed since, or belongs to a deleted partition.
create table bearlake.data_file (
    number bigint primary key,
    stream_number bigint not null,
    swap_position bigint not null,
    key text collate "C" not null,
    partitions bigint[] not null,
    base_offsets bigint[] not null,
    record_counts bigint[] not null,
    positions bigint[] not null,
    lengths bigint[] not null,
    timestamps bigint[] not null
) with (toast_tuple_target = 8160);
create index data_file_stream on bearlake.data_file (stream_number, swap_position, key);

-- Beside partition_group, element for element, so that a commit does not rewrite it and a swap does not stop the commits:
-- compacted offsets, and the bytes ever committed below them. Whoever moves a start holds the row, and so does a swap.
create table bearlake.compaction_group (
    group_key bigint primary key,
    offsets bigint[] not null,
    sizes bigint[] not null
) with (fillfactor = 50, toast_tuple_target = 8160);
insert into bearlake.compaction_group
select g.group_key, z.z, z.z
  from bearlake.partition_group g, lateral (select array_fill(0::bigint, array[cardinality(g.ends)]) as z) z;

-- kind, state: compaction.TaskKind, TaskState. `node_id` and `server_epoch` are of the last claim, which holds while `is_held` and
-- that server is live. `oldest_ms`: commit time of the oldest record; `not_before_ms`: not to be claimed earlier.
create table bearlake.task (
    id bigint generated always as identity primary key,
    kind smallint not null,
    state smallint not null default 1,
    stream_number bigint not null,
    partitions bigint[] not null,
    starts bigint[] not null,
    ends bigint[] not null,
    inputs text[] not null,
    size_bytes bigint not null,
    record_count bigint not null,
    oldest_ms bigint not null,
    epoch bigint not null default 0,
    is_held boolean not null default false,
    node_id integer,
    server_epoch bigint,
    attempt_count integer not null default 0,
    not_before_ms bigint not null default 0,
    error text not null default ''
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
create index task_open on bearlake.task (id) where state = 1;
create index task_stream on bearlake.task (stream_number, id);

-- A partition is in at most one COMPACT task, a data file in at most one MERGE task.
create table bearlake.task_partition (partition bigint primary key, task_id bigint not null);
create table bearlake.task_input (key text collate "C" primary key, task_id bigint not null);

create table bearlake.task_result (
    task_id bigint not null,
    epoch bigint not null,
    result bytea not null,
    primary key (task_id, epoch)
);

-- Tasks that are done (`position` of the swap's entry) or were cancelled (0), for repeated calls; maintenance drops them an hour later.
create table bearlake.task_closed (
    id bigint primary key,
    epoch bigint not null,
    position bigint not null,
    closed_ms bigint not null
);
create index task_closed_ms on bearlake.task_closed (closed_ms);

-- A SWAP entry of bearlake.log has one array element per range: partitions, base_offsets (start), record_counts (end - start).

-- Adds the partitions [p_from, p_to) of a stream, empty. Lock order here too: compaction groups, then partition groups.
create or replace function bearlake.grow_groups(p_number bigint, p_from integer, p_to integer) returns void language plpgsql as $$
declare
    first_key constant bigint := (p_number << 20) >> 5;
    zeros bigint[];
begin
    if p_from & 31 > 0 then
        zeros := array_fill(0::bigint, array[least(p_to, (p_from | 31) + 1) - p_from]);
        update bearlake.compaction_group c set offsets = offsets || zeros, sizes = sizes || zeros
         where c.group_key = first_key + (p_from >> 5);
        update bearlake.partition_group g
           set starts = starts || zeros, ends = ends || zeros, sizes = sizes || zeros, sizes_before = sizes_before || zeros
         where g.group_key = first_key + (p_from >> 5);
    end if;
    insert into bearlake.compaction_group
    select first_key + i, z.z, z.z
      from generate_series((p_from + 31) >> 5, (p_to - 1) >> 5) i,
           lateral (select array_fill(0::bigint, array[least(32, p_to - (i << 5))]) as z) z;
    insert into bearlake.partition_group
    select first_key + i, z.z, z.z, z.z, z.z
      from generate_series((p_from + 31) >> 5, (p_to - 1) >> 5) i,
           lateral (select array_fill(0::bigint, array[least(32, p_to - (i << 5))]) as z) z;
end $$;

-- The first result of a token that is known already.
create or replace function bearlake.token_result(p_token text, out log_position bigint, out outcomes bigint[])
language plpgsql stable as $$
begin
    select o.number, o.outcomes into log_position, outcomes from bearlake.object o where o.key = p_token;
    if log_position = -1 then
        raise exception 'commit token is forbidden' using errcode = 'BL001';
    elsif outcomes is null then
        raise exception 'commit token was used too long ago' using errcode = 'BL004';
    end if;
end $$;

-- Forbids keys that no commit and no swap has used; returns those that are forbidden now.
create or replace function bearlake.forbid_tokens(p_tokens text[]) returns setof text language plpgsql as $$
begin
    insert into bearlake.object (key, number, size, committed_ms)
    select t, -1, 0, bearlake.now_ms() from (select distinct unnest(p_tokens) collate "C" as t order by 1) tokens
    on conflict (key) do nothing;
    return query select o.key::text from bearlake.object o where o.key = any (p_tokens) and o.number = -1;
end $$;

-- Forgets results of tokens and of tasks older than p_older_ms, and after p_forbidden_ms forbidden tokens and objects whose bytes are
-- deleted, at most p_limit of each. That an object with bytes is committed is never forgotten.
create or replace function bearlake.forget_tokens(p_older_ms bigint, p_forbidden_ms bigint, p_limit integer)
returns void language sql as $$
    update bearlake.object o set outcomes = null
     where o.key in (select f.key from bearlake.object f
                      where f.outcomes is not null and f.committed_ms < bearlake.now_ms() - p_older_ms
                      order by f.committed_ms limit p_limit for update skip locked);
    delete from bearlake.object o
     where o.key in (select f.key from bearlake.object f
                      where f.number = -1 and f.committed_ms < bearlake.now_ms() - p_forbidden_ms
                      order by f.committed_ms limit p_limit for update skip locked);
    delete from bearlake.object o
     where o.key in (select f.key from bearlake.object f
                      where f.deleted_ms is not null and f.deleted_ms < bearlake.now_ms() - p_forbidden_ms
                      order by f.deleted_ms limit p_limit for update skip locked);
    delete from bearlake.task_closed c
     where c.id in (select f.id from bearlake.task_closed f where f.closed_ms < bearlake.now_ms() - p_older_ms
                     order by f.closed_ms limit p_limit for update skip locked)
$$;

-- Index rows that named objects are gone: one element of p_numbers per row.
create function bearlake.release_objects(p_numbers bigint[]) returns void language sql as $$
    update bearlake.object o
       set slice_count = o.slice_count - u.row_count,
           unused_ms = case when o.slice_count = u.row_count then bearlake.now_ms() else o.unused_ms end
      from (select n, count(*) as row_count from unnest(p_numbers) n group by n) u
     where o.number = u.n and o.number <> -1
$$;

-- Drops at most p_limit index pages (and rows of deleted streams) that nobody can read any more, and the unreadable front of pages
-- that a start offset lies in; returns how many. Holds the tail's row as roll_up does: a page that is appended to must not go.
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
        elsif remaining > 0 then
            remaining := remaining - bearlake.sweep_partitions(task.partition_first, task.partition_last, remaining);
        end if;
        perform bearlake.release_objects(released);
        exit when remaining <= 0;
        delete from bearlake.sweep w where w.position = task.position;
    end loop;
    return p_limit - remaining;
end $$;

-- Takes the rows that end at or below p_start out of the page that holds p_start; returns the objects that they named.
create function bearlake.cut_page(p_partition bigint, p_start bigint) returns bigint[] language plpgsql as $$
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

-- Drops at most p_limit rows that a deleted stream's partitions left behind; returns how many. Its tasks that are set aside, which
-- nobody will claim, go too.
create function bearlake.sweep_partitions(p_first bigint, p_last bigint, p_limit integer) returns integer language plpgsql as $$
declare
    remaining integer := p_limit;
    part integer;
begin
    perform bearlake.drop_task(t) from bearlake.task t where t.stream_number = p_first >> 20 and t.state = 2;
    delete from bearlake.producer p where (p.partition, p.producer_id) in (
        select q.partition, q.producer_id from bearlake.producer q where q.partition between p_first and p_last limit remaining);
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

-- Notes that the bytes of unused objects are gone; objects that are still named are left alone.
create function bearlake.delete_objects(p_keys text[]) returns void language sql as $$
    with gone as (
        update bearlake.object o set deleted_ms = bearlake.now_ms()
         where o.key = any (p_keys) and o.unused_ms is not null and o.deleted_ms is null
        returning o.number
    )
    delete from bearlake.data_file d using gone where d.number = gone.number
$$;
