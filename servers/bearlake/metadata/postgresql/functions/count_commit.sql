-- Trigger of bearlake.task_closed: counts a task that is done for its stream. A swap whose offsets were all trimmed meanwhile names no
-- partition and does not count.

create or replace function bearlake.count_commit() returns trigger language plpgsql as $$
begin
    insert into bearlake.stream_commits as c
    select l.partitions[1] >> 20, 1, new.closed_ms from bearlake.log l
     where l.position = new.position and cardinality(l.partitions) > 0
        on conflict (stream_number) do update
       set commit_count = c.commit_count + 1, committed_ms = greatest(c.committed_ms, excluded.committed_ms);
    return null;
end $$;
