-- Retention that arrives late (DESIGN.md, I12, decision 90): it names the version of the stream whose configs decided it. bearlake.retain
-- without a version stays for servers of the version before. Lock order as in 0003_catalog.sql: the stream's row first.

-- As bearlake.retain, for partitions of one stream that still has the version. The stream is locked only if there is something to trim.
create function bearlake.retain_as_of(
    p_number bigint, p_version bigint, p_partitions bigint[], p_before_ms bigint, p_size_max bigint
) returns table (partition bigint, start_offset bigint, end_offset bigint) language plpgsql as $$
declare
    oldest_ms constant bigint := bearlake.now_ms() - p_before_ms;
begin
    if exists (select from bearlake.stream s where s.number = p_number and s.deleted_ms is null and s.version = p_version)
        and not exists (select from unnest(p_partitions) u where bearlake.retained_start(u, oldest_ms, p_size_max) is not null)
    then
        return;
    end if;
    perform bearlake.hold_stream(p_number, p_version);
    return query select * from bearlake.retain(p_partitions, p_before_ms, p_size_max);
end $$;
