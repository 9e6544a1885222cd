-- The typed columns of streams' tables. See metadata/table_columns.py.

create table bearlake.table_columns (
    stream_number bigint primary key,
    content text not null, -- JSON
    version bigint not null
);

select bearlake.fence_table('table_columns');
