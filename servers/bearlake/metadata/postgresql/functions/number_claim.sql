-- Trigger of bearlake.task: numbers claims in the order in which they are given. Each claim grows the task's epoch.

create or replace function bearlake.number_claim() returns trigger language plpgsql as $$
begin
    new.claim_number := nextval('bearlake.claim_numbers');
    return new;
end $$;
