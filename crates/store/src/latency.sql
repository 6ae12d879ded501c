-- The tables of what verbs other than the collector store, which version 5 has added.

-- The names of the ends of a flow. The same ends have other names after a restart of a process.
CREATE TABLE names (
	names_id INTEGER PRIMARY KEY,
	src_host TEXT,
	src_pid INTEGER,
	src_process TEXT,
	src_unit TEXT,
	src_pod TEXT, -- NAMESPACE/NAME/CONTAINER of Kubernetes; NULL: only the UID is known, or there is no pod
	src_pod_uid TEXT,
	dst_host TEXT,
	dst_pid INTEGER,
	dst_process TEXT,
	dst_unit TEXT,
	dst_pod TEXT,
	dst_pod_uid TEXT,
	service TEXT,
	last_ns INTEGER NOT NULL -- no row with them is later by more than five minutes; the greatest number: rows of captures
) STRICT;
CREATE INDEX names_by_last ON names (last_ns);
CREATE UNIQUE INDEX names_by_all ON names (
	ifnull(src_host, ''), ifnull(src_pid, -1), ifnull(src_process, ''), ifnull(src_unit, ''), ifnull(src_pod, ''),
	ifnull(src_pod_uid, ''),
	ifnull(dst_host, ''), ifnull(dst_pid, -1), ifnull(dst_process, ''), ifnull(dst_unit, ''), ifnull(dst_pod, ''),
	ifnull(dst_pod_uid, ''), ifnull(service, '')
);

-- Latencies of a flow or of a group of flows.
CREATE TABLE latency (
	time_ns INTEGER NOT NULL,
	interval_ns INTEGER,             -- NULL: of a whole run
	host_id INTEGER REFERENCES host, -- NULL: of a capture
	type TEXT NOT NULL,              -- that of the object in JSON Lines
	what TEXT NOT NULL,              -- the key there that has these figures
	flow_id INTEGER REFERENCES flow, -- NULL: several flows
	count INTEGER,
	sum_ns INTEGER,
	mean_ns INTEGER,
	min_ns INTEGER,
	max_ns INTEGER,
	p50_ns INTEGER,
	p90_ns INTEGER,
	p95_ns INTEGER,
	p99_ns INTEGER,
	p99_9_ns INTEGER,
	histogram BLOB,                  -- NULL: there is none behind an estimate
	valid INTEGER,                   -- NULL: measured, and not estimated
	method TEXT,
	names_id INTEGER REFERENCES names,
	interface TEXT,
	tunnel TEXT,
	echo_id INTEGER,
	prefix TEXT,
	prefix_name TEXT,
	flow_key TEXT,
	key_id INTEGER,
	low_ns INTEGER,
	high_ns INTEGER,
	p99_low_ns INTEGER,
	p99_high_ns INTEGER,
	confidence REAL,
	reason TEXT
) STRICT;
CREATE INDEX latency_by_time ON latency (time_ns);
-- What is too old is found among any number of rows of captures.
CREATE INDEX latency_of_hosts ON latency (time_ns) WHERE host_id IS NOT NULL;
CREATE INDEX latency_of_captures ON latency (time_ns) WHERE host_id IS NULL;

-- What dwell why said of a target.
CREATE TABLE verdict (
	time_ns INTEGER NOT NULL,
	host_id INTEGER REFERENCES host, -- NULL: of a capture
	target TEXT NOT NULL,
	outcome TEXT NOT NULL,
	cause TEXT,
	certainty TEXT,
	sentence TEXT NOT NULL,
	observed_ns INTEGER NOT NULL,
	connections INTEGER NOT NULL,
	active_ns INTEGER NOT NULL,
	causes TEXT NOT NULL,            -- JSON, as the rest
	parts TEXT NOT NULL,
	facts TEXT NOT NULL,
	unseen TEXT NOT NULL,
	remedies TEXT NOT NULL
) STRICT;
CREATE INDEX verdict_by_time ON verdict (time_ns);

-- What was deleted, in one row.
CREATE TABLE deletion (
	only INTEGER PRIMARY KEY CHECK (only = 1),
	times INTEGER NOT NULL -- how often flows and names were: numbers that a process remembers may be gone then
) STRICT;
INSERT INTO deletion VALUES (1, 0);
