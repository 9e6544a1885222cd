-- Compaction's task queue. Rules: metadata/task_object_rules.py.

-- kind, state: compaction.TaskKind, TaskState. node_id, server_epoch: of the last claim, which holds while `is_held` and that server is
-- live. claim_number: claims are numbered in the order in which they are given. oldest_ms: commit time of the oldest record.
-- not_before_ms: not to be claimed earlier.
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
    error text not null default '',
    claim_number bigint not null default 0
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
create index task_open on bearlake.task (id) where state = 1;
create index task_stream on bearlake.task (stream_number, id);
create sequence bearlake.claim_numbers;
create trigger number_claim before update of epoch on bearlake.task
    for each row when (new.epoch > old.epoch) execute function bearlake.number_claim();

-- A partition is in at most one COMPACT task, a data file in at most one MERGE task.
create table bearlake.task_partition (partition bigint primary key, task_id bigint not null);
create table bearlake.task_input (key text collate "C" primary key, task_id bigint not null);

create table bearlake.task_result (
    task_id bigint not null,
    epoch bigint not null,
    result bytea not null,
    primary key (task_id, epoch)
);

-- Tasks that are done (`position` of the swap's entry) or were cancelled (0), for repeated calls; upkeep drops them an hour later.
create table bearlake.task_closed (
    id bigint primary key,
    epoch bigint not null,
    position bigint not null,
    closed_ms bigint not null
);
create index task_closed_ms on bearlake.task_closed (closed_ms);
create trigger count_commit after insert on bearlake.task_closed
    for each row when (new.position > 0) execute function bearlake.count_commit();

-- Keys of objects that tasks wrote: registered to an open task, or forbidden by the orphan sweep. One row per key, so that the primary key
-- decides between `prepare` and `forbid`: each inserts its rows by key, and waits for the end of a transaction whose row it meets.
-- Rows of a task change only while its row in bearlake.task is locked.
create table bearlake.task_object (
    key text collate "C" primary key,
    task_id bigint,      -- null: the key is forbidden
    forbidden_at bigint, -- number of the newest claim when it was forbidden
    check ((task_id is null) <> (forbidden_at is null))
);
create index task_object_task on bearlake.task_object (task_id) where task_id is not null;
create index task_object_forbidden on bearlake.task_object (forbidden_at) where forbidden_at is not null;

-- A task as callers see it: node_id and server_epoch are null unless a live server holds it, times are durations.
create view bearlake.queued_task as
select t.id, t.kind, t.state, t.stream_number, t.partitions, t.starts, t.ends, t.inputs, t.size_bytes, t.record_count,
       greatest(0, n.now - t.oldest_ms) as age_ms, t.epoch, s.node_id, s.epoch as server_epoch, t.attempt_count,
       greatest(0, t.not_before_ms - n.now) as wait_ms, t.error,
       (select array_agg(r.epoch order by r.epoch) from bearlake.task_result r where r.task_id = t.id) as result_epochs,
       (select array_agg(r.result order by r.epoch) from bearlake.task_result r where r.task_id = t.id) as results
  from bearlake.task t
 cross join (select bearlake.now_ms() as now) n
  left join bearlake.server s on t.is_held and s.node_id = t.node_id and s.epoch = t.server_epoch and not s.has_left
       and not s.has_lapsed;

select bearlake.fence_table(t) from unnest(array['task', 'task_partition', 'task_input', 'task_result', 'task_closed', 'task_object']) t;
