-- Cursors of durable subscriptions. See metadata/subscriptions.py and metadata/cursor_rules.py.

-- Each save rewrites a row: the free space keeps small rows within their page (HOT). The acknowledged ranges are packed already.
-- generation: the partition's count of deletions when the cursor was made; it tells the cursors apart that had the same name.
create table bearlake.subscription_cursor (
    partition bigint not null,
    name text collate "C" not null,
    mark_delete bigint not null,
    acknowledged bytea not null,
    properties text not null, -- JSON object of strings
    created_ms bigint not null,
    revision bigint not null,
    generation bigint not null default 0,
    primary key (partition, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
alter table bearlake.subscription_cursor alter column acknowledged set storage external;

select bearlake.fence_table('subscription_cursor');
