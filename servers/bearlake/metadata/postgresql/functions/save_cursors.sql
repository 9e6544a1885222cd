-- Moves cursors. Holds the leases until the transaction ends. Rules: metadata/cursor_rules.py.
--
-- Parameters: One element per partition: p_partitions, p_leases, p_epochs, p_node_ids, p_server_epochs. One element per update: p_saves
--   (index of its partition, from 1), p_names, p_generations (the cursor must have it), p_marks (offset), p_acknowledged, p_revisions (must
--   grow), p_properties (null: as they are).
-- Returns: partitions whose lease is overtaken, without a name; updates of the others that are not in the store, with their names.
-- Raises: none.

create or replace function bearlake.save_cursors_as_of(
    p_partitions bigint[], p_leases text[], p_epochs bigint[], p_node_ids integer[], p_server_epochs bigint[], p_saves integer[],
    p_names text[], p_generations bigint[], p_marks bigint[], p_acknowledged bytea[], p_revisions bigint[], p_properties text[]
) returns table (partition bigint, name text) language plpgsql as $$
#variable_conflict use_column
declare
    is_held boolean[];
begin
    perform from bearlake.lease l where l.name = any (p_leases) order by l.name for share;
    select array_agg(l.name is not null and s.node_id is not null order by u.i) into is_held
      from unnest(p_leases, p_epochs, p_node_ids, p_server_epochs) with ordinality u (name, epoch, node_id, server_epoch, i)
      left join bearlake.lease l
        on l.name = u.name and l.epoch = u.epoch and l.node_id = u.node_id and l.server_epoch = u.server_epoch
      left join bearlake.server s on s.node_id = u.node_id and s.epoch = u.server_epoch and not s.has_left;
    update bearlake.subscription_cursor c
       set mark_delete = u.mark_delete, acknowledged = u.acknowledged, revision = u.revision,
           properties = coalesce(u.properties, c.properties)
      from unnest(p_saves, p_names, p_generations, p_marks, p_acknowledged, p_revisions, p_properties)
           u (save, name, generation, mark_delete, acknowledged, revision, properties)
     where is_held[u.save] and c.partition = p_partitions[u.save] and c.name = u.name and c.generation = u.generation
       and c.revision < u.revision;
    return query
    select u.partition, null::text from unnest(p_partitions, is_held) u (partition, is_held) where not u.is_held
    union all
    select p_partitions[u.save], u.name from unnest(p_saves, p_names, p_generations, p_revisions) u (save, name, generation, revision)
     where is_held[u.save] and not exists (
        select from bearlake.subscription_cursor c
         where c.partition = p_partitions[u.save] and c.name = u.name and c.generation = u.generation and c.revision = u.revision);
end $$;
