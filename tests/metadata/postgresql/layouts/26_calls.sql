-- The statements of programs of layout 26 that call functions. Their servers run on during an upgrade. It never changes.

select * from bearlake.locate($1, $2, $3, $4);
select * from bearlake.locate($1, 0, coalesce(bearlake.max_timestamp($1), 0), 1);
select * from bearlake.retain_as_of($1, $2, $3, $4, $5);
select * from bearlake.schema_referrers($1, $2, $3);
select * from bearlake.schema_subject_state($1, $2, $3);
select * from bearlake.slices_of($1, $2, $3);
select * from bearlake.stream_backlogs();
select * from bearlake.uncompacted($1, $2);
select bearlake.acquire_lease($1, $2, $3);
select bearlake.beat_server($1, $2);
select bearlake.begin_session($1::bigint);
select bearlake.cancel_task($1, $2, $3, $4);
select bearlake.commit_group_offsets($1, $2, $3, $4, $5, $6, $7, $8, $9);
select bearlake.delete_cursors_as_of($1, $2, $3, $4, $5, $6, $7, $8);
select bearlake.delete_group($1, $2, $3, $4, $5);
select bearlake.delete_group_offsets($1, $2, $3, $4, $5, $6);
select bearlake.delete_objects($1);
select bearlake.delete_schema_versions($1, $2, $3, $4, $5);
select bearlake.end_sessions($1);
select bearlake.expire_producers($1, $2);
select bearlake.fail_task($1, $2, $3, $4, $5, $6, $7);
select bearlake.forbid_objects($1);
select bearlake.forbid_tokens($1);
select bearlake.forget_tokens($1, $2, $3);
select bearlake.lapse_server($1, $2, $3);
select bearlake.leave_server($1, $2);
select bearlake.now_ms();
select bearlake.prepare_task($1, $2, $3, $4, $5, $6);
select bearlake.raise_partition_epoch($1, $2, $3, $4, $5);
select bearlake.release_tasks($1, $2, $3, $4, $5);
select bearlake.roll_up($1, $2, $3, $4);
select bearlake.save_group($1, $2, $3, $4, $5, $6, $7);
select bearlake.set_schema_rule_at($1, $2, $3, $4, $5);
select bearlake.share_partition_epoch($1, $2);
select bearlake.swap_rows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24);
select bearlake.sweep($1);
select id, kind, state, stream_number, partitions, starts, ends, inputs, size_bytes, record_count, age_ms, epoch, node_id, server_epoch,
    attempt_count, wait_ms, error from bearlake.offer_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);
select id, kind, state, stream_number, partitions, starts, ends, inputs, size_bytes, record_count, age_ms, epoch, node_id, server_epoch,
    attempt_count, wait_ms, error from bearlake.retry_task($1);
select id, kind, state, stream_number, partitions, starts, ends, inputs, size_bytes, record_count, age_ms, epoch, node_id, server_epoch,
    attempt_count, wait_ms, error, result_epochs, results from bearlake.claim_chosen_tasks($1, $2, $3, $4, $5, $6, $7);
select id, kind, state, stream_number, partitions, starts, ends, inputs, size_bytes, record_count, age_ms, epoch, node_id, server_epoch,
    attempt_count, wait_ms, error, result_epochs, results from bearlake.claim_tasks($1, $2, $3, $4);
select log_position, outcomes from bearlake.commit_object($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
    $19);
select log_position, outcomes from bearlake.token_result($1);
select name, protocol_type from bearlake.list_groups($1, $2);
select node_id, server_epoch, epoch from bearlake.lease where name = $1 and node_id is not null and bearlake.is_live(node_id,
    server_epoch);
select number, name, id, partition_count, configs, created_ms, deleted_ms, is_terminated, version from
    bearlake.add_partitions(bearlake.hold_stream($1, null), $2);
select number, name, id, partition_count, configs, created_ms, deleted_ms, is_terminated, version from
    bearlake.alter_stream(bearlake.hold_stream($1, $2), $3, $4);
select number, name, id, partition_count, configs, created_ms, deleted_ms, is_terminated, version from bearlake.create_stream_after($1,
    $2, $3, $4, $5);
select number, name, id, partition_count, configs, created_ms, deleted_ms, is_terminated, version from
    bearlake.delete_stream(bearlake.hold_stream($1, $2));
select number, name, id, partition_count, configs, created_ms, deleted_ms, is_terminated, version from
    bearlake.terminate_stream(bearlake.hold_stream($1, null));
select o.key, o.size, o.stream_number, n.now - o.unused_ms as since_ms from bearlake.object o cross join (select bearlake.now_ms() as now)
    n where o.kind = $1 and o.key > $2 and o.unused_ms is not null and o.deleted_ms is null and o.unused_ms <= n.now - $3::bigint order by
    o.key limit $4;
select partition, name from bearlake.save_cursors_as_of($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
select partition, name, mark_delete, acknowledged, properties, created_ms, revision, generation from bearlake.create_cursor_as_of($1, $2,
    $3, $4, $5);
select partition, name, mark_delete, acknowledged, properties, created_ms, revision, generation from bearlake.cursors_of($1);
select producer_id, producer_epoch, last_sequence, partition_epoch, floor from bearlake.named_producer($1, $2, $3);
select r.node_id, r.epoch, c.id from bearlake.register_server_after($1, $2, $3, $4, $5, $6) r, bearlake.cluster c;
select start_offset, end_offset from bearlake.trim_partition($1, $2);
select version, schema_id from bearlake.register_schema($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
