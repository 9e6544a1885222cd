-- Adds the empty partitions [p_from, p_to) of a stream. Lock order: compaction groups, then partition groups.
--
-- Parameters: p_number: the stream's number. p_from, p_to: partition indexes.
-- Raises: none.

create or replace function bearlake.grow_groups(p_number bigint, p_from integer, p_to integer) returns void language plpgsql as $$
declare
    first_key constant bigint := (p_number << 20) >> 5;
    zeros bigint[];
begin
    if p_from & 31 > 0 then
        zeros := array_fill(0::bigint, array[least(p_to, (p_from | 31) + 1) - p_from]);
        update bearlake.compaction_group c set offsets = offsets || zeros, sizes = sizes || zeros
         where c.group_key = first_key + (p_from >> 5);
        update bearlake.partition_group g
           set starts = starts || zeros, ends = ends || zeros, sizes = sizes || zeros, sizes_before = sizes_before || zeros
         where g.group_key = first_key + (p_from >> 5);
    end if;
    insert into bearlake.compaction_group
    select first_key + i, z.z, z.z
      from generate_series((p_from + 31) >> 5, (p_to - 1) >> 5) i,
           lateral (select array_fill(0::bigint, array[least(32, p_to - (i << 5))]) as z) z;
    insert into bearlake.partition_group
    select first_key + i, z.z, z.z, z.z, z.z
      from generate_series((p_from + 31) >> 5, (p_to - 1) >> 5) i,
           lateral (select array_fill(0::bigint, array[least(32, p_to - (i << 5))]) as z) z;
end $$;
