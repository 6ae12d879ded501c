-- The views of a store: tables with the names of hosts, flows and hooks instead of their numbers.

CREATE VIEW intervals AS
	SELECT time_ns, interval_ns, host.name AS host, src, sport, dst, dport, flow.id AS id,
		namespace, segment, direction,
		part_of, retransmitted, count, sum_ns, mean_ns, min_ns, max_ns, p50_ns, p90_ns, p95_ns, p99_ns, p99_9_ns, histogram,
		f.name AS hook_from, t.name AS hook_to, missing, time_clamped
	FROM interval JOIN host USING (host_id) LEFT JOIN flow USING (flow_id)
		LEFT JOIN hook f ON f.hook_id = hook_from_id LEFT JOIN hook t ON t.hook_id = hook_to_id;

CREATE VIEW paths AS
	SELECT time_ns, interval_ns, tx.name AS tx_host, rx.name AS rx_host,
		flow.src AS src, flow.sport AS sport, flow.dst AS dst, flow.dport AS dport, flow.id AS id,
		segment, direction, part_of, retransmitted, method, joined,
		rx_flow.src AS rx_src, rx_flow.sport AS rx_sport, rx_flow.dst AS rx_dst, rx_flow.dport AS rx_dport, rx_flow.id AS rx_id, count, sum_ns, mean_ns, min_ns, max_ns,
		p50_ns, p90_ns, p95_ns, p99_ns, p99_9_ns, histogram, bound_ns, clamped,
		doubtful
	FROM path LEFT JOIN flow USING (flow_id) LEFT JOIN flow rx_flow ON rx_flow.flow_id = rx_flow_id
		LEFT JOIN host tx ON tx.host_id = tx_host_id
		LEFT JOIN host rx ON rx.host_id = rx_host_id;

CREATE VIEW latencies AS
	SELECT time_ns, interval_ns, host.name AS host, type, what, src, sport, dst, dport, proto, flow.id AS id,
		src_host, src_pid, src_process, src_unit, src_pod, src_pod_uid,
		dst_host, dst_pid, dst_process, dst_unit, dst_pod, dst_pod_uid, service,
		interface, tunnel, echo_id, prefix, prefix_name, flow_key, key_id, method,
		count, sum_ns, mean_ns, min_ns, max_ns, p50_ns, p90_ns, p95_ns, p99_ns, p99_9_ns, histogram,
		low_ns, high_ns, p99_low_ns, p99_high_ns, confidence, valid, reason
	FROM latency LEFT JOIN host USING (host_id) LEFT JOIN flow USING (flow_id) LEFT JOIN names USING (names_id);

CREATE VIEW verdicts AS
	SELECT time_ns, host.name AS host, target, outcome, cause, certainty, sentence, observed_ns, connections, active_ns,
		causes, parts, facts, unseen, remedies
	FROM verdict LEFT JOIN host USING (host_id);

CREATE VIEW backends AS
	SELECT time_ns, interval_ns, host.name AS host, vip, backend, address, state, why, weight, share, active, tracked,
		pending, pending_oldest_ns, connections, packets, bytes, count, mean_ns, p50_ns, p90_ns, p99_ns
	FROM backend JOIN host USING (host_id);
