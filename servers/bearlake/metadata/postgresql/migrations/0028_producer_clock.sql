-- Idle producers are found by the producer clock instead of the database's clock (decision 116). It starts at 0, and so do all producers.
alter table bearlake.cluster add column producer_minute integer not null default 0;

drop index bearlake.producer_updated;
alter table bearlake.producer drop column updated_hour, add column used_minute integer not null default 0;
create index producer_used on bearlake.producer (used_minute);

drop index bearlake.producer_name_asked;
alter table bearlake.producer_name drop column asked_ms, add column asked_minute integer not null default 0;
create index producer_name_asked on bearlake.producer_name (asked_minute);
