-- The state of a subject at one moment.
--
-- Parameters: p_context, p_subject. p_body: the schemas with this body, too.
-- Returns: kind 0: number is the revision; 1 to 3: config (a) and mode (b) of the subject, the context, all; 4: a version (number); 5: a
--   schema with the body, its content (a).
-- Raises: none.

create or replace function bearlake.schema_subject_state(p_context text, p_subject text, p_body bytea)
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
