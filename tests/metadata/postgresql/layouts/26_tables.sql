-- The tables of layout 26, as pg_dump has them, one statement each. Upgrade tests make a store of that layout from it; it never changes.

CREATE TYPE bearlake.move AS (p bigint, s bigint, e bigint, f integer, l integer, turn integer, start bigint);
CREATE TYPE bearlake.producer_state AS (producer_epoch bigint, batches bigint[], is_known boolean, is_changed boolean);
CREATE TABLE bearlake.stream ( number bigint NOT NULL, name text NOT NULL COLLATE pg_catalog."C", id uuid NOT NULL, partition_count
    integer NOT NULL, configs jsonb NOT NULL, created_ms bigint NOT NULL, deleted_ms bigint, version bigint DEFAULT 0 NOT NULL,
    is_terminated boolean DEFAULT false NOT NULL, former_producer_id bigint DEFAULT '-1'::integer NOT NULL );
CREATE TABLE bearlake.task ( id bigint NOT NULL, kind smallint NOT NULL, state smallint DEFAULT 1 NOT NULL, stream_number bigint NOT NULL,
    partitions bigint[] NOT NULL, starts bigint[] NOT NULL, ends bigint[] NOT NULL, inputs text[] NOT NULL, size_bytes bigint NOT NULL,
    record_count bigint NOT NULL, oldest_ms bigint NOT NULL, epoch bigint DEFAULT 0 NOT NULL, is_held boolean DEFAULT false NOT NULL,
    node_id integer, server_epoch bigint, attempt_count integer DEFAULT 0 NOT NULL, not_before_ms bigint DEFAULT 0 NOT NULL, error text
    DEFAULT ''::text NOT NULL, claim_number bigint DEFAULT 0 NOT NULL ) WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02');
CREATE TABLE bearlake.compaction_group ( group_key bigint NOT NULL, offsets bigint[] NOT NULL, sizes bigint[] NOT NULL ) WITH
    (fillfactor='50', toast_tuple_target='8160');
CREATE TABLE bearlake.partition_group ( group_key bigint NOT NULL, starts bigint[] NOT NULL, ends bigint[] NOT NULL, sizes bigint[] NOT
    NULL, sizes_before bigint[] NOT NULL, is_terminated boolean DEFAULT false NOT NULL ) WITH (fillfactor='40', toast_tuple_target='8160',
    autovacuum_vacuum_scale_factor='0.02');
CREATE TABLE bearlake.server ( node_id integer NOT NULL, name text NOT NULL COLLATE pg_catalog."C", epoch bigint NOT NULL, zone text,
    endpoints jsonb NOT NULL, version text NOT NULL, timeout_ms bigint NOT NULL, heartbeat_ms bigint, is_draining boolean DEFAULT false NOT NULL,
    has_left boolean DEFAULT false NOT NULL, heartbeat_count bigint DEFAULT 0 NOT NULL, lapse_count bigint DEFAULT 0 NOT NULL, has_lapsed boolean
    DEFAULT false NOT NULL ) WITH (fillfactor='50');
ALTER TABLE bearlake.server DROP COLUMN heartbeat_ms; -- an earlier layout had it
CREATE TABLE bearlake.task_result ( task_id bigint NOT NULL, epoch bigint NOT NULL, result bytea NOT NULL );
CREATE TABLE bearlake.subscription_cursor ( partition bigint NOT NULL, name text NOT NULL COLLATE pg_catalog."C", mark_delete bigint NOT
    NULL, acknowledged bytea NOT NULL, properties text NOT NULL, created_ms bigint NOT NULL, revision bigint NOT NULL, generation bigint
    DEFAULT 0 NOT NULL ) WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02');
ALTER TABLE bearlake.subscription_cursor ALTER COLUMN acknowledged SET STORAGE EXTERNAL;
CREATE SEQUENCE bearlake.claim_numbers START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
CREATE TABLE bearlake.cluster ( id text NOT NULL, producer_id_next bigint DEFAULT 0 NOT NULL, producer_id_expired bigint DEFAULT
    '-1'::integer NOT NULL, position_floor bigint DEFAULT 0 NOT NULL, named_floor bigint DEFAULT 0 NOT NULL );
CREATE TABLE bearlake.consumer_group ( name text NOT NULL COLLATE pg_catalog."C", protocol_type text NOT NULL, state bytea NOT NULL );
CREATE TABLE bearlake.data_file ( number bigint NOT NULL, stream_number bigint NOT NULL, swap_position bigint NOT NULL, key text NOT NULL
    COLLATE pg_catalog."C", partitions bigint[] NOT NULL, base_offsets bigint[] NOT NULL, record_counts bigint[] NOT NULL, positions
    bigint[] NOT NULL, lengths bigint[] NOT NULL, timestamps bigint[] NOT NULL ) WITH (toast_tuple_target='8160');
