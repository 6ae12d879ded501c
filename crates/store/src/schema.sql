-- The tables of a store, version 7, but for those of latency.sql and backend.sql, and the views of views.sql. docs/method/store.md
-- describes them.

-- A host that an agent ran on.
CREATE TABLE host (
	host_id INTEGER PRIMARY KEY,
	name TEXT NOT NULL UNIQUE
) STRICT;

-- A run of an agent, and how much of it is stored.
CREATE TABLE run (
	run_id INTEGER PRIMARY KEY,
	host_id INTEGER NOT NULL REFERENCES host,
	run BLOB NOT NULL,           -- the random number that the agent chose
	begun_ns INTEGER NOT NULL,   -- its measurements are stored since then, as far as it is known
	last_batch INTEGER NOT NULL, -- its batches up to this one are stored, or rows of lost name them
	last_ns INTEGER NOT NULL DEFAULT 0, -- its measurements are stored until then, as far as it is known
	ended_ns INTEGER,            -- when it is known to have ended; NULL: it may go on
	UNIQUE (host_id, run)
) STRICT;

-- A flow, or one direction of it; of bytes, one direction of a TCP connection.
CREATE TABLE flow (
	flow_id INTEGER PRIMARY KEY,
	src TEXT NOT NULL,
	sport INTEGER,       -- NULL: the protocol or the key of the flow has no ports
	dst TEXT NOT NULL,
	dport INTEGER,
	proto TEXT NOT NULL, -- TCP, UDP, ICMP, ICMPv6, ESP, or a number
	id TEXT,             -- the Community ID, the same in both directions; NULL: of several, whose ports are not known
	last_ns INTEGER NOT NULL -- no row of it is later by more than five minutes; the greatest number: it has rows of captures
) STRICT;
CREATE UNIQUE INDEX flow_by_ends ON flow (src, ifnull(sport, -1), dst, ifnull(dport, -1), proto, ifnull(id, ''));
CREATE INDEX flow_by_last ON flow (last_ns);

CREATE TABLE hook (
	hook_id INTEGER PRIMARY KEY,
	name TEXT NOT NULL UNIQUE
) STRICT;

-- The time of bytes in a segment of one host during an interval.
CREATE TABLE interval (
	time_ns INTEGER NOT NULL,
	interval_ns INTEGER NOT NULL,
	host_id INTEGER NOT NULL REFERENCES host,
	flow_id INTEGER REFERENCES flow, -- NULL: all flows
	namespace TEXT, -- the network namespace of the flow's socket; NULL: the one that the agent is in
	segment TEXT NOT NULL,
	direction TEXT NOT NULL,
	part_of TEXT,
	retransmitted INTEGER NOT NULL, -- 1: bytes that TCP sent more than once
	count INTEGER NOT NULL,
	sum_ns INTEGER NOT NULL,
	mean_ns INTEGER,
	min_ns INTEGER,
	max_ns INTEGER,
	p50_ns INTEGER,
	p90_ns INTEGER,
	p95_ns INTEGER,
	p99_ns INTEGER,
	p99_9_ns INTEGER,
	histogram BLOB NOT NULL,
	hook_from_id INTEGER REFERENCES hook,
	hook_to_id INTEGER REFERENCES hook,
	missing TEXT, -- the layer that has no hook; the figures are NULL then
	time_clamped INTEGER NOT NULL -- 1: the agent reported a time that cannot be true
) STRICT;
CREATE INDEX interval_by_time ON interval (time_ns);

-- The time of bytes on a path segment during an interval, for bytes that both hosts have seen.
CREATE TABLE path (
	time_ns INTEGER NOT NULL,
	interval_ns INTEGER NOT NULL,
	tx_host_id INTEGER REFERENCES host, -- NULL: no agent there
	rx_host_id INTEGER REFERENCES host,
	flow_id INTEGER REFERENCES flow,    -- NULL: all flows
	segment TEXT NOT NULL,
	direction TEXT,                     -- NULL: between the hosts
	part_of TEXT,
	retransmitted INTEGER NOT NULL,            -- 1: bytes that TCP sent more than once
	method TEXT NOT NULL,               -- matched, or estimated
	joined TEXT,                        -- by what the flows of both hosts are one: address, or sequence
	rx_flow_id INTEGER REFERENCES flow, -- the flow as the receiver sees it; NULL: as the sender does
	count INTEGER NOT NULL,
	sum_ns INTEGER NOT NULL,
	mean_ns INTEGER,
	min_ns INTEGER,
	max_ns INTEGER,
	p50_ns INTEGER,
	p90_ns INTEGER,
	p95_ns INTEGER,
	p99_ns INTEGER,
	p99_9_ns INTEGER,
	histogram BLOB NOT NULL,
	bound_ns INTEGER,                   -- bound on the error of the clocks
	clamped INTEGER NOT NULL,           -- values below 0 within the bound, counted as 0
	doubtful INTEGER NOT NULL           -- values whose bound exceeds the one asked for
) STRICT;
CREATE INDEX path_by_time ON path (time_ns);

-- A host's clock compared with the collector's.
CREATE TABLE clock (
	time_ns INTEGER NOT NULL,
	host_id INTEGER NOT NULL REFERENCES host,
	offset_ns INTEGER NOT NULL,
	bound_ns INTEGER NOT NULL,
	drift_ppb REAL,
	drift_bound_ppb REAL,
	round_trip_ns INTEGER,
	method TEXT NOT NULL,
	stepped INTEGER NOT NULL
) STRICT;
CREATE INDEX clock_by_time ON clock (time_ns);

-- Counters since the start of an agent's run.
CREATE TABLE counter (
	time_ns INTEGER NOT NULL,
	host_id INTEGER REFERENCES host, -- NULL: counted by the collector
	name TEXT NOT NULL,
	value INTEGER NOT NULL
) STRICT;
CREATE INDEX counter_by_time ON counter (time_ns);

-- Batches that a run numbered and that are not stored.
CREATE TABLE lost (
	time_ns INTEGER NOT NULL,    -- when that was noticed
	host_id INTEGER NOT NULL REFERENCES host,
	run TEXT NOT NULL,           -- the run, in hexadecimal digits
	from_batch INTEGER NOT NULL,
	to_batch INTEGER,            -- NULL: not known
	from_ns INTEGER,             -- their measurements are of the time from here ...
	to_ns INTEGER,               -- ... to here, as far as it is known
	why TEXT NOT NULL
) STRICT;
CREATE INDEX lost_by_time ON lost (time_ns);

-- Byte traces that may still be matched, for the collector alone.
CREATE TABLE pending (
	pending_id INTEGER PRIMARY KEY,
	host_id INTEGER NOT NULL REFERENCES host,
	arrived_ns INTEGER NOT NULL,
	body BLOB NOT NULL
) STRICT;

-- The collector's progress, in one row.
CREATE TABLE progress (
	only INTEGER PRIMARY KEY CHECK (only = 1),
	boot TEXT NOT NULL,             -- the kernel's boot_id
	offset_ns INTEGER NOT NULL,     -- its time less CLOCK_MONOTONIC
	told_at_ns INTEGER NOT NULL,    -- bytes that had settled by then ...
	told_until_ns INTEGER NOT NULL  -- ... and were read before this are in path
) STRICT;
