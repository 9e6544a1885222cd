-- Sets a subject's config or mode.
--
-- Parameters: p_context, p_subject. p_revision: as lock_schemas. p_what: config or mode. p_value: null: none.
-- Raises: BL004 the subject has changed.

create or replace function bearlake.set_schema_rule_at(
    p_context text, p_subject text, p_revision bigint, p_what text, p_value text
) returns void language plpgsql as $$
begin
    perform bearlake.lock_schemas(p_context, p_subject, p_revision);
    perform bearlake.set_schema_rule(p_context, p_subject, p_what, p_value);
end $$;

-- Sets it, whatever the subject's revision is.
create or replace function bearlake.set_schema_rule(p_context text, p_subject text, p_what text, p_value text) returns void
language plpgsql as $$
begin
    perform bearlake.lock_schemas(p_context, p_subject, -1);
    perform bearlake.touch_schema_subject(p_context, p_subject);
    update bearlake.schema_subject s
       set config = case when p_what = 'config' then p_value else s.config end,
           mode = case when p_what = 'mode' then p_value else s.mode end
     where s.context = p_context and s.subject = p_subject;
end $$;
