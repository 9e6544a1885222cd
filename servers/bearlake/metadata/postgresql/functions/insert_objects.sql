-- Registers the objects of a swap.
--
-- Parameters: One element per object: p_keys, p_numbers, p_sizes (bytes), p_kinds. p_placed: the object of each new index row.
--   p_stream_number. p_position: the swap's. p_oldest_ms: commit time, if bytes only moved; null: now.
-- Raises: BL001 a key is forbidden; BL004 a key is in use.

create or replace function bearlake.insert_objects(
    p_keys text[], p_numbers bigint[], p_sizes bigint[], p_kinds integer[], p_placed bigint[],
    p_stream_number bigint, p_position bigint, p_oldest_ms bigint
) returns void language plpgsql as $$
declare
    made integer;
begin
    insert into bearlake.object
        (key, number, size, committed_ms, slice_count, kind, stream_number, swap_position, unused_ms)
    select u.k, u.n, u.z, coalesce(p_oldest_ms, bearlake.now_ms()), count(r.n), u.kind,
           case when u.kind = 1 then p_stream_number else 0 end, p_position,
           case when count(r.n) = 0 then bearlake.now_ms() end
      from unnest(p_keys, p_numbers, p_sizes, p_kinds) u (k, n, z, kind) left join unnest(p_placed) r (n) on r.n = u.n
     group by u.k, u.n, u.z, u.kind order by u.k collate "C"
    on conflict (key) do nothing;
    get diagnostics made = row_count;
    if made = cardinality(p_keys) then
        return;
    elsif exists (select from bearlake.object o where o.key = any (p_keys) and o.number = -1) then
        raise exception 'a key of the swap is forbidden' using errcode = 'BL001';
    end if;
    raise exception 'a key of the swap is in use' using errcode = 'BL004';
end $$;
