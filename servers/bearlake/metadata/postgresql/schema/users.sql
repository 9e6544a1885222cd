-- Users. All changes of users are decided on the revision. Names sort by code point.

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

select bearlake.fence_table(t) from unnest(array['user_state', 'user_credential']) t;
