-- Lists groups by name. Skips from name to name in the index of the offsets, because a group may have many of them.
--
-- Parameters: p_after: the names after this one. p_limit: rows.
-- Returns: name, protocol_type.
-- Raises: none.

create or replace function bearlake.list_groups(p_after text, p_limit integer)
returns table (name text, protocol_type text) language sql stable as $$
    with recursive named (name, seen) as (
        select min(o.name collate "C"), 1 from bearlake.group_offset o where o.name > p_after collate "C"
        union all
        select (select min(o.name collate "C") from bearlake.group_offset o where o.name > n.name collate "C"), n.seen + 1
          from named n where n.name is not null and n.seen < p_limit
    ), listed as (
        select n.name, '' as protocol_type from named n where n.name is not null
        union all
        (select c.name, c.protocol_type from bearlake.consumer_group c
          where c.name > p_after collate "C" order by c.name limit p_limit)
    )
    select l.name::text, max(l.protocol_type) from listed l group by l.name order by l.name collate "C" limit p_limit
$$;
