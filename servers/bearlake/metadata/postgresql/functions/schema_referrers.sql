-- Ids of the schemas that refer to a version and that some version still has.
--
-- Parameters: p_context, p_subject, p_version.
-- Raises: none.

create or replace function bearlake.schema_referrers(p_context text, p_subject text, p_version integer)
returns setof integer language sql stable as $$
    select distinct r.referrer_id from bearlake.schema_reference r
     where r.context = p_context and r.subject = p_subject and r.version = p_version
       and exists (select 1 from bearlake.schema_version v
                    where v.context = r.referrer_context and v.schema_id = r.referrer_id and not v.is_deleted)
     order by 1
$$;
