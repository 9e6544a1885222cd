-- Forgets results of commit tokens and of tasks; forbidden and refused tokens; and objects whose bytes are deleted. Raises the token
-- floor first, under the log head's lock (I8). Never forgets that an object with bytes is committed.
--
-- Parameters: p_older_ms: age of a result to forget, ms. p_forbidden_ms: age of a token or a deletion to forget, ms. p_limit: rows of
--   each kind.
-- Raises: none.

create or replace function bearlake.forget_tokens(p_older_ms bigint, p_forbidden_ms bigint, p_limit integer)
returns void language plpgsql as $$
declare
    before_ms constant bigint := bearlake.now_ms() - p_forbidden_ms;
    hour_key constant text collate "C" := bearlake.token_hour(before_ms);
    keys text[];
    newest text collate "C";
begin
    update bearlake.object o set outcomes = null
     where o.key in (select f.key from bearlake.object f
                      where f.outcomes is not null and f.committed_ms < bearlake.now_ms() - p_older_ms
                      order by f.committed_ms limit p_limit for update skip locked);
    select array_agg(c.key) into keys from (
        (select f.key from bearlake.object f
          where f.number = -1 and f.committed_ms < before_ms and (f.key < hour_key or f.key < 'wal/' or f.key >= 'wal0')
          order by f.committed_ms limit p_limit)
        union all
        (select f.key from bearlake.object f
          where f.deleted_ms is not null and f.deleted_ms < before_ms and (f.key < hour_key or f.key < 'wal/' or f.key >= 'wal0')
          order by f.deleted_ms limit p_limit)) c;
    select max(k collate "C") into newest from unnest(keys) k where k collate "C" >= 'wal/' and k collate "C" < 'wal0';
    update bearlake.log_head h set token_floor = newest where h.token_floor < newest;
    delete from bearlake.object o where o.key = any (keys) and (o.number = -1 or o.deleted_ms is not null);
    delete from bearlake.task_closed c
     where c.id in (select f.id from bearlake.task_closed f where f.closed_ms < bearlake.now_ms() - p_older_ms
                     order by f.closed_ms limit p_limit for update skip locked);
end $$;

-- Returns the prefix of all tokens of the hour of p_ms (metadata/tokens.py, hour_prefix).
create or replace function bearlake.token_hour(p_ms bigint) returns text language sql stable as
$$ select to_char(to_timestamp(p_ms / 1000) at time zone 'UTC', '"wal/"YYYYMMDDHH24"/"') $$;
