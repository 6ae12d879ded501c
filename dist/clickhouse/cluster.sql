-- The tables of a store on a cluster of ClickHouse servers: each shard has a replicated table NAME_local, and NAME spreads rows over
-- the shards, which is what collectors and reports use. A row that is sent again goes to the same shard, which merges the two.
--
--     clickhouse-client --multiquery < cluster.sql
--
-- Run it once, before a collector: that makes tables of one server where it finds none. The cluster has the name dwell in
-- remote_servers, and each server the macros shard and replica, as in dist/compose/clickhouse.xml. A test of dwell compares the
-- columns with those that a collector writes.

CREATE DATABASE IF NOT EXISTS dwell ON CLUSTER dwell;

CREATE TABLE IF NOT EXISTS dwell.intervals_local ON CLUSTER dwell (time_ns Int64, interval_ns UInt64, host String, src Nullable(String), sport Nullable(UInt16), dst Nullable(String), dport Nullable(UInt16), id Nullable(String), namespace Nullable(String), segment String, direction String, part_of Nullable(String), retransmitted UInt8, count UInt64, sum_ns UInt64, mean_ns Nullable(UInt64), min_ns Nullable(UInt64), max_ns Nullable(UInt64), p50_ns Nullable(UInt64), p90_ns Nullable(UInt64), p95_ns Nullable(UInt64), p99_ns Nullable(UInt64), p99_9_ns Nullable(UInt64), histogram String, hook_from Nullable(String), hook_to Nullable(String), missing Nullable(String), time_clamped UInt8, spool UInt64, row UInt64)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/dwell/intervals', '{replica}')
PARTITION BY toYYYYMM(toDateTime(intDiv(time_ns, 1000000000))) ORDER BY (time_ns, spool, row);
CREATE TABLE IF NOT EXISTS dwell.intervals ON CLUSTER dwell AS dwell.intervals_local
ENGINE = Distributed(dwell, dwell, intervals_local, cityHash64(spool, row));

CREATE TABLE IF NOT EXISTS dwell.paths_local ON CLUSTER dwell (time_ns Int64, interval_ns UInt64, tx_host Nullable(String), rx_host Nullable(String), src Nullable(String), sport Nullable(UInt16), dst Nullable(String), dport Nullable(UInt16), id Nullable(String), segment String, direction Nullable(String), part_of Nullable(String), retransmitted UInt8, method String, joined Nullable(String), rx_src Nullable(String), rx_sport Nullable(UInt16), rx_dst Nullable(String), rx_dport Nullable(UInt16), rx_id Nullable(String), count UInt64, sum_ns UInt64, mean_ns Nullable(UInt64), min_ns Nullable(UInt64), max_ns Nullable(UInt64), p50_ns Nullable(UInt64), p90_ns Nullable(UInt64), p95_ns Nullable(UInt64), p99_ns Nullable(UInt64), p99_9_ns Nullable(UInt64), histogram String, bound_ns Nullable(UInt64), clamped UInt64, doubtful UInt64, spool UInt64, row UInt64)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/dwell/paths', '{replica}')
PARTITION BY toYYYYMM(toDateTime(intDiv(time_ns, 1000000000))) ORDER BY (time_ns, spool, row);
CREATE TABLE IF NOT EXISTS dwell.paths ON CLUSTER dwell AS dwell.paths_local
ENGINE = Distributed(dwell, dwell, paths_local, cityHash64(spool, row));

CREATE TABLE IF NOT EXISTS dwell.clock_local ON CLUSTER dwell (time_ns Int64, host String, offset_ns Int64, bound_ns UInt64, drift_ppb Nullable(Float64), drift_bound_ppb Nullable(Float64), round_trip_ns Nullable(UInt64), method String, stepped UInt8, spool UInt64, row UInt64)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/dwell/clock', '{replica}')
PARTITION BY toYYYYMM(toDateTime(intDiv(time_ns, 1000000000))) ORDER BY (time_ns, spool, row);
CREATE TABLE IF NOT EXISTS dwell.clock ON CLUSTER dwell AS dwell.clock_local
ENGINE = Distributed(dwell, dwell, clock_local, cityHash64(spool, row));

CREATE TABLE IF NOT EXISTS dwell.counter_local ON CLUSTER dwell (time_ns Int64, host Nullable(String), name String, value UInt64, spool UInt64, row UInt64)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/dwell/counter', '{replica}')
PARTITION BY toYYYYMM(toDateTime(intDiv(time_ns, 1000000000))) ORDER BY (time_ns, spool, row);
CREATE TABLE IF NOT EXISTS dwell.counter ON CLUSTER dwell AS dwell.counter_local
ENGINE = Distributed(dwell, dwell, counter_local, cityHash64(spool, row));

CREATE TABLE IF NOT EXISTS dwell.lost_local ON CLUSTER dwell (time_ns Int64, host String, run String, from_batch UInt64, to_batch Nullable(UInt64), from_ns Nullable(Int64), to_ns Nullable(Int64), why String, spool UInt64, row UInt64)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/dwell/lost', '{replica}')
PARTITION BY toYYYYMM(toDateTime(intDiv(time_ns, 1000000000))) ORDER BY (time_ns, spool, row);
CREATE TABLE IF NOT EXISTS dwell.lost ON CLUSTER dwell AS dwell.lost_local
ENGINE = Distributed(dwell, dwell, lost_local, cityHash64(spool, row));

CREATE TABLE IF NOT EXISTS dwell.gray_local ON CLUSTER dwell (time_ns Int64, interval_ns UInt64, event String, reason Nullable(String), since_ns Int64, subject String, host Nullable(String), tx_host Nullable(String), rx_host Nullable(String), port Nullable(UInt16), component String, direction Nullable(String), figure Nullable(String), value_ns Nullable(UInt64), past_ns Nullable(UInt64), expected_ns Nullable(UInt64), peers_ns Nullable(UInt64), value_share Nullable(Float64), past_share Nullable(Float64), expected_share Nullable(Float64), peers_share Nullable(Float64), peers UInt32, paths Nullable(UInt32), paths_compared Nullable(UInt32), chance_per_week Float64, spool UInt64, row UInt64)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/dwell/gray', '{replica}')
PARTITION BY toYYYYMM(toDateTime(intDiv(time_ns, 1000000000))) ORDER BY (time_ns, spool, row);
CREATE TABLE IF NOT EXISTS dwell.gray ON CLUSTER dwell AS dwell.gray_local
ENGINE = Distributed(dwell, dwell, gray_local, cityHash64(spool, row));
