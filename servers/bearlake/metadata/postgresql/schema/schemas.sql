-- The schema registry. A subject named '' holds the config and mode of its context. Names sort by code point.

-- Every write holds this row: writes are rare, and are decided on what was read before.
create table bearlake.schema_registry (only_row boolean primary key default true check (only_row));
insert into bearlake.schema_registry values (true);

create table bearlake.schema_context (
    context text collate "C" primary key,
    last_id integer not null -- the largest id given out
);

create table bearlake.schema_row (
    context     text collate "C" not null,
    id          integer not null,
    fingerprint bytea not null, -- of the whole content
    body        bytea not null, -- of type, text and references
    content     text not null, -- JSON
    primary key (context, id)
);
create index schema_row_body on bearlake.schema_row (context, body, id);
create index schema_row_fingerprint on bearlake.schema_row (fingerprint);

create table bearlake.schema_subject (
    context  text collate "C" not null,
    subject  text collate "C" not null,
    revision bigint not null, -- grows with every change; the row is never deleted
    config   text,
    mode     text,
    primary key (context, subject)
);

create table bearlake.schema_version (
    context    text collate "C" not null,
    subject    text collate "C" not null,
    version    integer not null,
    schema_id  integer not null,
    is_deleted boolean not null,
    primary key (context, subject, version)
);
create index schema_version_schema on bearlake.schema_version (context, schema_id);

create table bearlake.schema_reference (
    context          text collate "C" not null,
    subject          text collate "C" not null,
    version          integer not null,
    referrer_context text collate "C" not null,
    referrer_id      integer not null,
    primary key (context, subject, version, referrer_context, referrer_id)
);

select bearlake.fence_table(t)
  from unnest(array['schema_registry', 'schema_context', 'schema_row', 'schema_subject', 'schema_version', 'schema_reference']) t;
