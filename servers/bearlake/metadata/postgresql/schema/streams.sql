-- Streams, the defaults of their configs, and their commits to the table.

-- former_producer_id: the largest producer id given out before the stream replaced a deleted one of its name; -1: it replaced none.
create table bearlake.stream (
    number bigint generated always as identity primary key,
    name text collate "C" not null,
    id uuid not null unique,
    partition_count integer not null,
    configs jsonb not null,
    created_ms bigint not null,
    deleted_ms bigint,
    version bigint not null default 0,
    is_terminated boolean not null default false,
    former_producer_id bigint not null default -1
);
create unique index stream_active_name on bearlake.stream (name) where deleted_ms is null;
create index stream_name on bearlake.stream (name, number);
create trigger note_former_producers before insert on bearlake.stream
    for each row execute function bearlake.note_former_producers();

-- Configs that the streams of a group have unless they set them. See metadata/defaults.py.
create table bearlake.stream_default (
    name text collate "C" primary key,
    configs text not null, -- JSON object of strings
    version bigint not null
);

create table bearlake.stream_commits (
    stream_number bigint primary key,
    commit_count bigint not null,
    committed_ms bigint not null
) with (fillfactor = 50);

select bearlake.fence_table('stream'), bearlake.fence_table('stream_default'), bearlake.fence_table('stream_commits');
