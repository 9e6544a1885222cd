-- The functions of layout 26, with the view and the triggers that need them. An upgrade has to replace or drop each of these signatures.
-- Upgrade tests put a body that only raises an error in the place of `:stub`. This file never changes.

create function bearlake.now_ms() returns bigint language plpgsql as :stub;
CREATE VIEW bearlake.queued_task AS SELECT t.id, t.kind, t.state, t.stream_number, t.partitions, t.starts, t.ends, t.inputs, t.size_bytes,
    t.record_count, GREATEST((0)::bigint, (n.now - t.oldest_ms)) AS age_ms, t.epoch, s.node_id, s.epoch AS server_epoch, t.attempt_count,
    GREATEST((0)::bigint, (t.not_before_ms - n.now)) AS wait_ms, t.error, ( SELECT array_agg(r.epoch ORDER BY r.epoch) AS array_agg FROM
    bearlake.task_result r WHERE (r.task_id = t.id)) AS result_epochs, ( SELECT array_agg(r.result ORDER BY r.epoch) AS array_agg FROM
    bearlake.task_result r WHERE (r.task_id = t.id)) AS results FROM ((bearlake.task t CROSS JOIN ( SELECT bearlake.now_ms() AS now) n)
    LEFT JOIN bearlake.server s ON ((t.is_held AND (s.node_id = t.node_id) AND (s.epoch = t.server_epoch) AND (NOT s.has_left) AND (NOT
    s.has_lapsed))));
create function bearlake.acquire_lease(p_name text, p_node_id integer, p_epoch bigint) returns bigint language plpgsql as :stub;
create function bearlake.add_partitions(p_name text, p_partition_count integer) returns SETOF bearlake.stream language plpgsql as :stub;
create function bearlake.advance_compacted(p_task bearlake.task, p_moves bearlake.move[], p_partitions bigint[], p_sizes bigint[]) returns
    void language plpgsql as :stub;
create function bearlake.alter_stream(p_name text, p_set jsonb, p_unset text[]) returns SETOF bearlake.stream language plpgsql as :stub;
create function bearlake.append_pages(p_from bigint, p_upto bigint, p_page_slices integer) returns void language plpgsql as :stub;
create function bearlake.backlog_of(p_group bearlake.partition_group, p_compacted bearlake.compaction_group) returns TABLE(partition
    bigint, compacted bigint, end_offset bigint, size bigint) language plpgsql as :stub;
create function bearlake.beat_server(p_node_id integer, p_epoch bigint) returns bigint language plpgsql as :stub;
create function bearlake.begin_session() returns bigint language plpgsql as :stub;
create function bearlake.begin_session(p_id bigint) returns void language plpgsql as :stub;
create function bearlake.cancel_task(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint) returns void language
    plpgsql as :stub;
create function bearlake.check_lease(p_name text, p_epoch bigint, p_node_id integer, p_server_epoch bigint) returns void language plpgsql
    as :stub;
create function bearlake.check_server(p_node_id integer, p_epoch bigint) returns void language plpgsql as :stub;
create function bearlake.check_session() returns trigger language plpgsql as :stub;
create function bearlake.check_swap_keys(p_task bigint, p_keys text[]) returns void language plpgsql as :stub;
create function bearlake.claim_chosen_tasks(p_node_id integer, p_server_epoch bigint, p_limit integer, p_bytes_max bigint, p_streams
    text[], p_first text[], p_head_starts bigint[]) returns SETOF bearlake.queued_task language plpgsql as :stub;
create function bearlake.claim_tasks(p_node_id integer, p_server_epoch bigint, p_limit integer, p_bytes_max bigint) returns SETOF
    bearlake.queued_task language plpgsql as :stub;
create function bearlake.commit_group_offsets(p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text,
    p_partitions bigint[], p_offsets bigint[], p_leader_epochs integer[], p_metadata text[]) returns void language plpgsql as :stub;
create function bearlake.commit_object(p_token text, p_node_id integer, p_epoch bigint, p_size bigint, p_groups bigint[], p_partitions
    bigint[], p_positions bigint[], p_lengths bigint[], p_counts bigint[], p_timestamps bigint[], p_states integer[], p_epochs integer[],
    p_sequences bigint[], p_state_partitions bigint[], p_state_producers bigint[], OUT log_position bigint, OUT outcomes bigint[]) returns
    record language plpgsql as :stub;
