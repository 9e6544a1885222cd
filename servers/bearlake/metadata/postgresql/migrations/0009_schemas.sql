-- The schema registry. A subject named '' holds the config and mode of its context. Every write holds the row of schema_registry: writes
-- are rare, and are decided on what was read before. Names sort by code point.

create table bearlake.schema_registry (only_row boolean primary key default true check (only_row));
insert into bearlake.schema_registry values (true);

create table bearlake.schema_context (
    context text collate "C" primary key,
    last_id integer not null -- ids up to here were given
);

create table bearlake.schema_row (
    context     text collate "C" not null,
    id          integer not null,
    fingerprint bytea not null, -- of all it says
    body        bytea not null, -- of type, text and references
    content     text not null, -- JSON
    primary key (context, id)
);
create index schema_row_body on bearlake.schema_row (context, body, id);
create index schema_row_fingerprint on bearlake.schema_row (fingerprint);

create table bearlake.schema_subject (
    context  text collate "C" not null,
    subject  text collate "C" not null,
    revision bigint not null, -- grows with every change; the row stays for ever
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

-- Each level's revision only grows, so the sum never comes back.
create function bearlake.schema_revision(p_context text, p_subject text) returns bigint language sql stable as $$
    select coalesce(sum(s.revision), 0)::bigint
      from (values (p_context, p_subject), (p_context, ''), ('.', '')) k(context, subject)
      join bearlake.schema_subject s on s.context = k.context and s.subject = k.subject
$$;

create function bearlake.touch_schema_subject(p_context text, p_subject text) returns void language sql as $$
    insert into bearlake.schema_subject values (p_context, p_subject, 1, null, null)
    on conflict (context, subject) do update set revision = schema_subject.revision + 1
$$;

-- Takes the registry's lock; every write begins so. A negative revision: whatever it is.
create function bearlake.lock_schemas(p_context text, p_subject text, p_revision bigint) returns void language plpgsql as $$
begin
    perform 1 from bearlake.schema_registry for update;
    if p_revision >= 0 and bearlake.schema_revision(p_context, p_subject) <> p_revision then
        raise exception 'the subject % has changed meanwhile', p_subject using errcode = 'BL004';
    end if;
end $$;

create function bearlake.schema_referrers(p_context text, p_subject text, p_version integer)
returns setof integer language sql stable as $$
    select distinct r.referrer_id from bearlake.schema_reference r
     where r.context = p_context and r.subject = p_subject and r.version = p_version
       and exists (select 1 from bearlake.schema_version v
                    where v.context = r.referrer_context and v.schema_id = r.referrer_id and not v.is_deleted)
     order by 1
$$;

-- The id of a schema, which is there when this returns. p_id: the one that an import brings.
create function bearlake.give_schema_id(
    p_context text, p_fingerprint bytea, p_body bytea, p_content text, p_id integer,
    p_contexts text[], p_subjects text[], p_versions integer[]
) returns integer language plpgsql as $$
declare
    found_id integer;
    found_fingerprint bytea;
begin
    select s.id, s.fingerprint into found_id, found_fingerprint from bearlake.schema_row s
     where s.context = p_context
       and case when p_id is null then s.body = p_body and s.fingerprint = p_fingerprint else s.id = p_id end
     order by s.id limit 1;
    if found then
        if found_fingerprint <> p_fingerprint then
            raise exception 'the id % belongs to another schema', p_id using errcode = 'BL005';
        end if;
        return found_id;
    end if;
    insert into bearlake.schema_context as c values (p_context, coalesce(p_id, 1))
    on conflict (context) do update set last_id = case when p_id is null then c.last_id + 1 else greatest(c.last_id, p_id) end
    returning coalesce(p_id, c.last_id) into found_id;
    insert into bearlake.schema_row values (p_context, found_id, p_fingerprint, p_body, p_content);
    insert into bearlake.schema_reference
    select r.context, r.subject, r.version, p_context, found_id
      from unnest(p_contexts, p_subjects, p_versions) r(context, subject, version)
    on conflict do nothing;
    return found_id;
end $$;

create function bearlake.register_schema(
    p_context text, p_subject text, p_revision bigint, p_fingerprint bytea, p_body bytea, p_content text,
    p_id integer, p_version integer, p_contexts text[], p_subjects text[], p_versions integer[]
) returns table (version integer, schema_id integer) language plpgsql as $$
#variable_conflict use_column
declare
    given_id integer;
    given_version integer;
    present integer;
begin
    perform bearlake.lock_schemas(p_context, p_subject, p_revision);
    if exists (
        select 1 from unnest(p_contexts, p_subjects, p_versions) r(context, subject, version)
         where not exists (select 1 from bearlake.schema_version v
                            where v.context = r.context and v.subject = r.subject and v.version = r.version and not v.is_deleted)
    ) then
        raise exception 'a referenced version is not there any more' using errcode = 'BL004';
    end if;
    given_id := bearlake.give_schema_id(
        p_context, p_fingerprint, p_body, p_content, p_id, p_contexts, p_subjects, p_versions);
    given_version := coalesce(p_version, (
        select coalesce(max(v.version), 0) + 1 from bearlake.schema_version v
         where v.context = p_context and v.subject = p_subject));
    insert into bearlake.schema_version as v values (p_context, p_subject, given_version, given_id, false)
    on conflict (context, subject, version) do update set is_deleted = false where v.schema_id = excluded.schema_id;
    select v.schema_id into present from bearlake.schema_version v
     where v.context = p_context and v.subject = p_subject and v.version = given_version;
    if present <> given_id then
        raise exception 'version % of % has the schema with id %', given_version, p_subject, present using errcode = 'BL005';
    end if;
    perform bearlake.touch_schema_subject(p_context, p_subject);
    return query select given_version, given_id;
end $$;

create function bearlake.delete_schema_versions(
    p_context text, p_subject text, p_revision bigint, p_versions integer[], p_is_permanent boolean
) returns void language plpgsql as $$
begin
    perform bearlake.lock_schemas(p_context, p_subject, p_revision);
    if exists (select 1 from unnest(p_versions) d(version)
                where exists (select 1 from bearlake.schema_referrers(p_context, p_subject, d.version))) then
        raise exception 'a version of % is referenced', p_subject using errcode = 'BL004';
    end if;
    if p_is_permanent then
        delete from bearlake.schema_version v
         where v.context = p_context and v.subject = p_subject and v.version = any (p_versions);
    else
        update bearlake.schema_version v set is_deleted = true
         where v.context = p_context and v.subject = p_subject and v.version = any (p_versions);
    end if;
    perform bearlake.touch_schema_subject(p_context, p_subject);
end $$;

-- p_what: config or mode.
create function bearlake.set_schema_rule(p_context text, p_subject text, p_what text, p_value text) returns void
language plpgsql as $$
begin
    perform bearlake.lock_schemas(p_context, p_subject, -1);
    perform bearlake.touch_schema_subject(p_context, p_subject);
    update bearlake.schema_subject s
       set config = case when p_what = 'config' then p_value else s.config end,
           mode = case when p_what = 'mode' then p_value else s.mode end
     where s.context = p_context and s.subject = p_subject;
end $$;

-- One moment of a subject. kind 0: number is the revision; 1 to 3: a level's config (a) and mode (b); 4: a version; 5: a schema with the body.
create function bearlake.schema_subject_state(p_context text, p_subject text, p_body bytea)
returns table (kind integer, number bigint, schema_id integer, is_deleted boolean, a text, b text, fingerprint bytea)
language sql stable as $$
    select 0, bearlake.schema_revision(p_context, p_subject), null::integer, null::boolean, null::text, null::text, null::bytea
    union all
    select k.kind, null, null, null, s.config, s.mode, null
      from (values (1, p_context, p_subject), (2, p_context, ''), (3, '.', '')) k(kind, context, subject)
      join bearlake.schema_subject s on s.context = k.context and s.subject = k.subject
    union all
    select 4, v.version, v.schema_id, v.is_deleted, null, null, null
      from bearlake.schema_version v where v.context = p_context and v.subject = p_subject
    union all
    select 5, null, s.id, null, s.content, null, s.fingerprint
      from bearlake.schema_row s where s.context = p_context and s.body = p_body
    order by 1, 2, 3
$$;
