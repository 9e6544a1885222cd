-- Creates a stream, if the caller knows the newest incarnation of its name (I12, decision 71). A lock of the name orders creations, and a
-- refused creation takes no stream number.
--
-- Parameters: p_name. p_after: number of the name's newest incarnation, 0: it never existed. p_id: the new stream's id.
--   p_partition_count. p_configs: object of strings.
-- Returns: the stream's row.
-- Raises: BL004 the name was created and deleted meanwhile; BL005 the stream exists.

create or replace function bearlake.create_stream_after(
    p_name text, p_after bigint, p_id uuid, p_partition_count integer, p_configs jsonb
) returns setof bearlake.stream language plpgsql as $$
declare
    newest bearlake.stream;
begin
    perform pg_advisory_xact_lock(hashtextextended('bearlake.' || p_name, 0));
    select * into newest from bearlake.stream s where s.name = p_name order by s.number desc limit 1;
    if newest.number is not null and newest.deleted_ms is null then
        raise exception 'there is a stream %', p_name using errcode = 'BL005';
    end if;
    if coalesce(newest.number, 0) <> p_after then
        raise exception 'stream % was created and deleted meanwhile', p_name using errcode = 'BL004';
    end if;
    return query select * from bearlake.create_stream(p_name, p_id, p_partition_count, p_configs);
end $$;

-- Creates the stream without these checks; 23505 if an active stream has the name.
create or replace function bearlake.create_stream(p_name text, p_id uuid, p_partition_count integer, p_configs jsonb)
returns setof bearlake.stream language plpgsql as $$
declare
    made bearlake.stream;
begin
    insert into bearlake.stream (name, id, partition_count, configs, created_ms)
    values (p_name, p_id, p_partition_count, p_configs, bearlake.now_ms()) returning * into made;
    perform bearlake.grow_groups(made.number, 0, p_partition_count);
    return query select * from bearlake.stream_changed(made.number);
end $$;
