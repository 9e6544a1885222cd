-- Registers a schema as a version of a subject.
--
-- Parameters: p_context, p_subject. p_revision: as lock_schemas. p_fingerprint, p_body, p_content: the schema. p_id, p_version: those
--   that an import brings, else null. One element per reference: p_contexts, p_subjects, p_versions.
-- Returns: version, schema_id.
-- Raises: BL004 the subject has changed, or a referenced version is gone; BL005 the id or the version belongs to another schema.

create or replace function bearlake.register_schema(
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

-- Returns the id of a schema, which exists when this returns. p_id: the id that an import brings, else null. Raises BL005.
create or replace function bearlake.give_schema_id(
    p_context text, p_fingerprint bytea, p_body bytea, p_content text, p_id integer,
    p_contexts text[], p_subjects text[], p_versions integer[]
) returns integer language plpgsql as $$
declare
    found_id integer;
    found_fingerprint bytea;
    base integer := coalesce((select n.last_id from bearlake.schema_context n where n.context = ''), 0); -- NEW_CONTEXTS of schemas.py
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
    insert into bearlake.schema_context as c values (p_context, case when p_id is null then base + 1 else greatest(base, p_id) end)
    on conflict (context) do update set last_id = case when p_id is null then c.last_id + 1 else greatest(c.last_id, p_id) end
    returning coalesce(p_id, c.last_id) into found_id;
    insert into bearlake.schema_row values (p_context, found_id, p_fingerprint, p_body, p_content);
    insert into bearlake.schema_reference
    select r.context, r.subject, r.version, p_context, found_id
      from unnest(p_contexts, p_subjects, p_versions) r(context, subject, version)
    on conflict do nothing;
    return found_id;
end $$;
