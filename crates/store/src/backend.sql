-- What the backends of a balancer did, which version 7 has added.

-- A backend in an interval of the balancer's control loop.
CREATE TABLE backend (
	time_ns INTEGER NOT NULL,
	interval_ns INTEGER NOT NULL,
	host_id INTEGER NOT NULL REFERENCES host,
	vip TEXT,                        -- NULL: of no VIP any more, with connections that are still open
	backend TEXT NOT NULL,
	address TEXT NOT NULL,
	state TEXT NOT NULL,             -- at the end of the interval
	why TEXT NOT NULL,               -- why it is in this state, or has its weight
	weight REAL NOT NULL,
	share REAL NOT NULL,             -- of new connections, from 0 to 1
	active INTEGER NOT NULL,
	tracked INTEGER,
	pending INTEGER NOT NULL,        -- requests that waited for an answer at the end of the interval
	pending_oldest_ns INTEGER,       -- NULL: none did
	connections INTEGER,             -- new ones in the interval; NULL: the balancer had just started, as for the next two
	packets INTEGER,
	bytes INTEGER,
	count INTEGER,                   -- of the response latency; NULL: there was none, as for the rest
	mean_ns INTEGER,
	p50_ns INTEGER,
	p90_ns INTEGER,
	p99_ns INTEGER
) STRICT;
CREATE INDEX backend_by_time ON backend (time_ns);