create function bearlake.commit_object(p_token text, p_node_id integer, p_epoch bigint, p_size bigint, p_groups bigint[], p_partitions
    bigint[], p_positions bigint[], p_lengths bigint[], p_counts bigint[], p_timestamps bigint[], p_states integer[], p_epochs bigint[],
    p_sequences bigint[], p_state_partitions bigint[], p_state_producers bigint[], p_named integer[], p_afters bigint[], p_expected
    bigint[], OUT log_position bigint, OUT outcomes bigint[]) returns record language plpgsql as :stub;
create function bearlake.commit_object(p_token text, p_node_id integer, p_epoch bigint, p_size bigint, p_groups bigint[], p_partitions
    bigint[], p_positions bigint[], p_lengths bigint[], p_counts bigint[], p_timestamps bigint[], p_states integer[], p_epochs bigint[],
    p_sequences bigint[], p_state_partitions bigint[], p_state_producers bigint[], p_named integer[], p_afters bigint[], p_expected
    bigint[], p_seen bigint, OUT log_position bigint, OUT outcomes bigint[]) returns record language plpgsql as :stub;
create function bearlake.commit_times(p_partitions bigint[], p_offsets bigint[]) returns TABLE(partition bigint, committed_ms bigint)
    language plpgsql as :stub;
create function bearlake.count_commit() returns trigger language plpgsql as :stub;
create function bearlake.create_cursor(p_partition bigint, p_name text, p_mark_delete bigint, p_properties text) returns SETOF
    bearlake.subscription_cursor language plpgsql as :stub;
create function bearlake.create_cursor_after(p_partition bigint, p_name text, p_mark_delete bigint, p_properties text, p_after bigint)
    returns SETOF bearlake.subscription_cursor language plpgsql as :stub;
create function bearlake.create_cursor_as_of(p_partition bigint, p_name text, p_mark_delete bigint, p_properties text, p_after bigint)
    returns SETOF bearlake.subscription_cursor language plpgsql as :stub;
create function bearlake.create_stream(p_name text, p_id uuid, p_partition_count integer, p_configs jsonb) returns SETOF bearlake.stream
    language plpgsql as :stub;
create function bearlake.create_stream_after(p_name text, p_after bigint, p_id uuid, p_partition_count integer, p_configs jsonb) returns
    SETOF bearlake.stream language plpgsql as :stub;
create function bearlake.cursors_of(p_partition bigint) returns SETOF bearlake.subscription_cursor language plpgsql as :stub;
create function bearlake.cut_page(p_partition bigint, p_start bigint) returns bigint[] language plpgsql as :stub;
create function bearlake.delete_cursors(p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_partition bigint,
    p_names text[]) returns void language plpgsql as :stub;
create function bearlake.delete_cursors_as_of(p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_partition bigint,
    p_names text[], p_generations bigint[], p_after bigint) returns void language plpgsql as :stub;
create function bearlake.delete_group(p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text) returns void
    language plpgsql as :stub;
create function bearlake.delete_group_offsets(p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text,
    p_partitions bigint[]) returns void language plpgsql as :stub;
create function bearlake.delete_objects(p_keys text[]) returns void language plpgsql as :stub;
create function bearlake.delete_schema_versions(p_context text, p_subject text, p_revision bigint, p_versions integer[], p_is_permanent
    boolean) returns void language plpgsql as :stub;
create function bearlake.delete_stream(p_name text) returns SETOF bearlake.stream language plpgsql as :stub;
create function bearlake.drop_task(p_task bearlake.task) returns boolean language plpgsql as :stub;
create function bearlake.end_sessions(p_ids bigint[]) returns void language plpgsql as :stub;
create function bearlake.expire_producers(p_idle_ms bigint, p_limit integer) returns integer language plpgsql as :stub;
create function bearlake.fail_task(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_error text, p_retry_after_ms
    bigint, p_is_aside boolean) returns void language plpgsql as :stub;
create function bearlake.fence_table(p_table text) returns void language plpgsql as :stub;
create function bearlake.forbid_objects(p_keys text[]) returns SETOF text language plpgsql as :stub;
create function bearlake.forbid_tokens(p_tokens text[]) returns SETOF text language plpgsql as :stub;
create function bearlake.forget_forbidden_objects() returns void language plpgsql as :stub;
create function bearlake.forget_tokens(p_older_ms bigint, p_forbidden_ms bigint, p_limit integer) returns void language plpgsql as :stub;
create function bearlake.give_schema_id(p_context text, p_fingerprint bytea, p_body bytea, p_content text, p_id integer, p_contexts
    text[], p_subjects text[], p_versions integer[]) returns integer language plpgsql as :stub;
