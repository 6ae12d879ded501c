-- retain.sql for the tables of cluster.sql and of cluster-downsample.sql. Change the times as you like, and run it again.
--
--     clickhouse-client --multiquery < cluster-retain.sql
--
-- A test of dwell makes this file of retain.sql.

ALTER TABLE dwell.intervals_local ON CLUSTER dwell MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 7 DAY;
ALTER TABLE dwell.paths_local ON CLUSTER dwell MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 7 DAY;
ALTER TABLE dwell.clock_local ON CLUSTER dwell MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 90 DAY;
ALTER TABLE dwell.counter_local ON CLUSTER dwell MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 90 DAY;
ALTER TABLE dwell.lost_local ON CLUSTER dwell MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 2 YEAR;
ALTER TABLE dwell.gray_local ON CLUSTER dwell MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 2 YEAR;
ALTER TABLE dwell.intervals_5_sums_local ON CLUSTER dwell MODIFY TTL time + INTERVAL 90 DAY;
ALTER TABLE dwell.paths_5_sums_local ON CLUSTER dwell MODIFY TTL time + INTERVAL 90 DAY;
ALTER TABLE dwell.intervals_60_sums_local ON CLUSTER dwell MODIFY TTL time + INTERVAL 2 YEAR;
ALTER TABLE dwell.paths_60_sums_local ON CLUSTER dwell MODIFY TTL time + INTERVAL 2 YEAR;
