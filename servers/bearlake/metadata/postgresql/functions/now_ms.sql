-- The store's clock: milliseconds since 1970 of this database. The only source of time in the store; tests replace this function.

create or replace function bearlake.now_ms() returns bigint language sql volatile parallel safe as
$$ select (extract(epoch from clock_timestamp()) * 1000)::bigint $$;