create function bearlake.grow_groups(p_number bigint, p_from integer, p_to integer) returns void language plpgsql as :stub;
create function bearlake.hold_stream(p_number bigint, p_version bigint) returns text language plpgsql as :stub;
create function bearlake.hold_task(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint) returns bearlake.task language
    plpgsql as :stub;
create function bearlake.insert_objects(p_keys text[], p_numbers bigint[], p_sizes bigint[], p_kinds integer[], p_placed bigint[],
    p_stream_number bigint, p_position bigint, p_oldest_ms bigint) returns void language plpgsql as :stub;
create function bearlake.is_due(p_kind integer, p_stream bigint, p_partitions bigint[], p_starts bigint[], p_ends bigint[], p_inputs
    text[]) returns boolean language plpgsql as :stub;
create function bearlake.is_live(p_node_id integer, p_epoch bigint) returns boolean language plpgsql as :stub;
create function bearlake.is_running(p_pid integer, p_started_at timestamp with time zone) returns boolean language plpgsql as :stub;
create function bearlake.is_unrolled(p_moves bearlake.move[]) returns boolean language plpgsql as :stub;
create function bearlake.judge_named(p_state bearlake.producer_state, p_partition_epoch bigint, p_is_in_step boolean, p_epoch bigint,
    p_sequence bigint, p_after bigint, p_base bigint, OUT kind bigint, OUT answer bigint, OUT batches bigint[]) returns record language
    plpgsql as :stub;
create function bearlake.lapse_server(p_node_id integer, p_epoch bigint, p_heartbeat_count bigint) returns boolean language plpgsql as
    :stub;
create function bearlake.leave_server(p_node_id integer, p_epoch bigint) returns void language plpgsql as :stub;
create function bearlake.list_groups(p_after text, p_limit integer) returns TABLE(name text, protocol_type text) language plpgsql as
    :stub;
create function bearlake.locate(p_partition bigint, p_offset bigint, p_timestamp bigint, p_limit integer) returns TABLE(base_offset
    bigint, record_count bigint, at bigint, length bigint, max_timestamp bigint, key text, size bigint, kind smallint) language plpgsql as
    :stub;
create function bearlake.lock_schemas(p_context text, p_subject text, p_revision bigint) returns void language plpgsql as :stub;
create function bearlake.max_timestamp(p_partition bigint) returns bigint language plpgsql as :stub;
create function bearlake.move_start(p_partition bigint, p_start bigint) returns void language plpgsql as :stub;
create function bearlake.named_producer(p_partition bigint, p_name text, p_asked_step_ms bigint, OUT producer_id bigint, OUT
    producer_epoch bigint, OUT last_sequence bigint, OUT partition_epoch bigint, OUT floor bigint) returns record language plpgsql as
    :stub;
create function bearlake.next_position() returns bigint language plpgsql as :stub;
create function bearlake.note_former_producers() returns trigger language plpgsql as :stub;
create function bearlake.number_claim() returns trigger language plpgsql as :stub;
create function bearlake.offer_tasks(p_lease text, p_lease_epoch bigint, p_node_id integer, p_server_epoch bigint, p_kinds integer[],
    p_streams bigint[], p_sizes bigint[], p_counts bigint[], p_ages bigint[], p_range_ends integer[], p_input_ends integer[], p_partitions
    bigint[], p_starts bigint[], p_ends bigint[], p_inputs text[]) returns SETOF bearlake.queued_task language plpgsql as :stub;
create function bearlake.prepare_task(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_result bytea, p_keys
    text[]) returns void language plpgsql as :stub;
create function bearlake.raise_partition_epoch(p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_partition bigint)
    returns bigint language plpgsql as :stub;
create function bearlake.register_schema(p_context text, p_subject text, p_revision bigint, p_fingerprint bytea, p_body bytea, p_content
    text, p_id integer, p_version integer, p_contexts text[], p_subjects text[], p_versions integer[]) returns TABLE(version integer,
    schema_id integer) language plpgsql as :stub;
create function bearlake.register_server(p_name text, p_zone text, p_endpoints jsonb, p_version text, p_timeout_ms bigint, OUT node_id
    integer, OUT epoch bigint) returns record language plpgsql as :stub;
