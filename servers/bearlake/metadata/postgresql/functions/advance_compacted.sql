-- Moves the compacted offsets of a task's ranges to their ends.
--
-- Parameters: p_task. p_moves: what the swap moved. p_partitions, p_sizes: readable bytes that each move took.
-- Raises: BL004 the swap leaves out readable offsets.

create or replace function bearlake.advance_compacted(
    p_task bearlake.task, p_moves bearlake.move[], p_partitions bigint[], p_sizes bigint[]
) returns void language plpgsql as $$
declare
    part record;
    c bearlake.compaction_group;
    g bearlake.partition_group;
    slot integer;
begin
    for part in
        select t.p, max(t.s) as s, max(t.e) as e, min(t.moved_s) as moved_s, max(t.moved_e) as moved_e, sum(t.moved)::bigint as moved
          from (select u.p, u.s, u.e, null::bigint as moved_s, null::bigint as moved_e, 0 as moved
                  from unnest(p_task.partitions, p_task.starts, p_task.ends) u (p, s, e)
                union all
                select m.p, null, null, m.s, m.e, 0 from unnest(p_moves) m
                union all
                select m.p, null, null, null, null, m.moved from unnest(p_partitions, p_sizes) m (p, moved)) t
         group by t.p having max(t.e) is not null order by t.p
    loop
        if c.group_key is distinct from part.p >> 5 then
            update bearlake.compaction_group u set offsets = c.offsets, sizes = c.sizes where u.group_key = c.group_key;
            select * into c from bearlake.compaction_group o where o.group_key = part.p >> 5;
            select * into g from bearlake.partition_group o where o.group_key = part.p >> 5;
        end if;
        slot := (part.p & 31) + 1;
        continue when c.group_key is null or g.group_key is null or part.e <= c.offsets[slot];
        if part.e > g.starts[slot]
            and (part.moved_s <= greatest(part.s, g.starts[slot]) and part.moved_e >= part.e) is not true then
            raise exception 'the swap leaves out offsets up to % of partition %', part.e, part.p using errcode = 'BL004';
        end if;
        c.offsets[slot] := part.e;
        c.sizes[slot] := greatest(c.sizes[slot], g.sizes_before[slot]) + part.moved;
    end loop;
    update bearlake.compaction_group u set offsets = c.offsets, sizes = c.sizes where u.group_key = c.group_key;
end $$;
