-- Bounds the backends that wait for a synchronous standby (I12, decision 99). A backend in that wait stays when its client has gone.
-- Without a bound, each process that starts while the standby is away would leave one backend behind, until there are no connections left.
--
-- Waits until fewer than four other transactions are at this kind of step, and counts as one of them until its own transaction ends: a
-- commit releases its locks after its wait for the standby. A backend that waits here ends by lock_timeout, or when its client has gone.
--
-- Parameters: p_kind: 0 begins a session, 1 ends sessions.
-- Raises: 55P03 after lock_timeout.

create or replace function bearlake.take_turn(p_kind integer) returns void language plpgsql as $$
declare
    class constant integer := 'bearlake.session'::regclass::oid::integer;
    slot_count constant integer := 4;
begin
    for slot in 1..slot_count loop
        if pg_try_advisory_xact_lock(class, p_kind * slot_count + slot) then
            return;
        end if;
    end loop;
    perform pg_advisory_xact_lock(class, p_kind * slot_count + 1 + pg_backend_pid() % slot_count);
end $$;