create function bearlake.register_server_after(p_name text, p_after bigint, p_zone text, p_endpoints jsonb, p_version text, p_timeout_ms
    bigint, OUT node_id integer, OUT epoch bigint) returns record language plpgsql as :stub;
create function bearlake.release_objects(p_numbers bigint[]) returns void language plpgsql as :stub;
create function bearlake.release_tasks(p_tasks bigint[], p_epochs bigint[], p_node_ids integer[], p_server_epochs bigint[], p_wait_ms
    bigint) returns void language plpgsql as :stub;
create function bearlake.remove_task(p_task bearlake.task) returns void language plpgsql as :stub;
create function bearlake.replace_rows(p_moves bearlake.move[], p_page_slices integer, p_kind smallint, p_bases bigint[], p_counts
    bigint[], p_positions bigint[], p_lengths bigint[], p_timestamps bigint[], p_numbers bigint[], OUT partitions bigint[], OUT old_sizes
    bigint[], OUT placed bigint[], OUT oldest_ms bigint) returns record language plpgsql as :stub;
create function bearlake.retain(p_partitions bigint[], p_before_ms bigint, p_size_max bigint) returns TABLE(partition bigint, start_offset
    bigint, end_offset bigint) language plpgsql as :stub;
create function bearlake.retain_as_of(p_number bigint, p_version bigint, p_partitions bigint[], p_before_ms bigint, p_size_max bigint)
    returns TABLE(partition bigint, start_offset bigint, end_offset bigint) language plpgsql as :stub;
create function bearlake.retained_start(p_partition bigint, p_oldest_ms bigint, p_size_max bigint) returns bigint language plpgsql as
    :stub;
create function bearlake.retry_task(p_task bigint) returns SETOF bearlake.queued_task language plpgsql as :stub;
create function bearlake.roll_forward(p_rolled bigint, p_entry_limit integer, p_slice_limit integer, p_page_slices integer) returns bigint
    language plpgsql as :stub;
create function bearlake.roll_up(p_entry_count_min bigint, p_entry_limit integer, p_slice_limit integer, p_page_slices integer) returns
    bigint language plpgsql as :stub;
create function bearlake.save_cursors(p_partitions bigint[], p_leases text[], p_epochs bigint[], p_node_ids integer[], p_server_epochs
    bigint[], p_saves integer[], p_names text[], p_marks bigint[], p_acknowledged bytea[], p_revisions bigint[], p_properties text[])
    returns SETOF bigint language plpgsql as :stub;
create function bearlake.save_cursors_as_of(p_partitions bigint[], p_leases text[], p_epochs bigint[], p_node_ids integer[],
    p_server_epochs bigint[], p_saves integer[], p_names text[], p_generations bigint[], p_marks bigint[], p_acknowledged bytea[],
    p_revisions bigint[], p_properties text[]) returns TABLE(partition bigint, name text) language plpgsql as :stub;
create function bearlake.save_group(p_lease text, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_group text, p_protocol_type
    text, p_state bytea) returns void language plpgsql as :stub;
create function bearlake.schema_referrers(p_context text, p_subject text, p_version integer) returns SETOF integer language plpgsql as
    :stub;
create function bearlake.schema_revision(p_context text, p_subject text) returns bigint language plpgsql as :stub;
create function bearlake.schema_subject_state(p_context text, p_subject text, p_body bytea) returns TABLE(kind integer, number bigint,
    schema_id integer, is_deleted boolean, a text, b text, fingerprint bytea) language plpgsql as :stub;
create function bearlake.set_schema_rule(p_context text, p_subject text, p_what text, p_value text) returns void language plpgsql as
    :stub;
create function bearlake.set_schema_rule_at(p_context text, p_subject text, p_revision bigint, p_what text, p_value text) returns void
    language plpgsql as :stub;
create function bearlake.share_partition_epoch(p_partition bigint, p_lease text) returns bigint language plpgsql as :stub;
create function bearlake.size_between(p_partition bigint, p_from bigint, p_to bigint) returns bigint language plpgsql as :stub;
create function bearlake.slices_of(p_partitions bigint[], p_starts bigint[], p_ends bigint[]) returns TABLE(partition bigint, base_offset
    bigint, record_count bigint, at bigint, length bigint, max_timestamp bigint, key text, size bigint, kind smallint) language plpgsql as
    :stub;
