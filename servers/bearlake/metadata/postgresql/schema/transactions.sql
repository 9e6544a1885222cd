-- Transactions. Rules: metadata/transaction_rules.py; what each row means: metadata/transactions.py.

-- state: transactions.TransactionState. started_ms: -1: no transaction is ongoing. partitions: those that were added.
create table bearlake.transactional_id (
    name text collate "C" primary key,
    producer_id bigint not null unique,
    epoch integer not null,
    state smallint not null,
    timeout_ms bigint not null,
    last_producer_id bigint not null,
    last_epoch integer not null,
    started_ms bigint not null,
    changed_ms bigint not null,
    partitions bigint[] not null,
    consumer_groups text[] not null,
    version bigint not null
) with (fillfactor = 50);
create index transactional_id_ongoing on bearlake.transactional_id (name) where started_ms >= 0;

-- Changed only while the partition's group is locked, as a commit locks it.
create table bearlake.open_transaction (
    partition bigint not null,
    producer_id bigint not null,
    first_offset bigint not null,
    primary key (partition, producer_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index open_transaction_producer on bearlake.open_transaction (producer_id);

create table bearlake.aborted_transaction (
    partition bigint not null,
    marker_offset bigint not null,
    producer_id bigint not null,
    first_offset bigint not null,
    primary key (partition, marker_offset)
);

-- Offsets of groups that become those of group_offset when the producer's transaction commits. name: of the group.
create table bearlake.pending_offset (
    producer_id bigint not null,
    name text collate "C" not null,
    partition bigint not null,
    committed_offset bigint not null,
    leader_epoch integer not null,
    metadata text not null,
    primary key (producer_id, name, partition)
) with (fillfactor = 60);
create index pending_offset_group on bearlake.pending_offset (name, partition);

select bearlake.fence_table(t)
  from unnest(array['transactional_id', 'open_transaction', 'aborted_transaction', 'pending_offset']) t;
