-- Gray failures of a fleet, which version 7 has added too.

-- A gray failure that begins or ends.
CREATE TABLE gray (
	time_ns INTEGER NOT NULL,
	interval_ns INTEGER NOT NULL,    -- the length of the intervals whose figures are compared
	event TEXT NOT NULL,             -- begin, or end
	reason TEXT,                     -- why it ends
	since_ns INTEGER NOT NULL,       -- when it began
	subject TEXT NOT NULL,           -- host, path or service
	host TEXT,                       -- the name of the host; NULL: it is of none, as for the next three
	tx_host TEXT,
	rx_host TEXT,
	port INTEGER,
	component TEXT NOT NULL,         -- the segment that differs, or retransmitted
	direction TEXT,
	figure TEXT,                     -- p50 or p99; NULL: a share
	value_ns INTEGER,                -- the median of the recent intervals; NULL: a share, as for the next three
	past_ns INTEGER,                 -- the median of its own past
	expected_ns INTEGER,             -- its past, changed as its peers have
	peers_ns INTEGER,                -- the median of its peers now
	value_share REAL,                -- the same as shares from 0 to 1; NULL: times
	past_share REAL,
	expected_share REAL,
	peers_share REAL,
	peers INTEGER NOT NULL,
	paths INTEGER,                   -- of a host that differs by its paths: how many do
	paths_compared INTEGER,
	chance_per_week REAL NOT NULL    -- how often chance alone makes such an event
) STRICT;
CREATE INDEX gray_by_time ON gray (time_ns);