CREATE TABLE bearlake.group_offset ( name text NOT NULL COLLATE pg_catalog."C", partition bigint NOT NULL, committed_offset bigint NOT
    NULL, leader_epoch integer NOT NULL, metadata text NOT NULL, committed_ms bigint NOT NULL ) WITH (fillfactor='60');
CREATE TABLE bearlake.index_page ( partition bigint NOT NULL, base_offset bigint NOT NULL, end_offset bigint NOT NULL, max_timestamp
    bigint NOT NULL, size_bytes bigint NOT NULL, base_offsets bigint[] NOT NULL, record_counts bigint[] NOT NULL, positions bigint[] NOT
    NULL, lengths bigint[] NOT NULL, timestamps bigint[] NOT NULL, objects bigint[] NOT NULL ) WITH (toast_tuple_target='8160');
CREATE TABLE bearlake.lease ( name text NOT NULL COLLATE pg_catalog."C", epoch bigint NOT NULL, node_id integer, server_epoch bigint );
CREATE TABLE bearlake.log ( "position" bigint NOT NULL, kind smallint NOT NULL, object_key text COLLATE pg_catalog."C", object_size
    bigint, partitions bigint[], base_offsets bigint[], record_counts bigint[], positions bigint[], lengths bigint[], timestamps bigint[],
    partition bigint, start_offset bigint, stream_number bigint ) WITH (toast_tuple_target='8160');
