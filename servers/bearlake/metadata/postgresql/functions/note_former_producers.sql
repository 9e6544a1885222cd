-- Trigger of bearlake.stream: notes the largest producer id given out before the stream replaced a deleted one of its name.

create or replace function bearlake.note_former_producers() returns trigger language plpgsql as $$
begin
    if exists (select from bearlake.stream s where s.name = new.name) then
        select c.producer_id_next - 1 into new.former_producer_id from bearlake.cluster c;
    end if;
    return new;
end $$;
