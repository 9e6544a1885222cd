-- Takes the schema registry's lock. Every write begins with it.
--
-- Parameters: p_context, p_subject. p_revision: the revision that the subject must have; negative: any.
-- Raises: BL004 the subject has another revision.

create or replace function bearlake.lock_schemas(p_context text, p_subject text, p_revision bigint) returns void language plpgsql as $$
begin
    perform 1 from bearlake.schema_registry for update;
    if p_revision >= 0 and bearlake.schema_revision(p_context, p_subject) <> p_revision then
        raise exception 'the subject % has changed meanwhile', p_subject using errcode = 'BL004';
    end if;
end $$;

-- Each level's revision only grows, so a sum never comes back.
create or replace function bearlake.schema_revision(p_context text, p_subject text) returns bigint language sql stable as $$
    select coalesce(sum(s.revision), 0)::bigint
      from (values (p_context, p_subject), (p_context, ''), ('.', '')) k(context, subject)
      join bearlake.schema_subject s on s.context = k.context and s.subject = k.subject
$$;

-- Grows the subject's revision.
create or replace function bearlake.touch_schema_subject(p_context text, p_subject text) returns void language sql as $$
    insert into bearlake.schema_subject values (p_context, p_subject, 1, null, null)
    on conflict (context, subject) do update set revision = schema_subject.revision + 1
$$;
