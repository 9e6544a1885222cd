-- Quotas: metadata/quotas.py. All changes are decided on the revision.

create table bearlake.quota_state (
    only_row boolean primary key default true check (only_row),
    revision bigint not null -- grows with every change
);
insert into bearlake.quota_state (revision) values (0);

create table bearlake.quota (
    user_name text collate "C" not null, -- '': any · '*': the default · '=name'
    client_id text collate "C" not null, -- the same
    address   text collate "C" not null, -- the same
    key       text collate "C" not null,
    value     double precision not null,
    primary key (user_name, client_id, address, key)
);

select bearlake.fence_table(t) from unnest(array['quota_state', 'quota']) t;
