-- Layout 35 has the typed columns of tables. The table of schema/table_columns.sql.

create table bearlake.table_columns (
    stream_number bigint primary key,
    content text not null, -- JSON
    version bigint not null
);

-- As fence_table, which is replaced only after this file.
create trigger fence before insert or update or delete or truncate on bearlake.table_columns
    for each statement execute function bearlake.check_session();
