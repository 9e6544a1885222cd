-- Deletes versions of a subject.
--
-- Parameters: p_context, p_subject. p_revision: as lock_schemas. p_versions. p_is_permanent: remove the rows, too.
-- Raises: BL004 the subject has changed, or a version is referenced.

create or replace function bearlake.delete_schema_versions(
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