ALTER TABLE bearlake.log ALTER COLUMN partitions SET STORAGE EXTERNAL;
ALTER TABLE bearlake.log ALTER COLUMN base_offsets SET STORAGE EXTERNAL;
ALTER TABLE bearlake.log ALTER COLUMN record_counts SET STORAGE EXTERNAL;
ALTER TABLE bearlake.log ALTER COLUMN positions SET STORAGE EXTERNAL;
ALTER TABLE bearlake.log ALTER COLUMN lengths SET STORAGE EXTERNAL;
ALTER TABLE bearlake.log ALTER COLUMN timestamps SET STORAGE EXTERNAL;
CREATE TABLE bearlake.log_head ( "position" bigint NOT NULL, token_floor text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C" ) WITH
    (fillfactor='10');
CREATE TABLE bearlake.log_tail ( rolled bigint NOT NULL, truncated bigint NOT NULL ) WITH (fillfactor='10');
CREATE TABLE bearlake.migration ( version integer NOT NULL, name text NOT NULL, applied_at timestamp with time zone NOT NULL );
CREATE TABLE bearlake.object ( key text NOT NULL COLLATE pg_catalog."C", number bigint NOT NULL, size bigint NOT NULL, committed_ms bigint
    NOT NULL, slice_count integer DEFAULT 0 NOT NULL, outcomes bigint[], kind smallint DEFAULT 0 NOT NULL, stream_number bigint DEFAULT 0
    NOT NULL, swap_position bigint, unused_ms bigint, deleted_ms bigint ) WITH (toast_tuple_target='8160');
ALTER TABLE bearlake.object ALTER COLUMN outcomes SET STORAGE EXTERNAL;
CREATE SEQUENCE bearlake.object_numbers START WITH -2 INCREMENT BY -1 MINVALUE -9223372036854775807 MAXVALUE -2 CACHE 1;
CREATE TABLE bearlake.partition_epoch ( partition bigint NOT NULL, epoch bigint NOT NULL, deletion_count bigint DEFAULT 0 NOT NULL,
    is_exclusive boolean DEFAULT false NOT NULL );
CREATE TABLE bearlake.producer ( partition bigint NOT NULL, producer_id bigint NOT NULL, producer_epoch bigint NOT NULL, batches bigint[]
    NOT NULL, updated_ms bigint NOT NULL, updated_hour integer NOT NULL ) WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02');
CREATE TABLE bearlake.producer_name ( partition bigint NOT NULL, name text NOT NULL COLLATE pg_catalog."C", producer_id bigint NOT NULL,
    asked_ms bigint NOT NULL, floor bigint DEFAULT 0 NOT NULL );
CREATE TABLE bearlake.schema_context ( context text NOT NULL COLLATE pg_catalog."C", last_id integer NOT NULL );
CREATE TABLE bearlake.schema_reference ( context text NOT NULL COLLATE pg_catalog."C", subject text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL, referrer_context text NOT NULL COLLATE pg_catalog."C", referrer_id integer NOT NULL );
CREATE TABLE bearlake.schema_registry ( only_row boolean DEFAULT true NOT NULL, CONSTRAINT schema_registry_only_row_check CHECK (only_row)
    );
CREATE TABLE bearlake.schema_row ( context text NOT NULL COLLATE pg_catalog."C", id integer NOT NULL, fingerprint bytea NOT NULL, body
    bytea NOT NULL, content text NOT NULL );
CREATE TABLE bearlake.schema_subject ( context text NOT NULL COLLATE pg_catalog."C", subject text NOT NULL COLLATE pg_catalog."C",
    revision bigint NOT NULL, config text, mode text );
CREATE TABLE bearlake.schema_version ( context text NOT NULL COLLATE pg_catalog."C", subject text NOT NULL COLLATE pg_catalog."C", version
    integer NOT NULL, schema_id integer NOT NULL, is_deleted boolean NOT NULL );
CREATE TABLE bearlake.session ( id bigint NOT NULL, pid integer NOT NULL, started_at timestamp with time zone NOT NULL ) WITH
    (fillfactor='50');
ALTER TABLE bearlake.session ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY ( SEQUENCE NAME bearlake.session_id_seq START WITH 1
    INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1 );
CREATE TABLE bearlake.stream_commits ( stream_number bigint NOT NULL, commit_count bigint NOT NULL, committed_ms bigint NOT NULL ) WITH
    (fillfactor='50');
CREATE TABLE bearlake.stream_default ( name text NOT NULL COLLATE pg_catalog."C", configs text NOT NULL, version bigint NOT NULL );
ALTER TABLE bearlake.stream ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY ( SEQUENCE NAME bearlake.stream_number_seq START WITH 1
    INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1 );
CREATE TABLE bearlake.sweep ( "position" bigint NOT NULL, partition_first bigint NOT NULL, partition_last bigint NOT NULL, end_offset
    bigint );
CREATE TABLE bearlake.task_closed ( id bigint NOT NULL, epoch bigint NOT NULL, "position" bigint NOT NULL, closed_ms bigint NOT NULL );
ALTER TABLE bearlake.task ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY ( SEQUENCE NAME bearlake.task_id_seq START WITH 1 INCREMENT BY
    1 NO MINVALUE NO MAXVALUE CACHE 1 );
CREATE TABLE bearlake.task_input ( key text NOT NULL COLLATE pg_catalog."C", task_id bigint NOT NULL );
CREATE TABLE bearlake.task_object ( key text NOT NULL COLLATE pg_catalog."C", task_id bigint, forbidden_at bigint, CONSTRAINT
    task_object_check CHECK (((task_id IS NULL) <> (forbidden_at IS NULL))) );
CREATE TABLE bearlake.task_partition ( partition bigint NOT NULL, task_id bigint NOT NULL );
ALTER TABLE bearlake.compaction_group ADD CONSTRAINT compaction_group_pkey PRIMARY KEY (group_key);
ALTER TABLE bearlake.consumer_group ADD CONSTRAINT consumer_group_pkey PRIMARY KEY (name);
ALTER TABLE bearlake.data_file ADD CONSTRAINT data_file_pkey PRIMARY KEY (number);
ALTER TABLE bearlake.group_offset ADD CONSTRAINT group_offset_pkey PRIMARY KEY (name, partition);
ALTER TABLE bearlake.index_page ADD CONSTRAINT index_page_pkey PRIMARY KEY (partition, base_offset) INCLUDE (end_offset, max_timestamp);
ALTER TABLE bearlake.lease ADD CONSTRAINT lease_pkey PRIMARY KEY (name);
ALTER TABLE bearlake.log ADD CONSTRAINT log_pkey PRIMARY KEY ("position");
ALTER TABLE bearlake.migration ADD CONSTRAINT migration_pkey PRIMARY KEY (version);
ALTER TABLE bearlake.object ADD CONSTRAINT object_pkey PRIMARY KEY (key);
ALTER TABLE bearlake.partition_epoch ADD CONSTRAINT partition_epoch_pkey PRIMARY KEY (partition);
ALTER TABLE bearlake.partition_group ADD CONSTRAINT partition_group_pkey PRIMARY KEY (group_key);
ALTER TABLE bearlake.producer_name ADD CONSTRAINT producer_name_pkey PRIMARY KEY (partition, name);
ALTER TABLE bearlake.producer ADD CONSTRAINT producer_pkey PRIMARY KEY (partition, producer_id);
ALTER TABLE bearlake.schema_context ADD CONSTRAINT schema_context_pkey PRIMARY KEY (context);
ALTER TABLE bearlake.schema_reference ADD CONSTRAINT schema_reference_pkey PRIMARY KEY (context, subject, version, referrer_context,
    referrer_id);
ALTER TABLE bearlake.schema_registry ADD CONSTRAINT schema_registry_pkey PRIMARY KEY (only_row);
ALTER TABLE bearlake.schema_row ADD CONSTRAINT schema_row_pkey PRIMARY KEY (context, id);
ALTER TABLE bearlake.schema_subject ADD CONSTRAINT schema_subject_pkey PRIMARY KEY (context, subject);
ALTER TABLE bearlake.schema_version ADD CONSTRAINT schema_version_pkey PRIMARY KEY (context, subject, version);
ALTER TABLE bearlake.server ADD CONSTRAINT server_name_key UNIQUE (name);
ALTER TABLE bearlake.server ADD CONSTRAINT server_pkey PRIMARY KEY (node_id);
ALTER TABLE bearlake.session ADD CONSTRAINT session_pkey PRIMARY KEY (id);
ALTER TABLE bearlake.stream_commits ADD CONSTRAINT stream_commits_pkey PRIMARY KEY (stream_number);
ALTER TABLE bearlake.stream_default ADD CONSTRAINT stream_default_pkey PRIMARY KEY (name);
ALTER TABLE bearlake.stream ADD CONSTRAINT stream_id_key UNIQUE (id);
ALTER TABLE bearlake.stream ADD CONSTRAINT stream_pkey PRIMARY KEY (number);
ALTER TABLE bearlake.subscription_cursor ADD CONSTRAINT subscription_cursor_pkey PRIMARY KEY (partition, name);
ALTER TABLE bearlake.sweep ADD CONSTRAINT sweep_pkey PRIMARY KEY ("position");
ALTER TABLE bearlake.task_closed ADD CONSTRAINT task_closed_pkey PRIMARY KEY (id);
ALTER TABLE bearlake.task_input ADD CONSTRAINT task_input_pkey PRIMARY KEY (key);
ALTER TABLE bearlake.task_object ADD CONSTRAINT task_object_pkey PRIMARY KEY (key);
ALTER TABLE bearlake.task_partition ADD CONSTRAINT task_partition_pkey PRIMARY KEY (partition);
ALTER TABLE bearlake.task ADD CONSTRAINT task_pkey PRIMARY KEY (id);
ALTER TABLE bearlake.task_result ADD CONSTRAINT task_result_pkey PRIMARY KEY (task_id, epoch);
CREATE UNIQUE INDEX cluster_is_one ON bearlake.cluster USING btree ((true));
CREATE INDEX data_file_stream ON bearlake.data_file USING btree (stream_number, swap_position, key);
CREATE INDEX group_offset_partition ON bearlake.group_offset USING btree (partition);
CREATE INDEX object_answerable ON bearlake.object USING btree (committed_ms) WHERE (outcomes IS NOT NULL);
CREATE INDEX object_deleted ON bearlake.object USING btree (deleted_ms) WHERE (deleted_ms IS NOT NULL);
CREATE INDEX object_forbidden ON bearlake.object USING btree (committed_ms) WHERE (number = '-1'::integer);
CREATE UNIQUE INDEX object_number ON bearlake.object USING btree (number) WHERE (number <> '-1'::integer);
CREATE INDEX object_unused ON bearlake.object USING btree (kind, key) WHERE ((unused_ms IS NOT NULL) AND (deleted_ms IS NULL));
CREATE INDEX producer_name_asked ON bearlake.producer_name USING btree (asked_ms);
CREATE UNIQUE INDEX producer_name_id ON bearlake.producer_name USING btree (partition, producer_id);
CREATE INDEX producer_updated ON bearlake.producer USING btree (updated_hour);
CREATE INDEX schema_row_body ON bearlake.schema_row USING btree (context, body, id);
CREATE INDEX schema_row_fingerprint ON bearlake.schema_row USING btree (fingerprint);
CREATE INDEX schema_version_schema ON bearlake.schema_version USING btree (context, schema_id);
CREATE UNIQUE INDEX stream_active_name ON bearlake.stream USING btree (name) WHERE (deleted_ms IS NULL);
CREATE INDEX stream_name ON bearlake.stream USING btree (name, number);
CREATE INDEX task_closed_ms ON bearlake.task_closed USING btree (closed_ms);
CREATE INDEX task_object_forbidden ON bearlake.task_object USING btree (forbidden_at) WHERE (forbidden_at IS NOT NULL);
CREATE INDEX task_object_task ON bearlake.task_object USING btree (task_id) WHERE (task_id IS NOT NULL);
CREATE INDEX task_open ON bearlake.task USING btree (id) WHERE (state = 1);
CREATE INDEX task_stream ON bearlake.task USING btree (stream_number, id);

INSERT INTO bearlake.log_head VALUES (0);
INSERT INTO bearlake.log_tail VALUES (0, 0);
INSERT INTO bearlake.schema_registry VALUES (true);
INSERT INTO bearlake.migration SELECT version, 'layout 26', now() FROM generate_series(1, 26) version;
