-- Layout 30 has access rules. The tables of schema/access_rules.sql.

create table bearlake.access_state (
    only_row boolean primary key default true check (only_row),
    revision bigint not null -- grows with every change
);
insert into bearlake.access_state (revision) values (0);

create table bearlake.access_rule (
    resource   text collate "C" not null,
    name       text collate "C" not null,
    pattern    text collate "C" not null,
    principal  text collate "C" not null,
    host       text collate "C" not null,
    operation  text collate "C" not null,
    permission text collate "C" not null,
    primary key (resource, name, pattern, principal, host, operation, permission)
);

-- As fence_table, which is replaced only after this file.
create trigger fence before insert or update or delete or truncate on bearlake.access_state
    for each statement execute function bearlake.check_session();
create trigger fence before insert or update or delete or truncate on bearlake.access_rule
    for each statement execute function bearlake.check_session();
