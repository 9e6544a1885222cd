-- Configs that streams of a group have unless they say otherwise. See metadata/defaults.py.

create table bearlake.stream_default (
    name text collate "C" primary key,
    configs text not null, -- JSON object of strings
    version bigint not null
);
