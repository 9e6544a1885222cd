-- Layout 31 has quotas. The tables of schema/quotas.sql.

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

-- As fence_table, which is replaced only after this file.
create trigger fence before insert or update or delete or truncate on bearlake.quota_state
    for each statement execute function bearlake.check_session();
create trigger fence before insert or update or delete or truncate on bearlake.quota
    for each statement execute function bearlake.check_session();
