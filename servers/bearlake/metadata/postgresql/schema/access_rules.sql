-- Access rules: metadata/access_rules.py. All changes are decided on the revision.

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

select bearlake.fence_table(t) from unnest(array['access_state', 'access_rule']) t;