create function bearlake.stream_backlogs() returns TABLE(stream_number bigint, size bigint, record_count bigint, partition_count bigint,
    age_ms bigint) language plpgsql as :stub;
create function bearlake.stream_changed(p_number bigint) returns SETOF bearlake.stream language plpgsql as :stub;
create function bearlake.swap_rows(p_task bigint, p_epoch bigint, p_node_id integer, p_server_epoch bigint, p_is_final boolean, p_keys
    text[], p_object_sizes bigint[], p_kinds integer[], p_partitions bigint[], p_bases bigint[], p_counts bigint[], p_positions bigint[],
    p_lengths bigint[], p_timestamps bigint[], p_objects integer[], r_partitions bigint[], r_starts bigint[], r_ends bigint[], r_firsts
    integer[], r_lasts integer[], r_turns integer[], p_entry_limit integer, p_slice_limit integer, p_page_slices integer) returns bigint
    language plpgsql as :stub;
create function bearlake.swapped_at(p_task bigint, p_epoch bigint, p_keys text[]) returns bigint language plpgsql as :stub;
create function bearlake.sweep(p_limit integer) returns integer language plpgsql as :stub;
create function bearlake.sweep_partitions(p_first bigint, p_last bigint, p_limit integer) returns integer language plpgsql as :stub;
create function bearlake.take_turn(p_kind integer) returns void language plpgsql as :stub;
create function bearlake.terminate_stream(p_name text) returns SETOF bearlake.stream language plpgsql as :stub;
create function bearlake.token_hour(p_ms bigint) returns text language plpgsql as :stub;
create function bearlake.token_result(p_token text, OUT log_position bigint, OUT outcomes bigint[]) returns record language plpgsql as
    :stub;
create function bearlake.touch_schema_subject(p_context text, p_subject text) returns void language plpgsql as :stub;
create function bearlake.trim_partition(p_partition bigint, p_start bigint, OUT start_offset bigint, OUT end_offset bigint) returns record
    language plpgsql as :stub;
create function bearlake.trimmed_size(p_partition bigint, p_from bigint, p_to bigint, p_usage bigint) returns bigint language plpgsql as
    :stub;
create function bearlake.uncompacted(p_after bigint, p_limit integer) returns TABLE(partition bigint, compacted bigint, end_offset bigint,
    size bigint, age_ms bigint) language plpgsql as :stub;
create function bearlake.write_trims(p_partitions bigint[], p_starts bigint[]) returns void language plpgsql as :stub;

CREATE TRIGGER count_commit AFTER INSERT ON bearlake.task_closed FOR EACH ROW WHEN ((new."position" > 0)) EXECUTE FUNCTION
    bearlake.count_commit();
CREATE TRIGGER fence BEFORE DELETE OR UPDATE OR TRUNCATE ON bearlake.log FOR EACH STATEMENT EXECUTE FUNCTION bearlake.check_session();
CREATE TRIGGER fence BEFORE INSERT OR DELETE OR UPDATE OF group_key, starts, sizes_before, is_terminated OR TRUNCATE ON
    bearlake.partition_group FOR EACH STATEMENT EXECUTE FUNCTION bearlake.check_session();
CREATE TRIGGER note_former_producers BEFORE INSERT ON bearlake.stream FOR EACH ROW EXECUTE FUNCTION bearlake.note_former_producers();
CREATE TRIGGER number_claim BEFORE UPDATE OF epoch ON bearlake.task FOR EACH ROW WHEN ((new.epoch > old.epoch)) EXECUTE FUNCTION
    bearlake.number_claim();
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['cluster', 'compaction_group', 'consumer_group', 'data_file', 'group_offset', 'index_page', 'lease', 'log_head',
        'log_tail', 'object', 'partition_epoch', 'producer', 'producer_name', 'schema_context', 'schema_reference',
        'schema_registry', 'schema_row', 'schema_subject', 'schema_version', 'server', 'stream', 'stream_commits',
        'stream_default', 'subscription_cursor', 'sweep', 'task', 'task_closed', 'task_input', 'task_object',
        'task_partition', 'task_result'] LOOP
        EXECUTE format('CREATE TRIGGER fence BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON bearlake.%I FOR EACH STATEMENT'
                       ' EXECUTE FUNCTION bearlake.check_session()', name);
    END LOOP;
END $$;
