-- Notes that the bytes of unused objects are deleted. Objects that the index still names stay as they are.
--
-- Parameters: p_keys: keys of objects.
-- Raises: none.

create or replace function bearlake.delete_objects(p_keys text[]) returns void language sql as $$
    with gone as (
        update bearlake.object o set deleted_ms = bearlake.now_ms()
         where o.key = any (p_keys) and o.unused_ms is not null and o.deleted_ms is null
        returning o.number
    )
    delete from bearlake.data_file d using gone where d.number = gone.number
$$;
