-- Advances the producer clock by a minute, if it still stands where the caller saw it a minute ago (metadata/producers.py).
--
-- Parameters: p_seen: the minute at which the caller has seen the clock stand for a minute; -1: none, the clock is only read.
-- Returns: the minute at which the clock stands now.
-- Raises: none.

create or replace function bearlake.advance_producer_clock(p_seen integer) returns integer language plpgsql as $$
declare
    minute integer;
begin
    select c.producer_minute into minute from bearlake.cluster c;
    if minute = p_seen then
        update bearlake.cluster c set producer_minute = c.producer_minute + 1
         where c.producer_minute = p_seen returning c.producer_minute into minute;
        if not found then -- another server advanced it meanwhile
            minute := p_seen + 1;
        end if;
    end if;
    return minute;
end $$;
