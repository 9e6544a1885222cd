-- Layout 29 has users. The tables of schema/users.sql.

create table bearlake.user_state (
    only_row  boolean primary key default true check (only_row),
    revision  bigint not null, -- grows with every change
    decoy_key bytea -- a secret, made when it is first needed
);
insert into bearlake.user_state (revision) values (0);

create table bearlake.user_credential (
    name       text collate "C" not null,
    mechanism  text collate "C" not null,
    iterations integer not null,
    salt       bytea not null,
    stored_key bytea not null,
    server_key bytea not null,
    primary key (name, mechanism)
);

-- As fence_table, which is replaced only after this file.
create trigger fence before insert or update or delete or truncate on bearlake.user_state
    for each statement execute function bearlake.check_session();
create trigger fence before insert or update or delete or truncate on bearlake.user_credential
    for each statement execute function bearlake.check_session();
