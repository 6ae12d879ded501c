-- How long a ClickHouse server keeps what a store has: rows for a week, 5 minutes for three months, hours for two years. Change the
-- times as you like, and run it again. Needs ClickHouse 19.6 or later; before, drop partitions of months (docs/method/store.md).
--
--     clickhouse-client --database dwell --multiquery < retain.sql
--
-- After downsample.sql, whose tables it names.

ALTER TABLE intervals MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 7 DAY;
ALTER TABLE paths MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 7 DAY;
ALTER TABLE clock MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 90 DAY;
ALTER TABLE counter MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 90 DAY;
ALTER TABLE lost MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 2 YEAR;
ALTER TABLE gray MODIFY TTL toDateTime(intDiv(time_ns, 1000000000)) + INTERVAL 2 YEAR;
ALTER TABLE intervals_5_sums MODIFY TTL time + INTERVAL 90 DAY;
ALTER TABLE paths_5_sums MODIFY TTL time + INTERVAL 90 DAY;
ALTER TABLE intervals_60_sums MODIFY TTL time + INTERVAL 2 YEAR;
ALTER TABLE paths_60_sums MODIFY TTL time + INTERVAL 2 YEAR;
