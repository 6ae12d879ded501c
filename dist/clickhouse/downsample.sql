-- What a store on a ClickHouse server keeps for longer than its rows: those of 5 minutes in one row, and those of an hour. Their
-- histograms are added up, so that quantiles are as exact as those of the rows.
--
--     clickhouse-client --database dwell --multiquery < downsample.sql
--
-- It is for the tables that a collector has made, and counts what arrives from then on. Rows of 5 minutes have each flow, those of
-- an hour only hosts and pairs of hosts. Read the views intervals_5, paths_5, intervals_60 and paths_60.
--
-- A row that a collector sends again is counted twice here if the server was still inserting it when the collector asked for
-- it: the server merges only the two rows. Rows of the insert within which a server was killed may be missing here: it inserts them
-- first, and adds them to the sums then.

CREATE TABLE IF NOT EXISTS intervals_5_sums (
	time DateTime, host String, src String, sport UInt16, dst String, dport UInt16, segment String, direction String, retransmitted UInt8,
	count_state AggregateFunction(sum, UInt64), sum_state AggregateFunction(sum, UInt64),
	min_state AggregateFunction(min, UInt64), max_state AggregateFunction(max, UInt64),
	histogram_state AggregateFunction(sumMap, Array(UInt16), Array(UInt64))
) ENGINE = AggregatingMergeTree() PARTITION BY toYYYYMM(time) ORDER BY (time, host, src, sport, dst, dport, segment, direction, retransmitted);

CREATE TABLE IF NOT EXISTS paths_5_sums (
	time DateTime, tx_host String, rx_host String, src String, sport UInt16, dst String, dport UInt16, segment String, direction String, retransmitted UInt8, method String,
	count_state AggregateFunction(sum, UInt64), sum_state AggregateFunction(sum, UInt64),
	min_state AggregateFunction(min, UInt64), max_state AggregateFunction(max, UInt64), bound_state AggregateFunction(max, UInt64),
	histogram_state AggregateFunction(sumMap, Array(UInt16), Array(UInt64))
) ENGINE = AggregatingMergeTree() PARTITION BY toYYYYMM(time) ORDER BY (time, tx_host, rx_host, src, sport, dst, dport, segment, direction, retransmitted, method);

CREATE TABLE IF NOT EXISTS intervals_60_sums (
	time DateTime, host String, segment String, direction String, retransmitted UInt8,
	count_state AggregateFunction(sum, UInt64), sum_state AggregateFunction(sum, UInt64),
	min_state AggregateFunction(min, UInt64), max_state AggregateFunction(max, UInt64),
	histogram_state AggregateFunction(sumMap, Array(UInt16), Array(UInt64))
) ENGINE = AggregatingMergeTree() PARTITION BY toYYYYMM(time) ORDER BY (time, host, segment, direction, retransmitted);

CREATE TABLE IF NOT EXISTS paths_60_sums (
	time DateTime, tx_host String, rx_host String, segment String, direction String, retransmitted UInt8, method String,
	count_state AggregateFunction(sum, UInt64), sum_state AggregateFunction(sum, UInt64),
	min_state AggregateFunction(min, UInt64), max_state AggregateFunction(max, UInt64), bound_state AggregateFunction(max, UInt64),
	histogram_state AggregateFunction(sumMap, Array(UInt16), Array(UInt64))
) ENGINE = AggregatingMergeTree() PARTITION BY toYYYYMM(time) ORDER BY (time, tx_host, rx_host, segment, direction, retransmitted, method);

-- A histogram is numbers of seven bits per byte: version, count, least, most, sum, and then the distance of each bucket from the
-- one before it and its count (docs/method/store.md).
CREATE MATERIALIZED VIEW IF NOT EXISTS intervals_to_5 TO intervals_5_sums AS
WITH
	arrayMap(i -> reinterpretAsUInt8(substring(histogram, i + 1, 1)), range(toUInt64(length(histogram)))) AS bytes,
	arrayFilter(i -> bytes[i] < 128, arrayEnumerate(bytes)) AS ends,
	arrayMap(i -> if(i = 1, 1, ends[i - 1] + 1), arrayEnumerate(ends)) AS begins,
	arraySlice(arrayMap((begin, end) -> arraySum(arrayMap(
		i -> bitShiftLeft(toUInt64(bitAnd(bytes[begin + i], 127)), 7 * i), range(toUInt64(end - begin + 1)))),
		begins, ends), 6) AS pairs,
	arrayMap(edge -> toUInt16(edge - 1), arrayCumSum(arrayFilter((x, i) -> i % 2 = 1, pairs, arrayEnumerate(pairs)))) AS buckets,
	arrayFilter((x, i) -> i % 2 = 0, pairs, arrayEnumerate(pairs)) AS counts
SELECT
	toStartOfFiveMinute(toDateTime(intDiv(time_ns, 1000000000))) AS time, host, ifNull(src, '') AS src, ifNull(sport, 0) AS sport, ifNull(dst, '') AS dst, ifNull(dport, 0) AS dport, segment, direction, retransmitted,
	sumState(count) AS count_state, sumState(sum_ns) AS sum_state,
	minState(ifNull(min_ns, 18446744073709551615)) AS min_state, maxState(ifNull(max_ns, 0)) AS max_state,
	sumMapState(buckets, counts) AS histogram_state
FROM intervals
GROUP BY time, host, src, sport, dst, dport, segment, direction, retransmitted;

CREATE MATERIALIZED VIEW IF NOT EXISTS paths_to_5 TO paths_5_sums AS
WITH
	arrayMap(i -> reinterpretAsUInt8(substring(histogram, i + 1, 1)), range(toUInt64(length(histogram)))) AS bytes,
	arrayFilter(i -> bytes[i] < 128, arrayEnumerate(bytes)) AS ends,
	arrayMap(i -> if(i = 1, 1, ends[i - 1] + 1), arrayEnumerate(ends)) AS begins,
	arraySlice(arrayMap((begin, end) -> arraySum(arrayMap(
		i -> bitShiftLeft(toUInt64(bitAnd(bytes[begin + i], 127)), 7 * i), range(toUInt64(end - begin + 1)))),
		begins, ends), 6) AS pairs,
	arrayMap(edge -> toUInt16(edge - 1), arrayCumSum(arrayFilter((x, i) -> i % 2 = 1, pairs, arrayEnumerate(pairs)))) AS buckets,
	arrayFilter((x, i) -> i % 2 = 0, pairs, arrayEnumerate(pairs)) AS counts
SELECT
	toStartOfFiveMinute(toDateTime(intDiv(time_ns, 1000000000))) AS time, ifNull(tx_host, '') AS tx_host, ifNull(rx_host, '') AS rx_host, ifNull(src, '') AS src, ifNull(sport, 0) AS sport, ifNull(dst, '') AS dst, ifNull(dport, 0) AS dport, segment, ifNull(direction, '') AS direction, retransmitted, method,
	sumState(count) AS count_state, sumState(sum_ns) AS sum_state,
	minState(ifNull(min_ns, 18446744073709551615)) AS min_state, maxState(ifNull(max_ns, 0)) AS max_state,
	maxState(ifNull(bound_ns, 0)) AS bound_state,
	sumMapState(buckets, counts) AS histogram_state
FROM paths
GROUP BY time, tx_host, rx_host, src, sport, dst, dport, segment, direction, retransmitted, method;

CREATE MATERIALIZED VIEW IF NOT EXISTS intervals_to_60 TO intervals_60_sums AS
WITH
	arrayMap(i -> reinterpretAsUInt8(substring(histogram, i + 1, 1)), range(toUInt64(length(histogram)))) AS bytes,
	arrayFilter(i -> bytes[i] < 128, arrayEnumerate(bytes)) AS ends,
	arrayMap(i -> if(i = 1, 1, ends[i - 1] + 1), arrayEnumerate(ends)) AS begins,
	arraySlice(arrayMap((begin, end) -> arraySum(arrayMap(
		i -> bitShiftLeft(toUInt64(bitAnd(bytes[begin + i], 127)), 7 * i), range(toUInt64(end - begin + 1)))),
		begins, ends), 6) AS pairs,
	arrayMap(edge -> toUInt16(edge - 1), arrayCumSum(arrayFilter((x, i) -> i % 2 = 1, pairs, arrayEnumerate(pairs)))) AS buckets,
	arrayFilter((x, i) -> i % 2 = 0, pairs, arrayEnumerate(pairs)) AS counts
SELECT
	toStartOfHour(toDateTime(intDiv(time_ns, 1000000000))) AS time, host, segment, direction, retransmitted,
	sumState(count) AS count_state, sumState(sum_ns) AS sum_state,
	minState(ifNull(min_ns, 18446744073709551615)) AS min_state, maxState(ifNull(max_ns, 0)) AS max_state,
	sumMapState(buckets, counts) AS histogram_state
FROM intervals
WHERE src IS NULL
GROUP BY time, host, segment, direction, retransmitted;

CREATE MATERIALIZED VIEW IF NOT EXISTS paths_to_60 TO paths_60_sums AS
WITH
	arrayMap(i -> reinterpretAsUInt8(substring(histogram, i + 1, 1)), range(toUInt64(length(histogram)))) AS bytes,
	arrayFilter(i -> bytes[i] < 128, arrayEnumerate(bytes)) AS ends,
	arrayMap(i -> if(i = 1, 1, ends[i - 1] + 1), arrayEnumerate(ends)) AS begins,
	arraySlice(arrayMap((begin, end) -> arraySum(arrayMap(
		i -> bitShiftLeft(toUInt64(bitAnd(bytes[begin + i], 127)), 7 * i), range(toUInt64(end - begin + 1)))),
		begins, ends), 6) AS pairs,
	arrayMap(edge -> toUInt16(edge - 1), arrayCumSum(arrayFilter((x, i) -> i % 2 = 1, pairs, arrayEnumerate(pairs)))) AS buckets,
	arrayFilter((x, i) -> i % 2 = 0, pairs, arrayEnumerate(pairs)) AS counts
SELECT
	toStartOfHour(toDateTime(intDiv(time_ns, 1000000000))) AS time, ifNull(tx_host, '') AS tx_host, ifNull(rx_host, '') AS rx_host, segment, ifNull(direction, '') AS direction, retransmitted, method,
	sumState(count) AS count_state, sumState(sum_ns) AS sum_state,
	minState(ifNull(min_ns, 18446744073709551615)) AS min_state, maxState(ifNull(max_ns, 0)) AS max_state,
	maxState(ifNull(bound_ns, 0)) AS bound_state,
	sumMapState(buckets, counts) AS histogram_state
FROM paths
WHERE src IS NULL
GROUP BY time, tx_host, rx_host, segment, direction, retransmitted, method;

-- For reading. src and dst are empty and ports 0 in rows of all flows together, and hosts are empty where no agent is. Where count is 0,
-- so is each figure but min_ns.
CREATE VIEW IF NOT EXISTS intervals_5 AS
WITH
	sumMapMerge(histogram_state) AS histogram, histogram.1 AS buckets, arrayCumSum(histogram.2) AS sums,
	buckets[arrayFirstIndex(sum -> sum >= 0.5 * sums[-1], sums)] AS at_p50,
	buckets[arrayFirstIndex(sum -> sum >= 0.9 * sums[-1], sums)] AS at_p90,
	buckets[arrayFirstIndex(sum -> sum >= 0.95 * sums[-1], sums)] AS at_p95,
	buckets[arrayFirstIndex(sum -> sum >= 0.99 * sums[-1], sums)] AS at_p99,
	buckets[arrayFirstIndex(sum -> sum >= 0.999 * sums[-1], sums)] AS at_p99_9
SELECT
	time, host, src, sport, dst, dport, segment, direction, retransmitted,
	sumMerge(count_state) AS count, sumMerge(sum_state) AS sum_ns, minMerge(min_state) AS min_ns, maxMerge(max_state) AS max_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p50 < 128, at_p50, (bitAnd(at_p50, 63) + 64.5) * exp2(intDiv(at_p50, 64) - 1))))) AS p50_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p90 < 128, at_p90, (bitAnd(at_p90, 63) + 64.5) * exp2(intDiv(at_p90, 64) - 1))))) AS p90_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p95 < 128, at_p95, (bitAnd(at_p95, 63) + 64.5) * exp2(intDiv(at_p95, 64) - 1))))) AS p95_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p99 < 128, at_p99, (bitAnd(at_p99, 63) + 64.5) * exp2(intDiv(at_p99, 64) - 1))))) AS p99_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p99_9 < 128, at_p99_9, (bitAnd(at_p99_9, 63) + 64.5) * exp2(intDiv(at_p99_9, 64) - 1))))) AS p99_9_ns
FROM intervals_5_sums
GROUP BY time, host, src, sport, dst, dport, segment, direction, retransmitted;

CREATE VIEW IF NOT EXISTS paths_5 AS
WITH
	sumMapMerge(histogram_state) AS histogram, histogram.1 AS buckets, arrayCumSum(histogram.2) AS sums,
	buckets[arrayFirstIndex(sum -> sum >= 0.5 * sums[-1], sums)] AS at_p50,
	buckets[arrayFirstIndex(sum -> sum >= 0.9 * sums[-1], sums)] AS at_p90,
	buckets[arrayFirstIndex(sum -> sum >= 0.95 * sums[-1], sums)] AS at_p95,
	buckets[arrayFirstIndex(sum -> sum >= 0.99 * sums[-1], sums)] AS at_p99,
	buckets[arrayFirstIndex(sum -> sum >= 0.999 * sums[-1], sums)] AS at_p99_9
SELECT
	time, tx_host, rx_host, src, sport, dst, dport, segment, direction, retransmitted, method,
	sumMerge(count_state) AS count, sumMerge(sum_state) AS sum_ns, minMerge(min_state) AS min_ns, maxMerge(max_state) AS max_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p50 < 128, at_p50, (bitAnd(at_p50, 63) + 64.5) * exp2(intDiv(at_p50, 64) - 1))))) AS p50_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p90 < 128, at_p90, (bitAnd(at_p90, 63) + 64.5) * exp2(intDiv(at_p90, 64) - 1))))) AS p90_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p95 < 128, at_p95, (bitAnd(at_p95, 63) + 64.5) * exp2(intDiv(at_p95, 64) - 1))))) AS p95_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p99 < 128, at_p99, (bitAnd(at_p99, 63) + 64.5) * exp2(intDiv(at_p99, 64) - 1))))) AS p99_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p99_9 < 128, at_p99_9, (bitAnd(at_p99_9, 63) + 64.5) * exp2(intDiv(at_p99_9, 64) - 1))))) AS p99_9_ns,
	maxMerge(bound_state) AS bound_ns
FROM paths_5_sums
GROUP BY time, tx_host, rx_host, src, sport, dst, dport, segment, direction, retransmitted, method;

CREATE VIEW IF NOT EXISTS intervals_60 AS
WITH
	sumMapMerge(histogram_state) AS histogram, histogram.1 AS buckets, arrayCumSum(histogram.2) AS sums,
	buckets[arrayFirstIndex(sum -> sum >= 0.5 * sums[-1], sums)] AS at_p50,
	buckets[arrayFirstIndex(sum -> sum >= 0.9 * sums[-1], sums)] AS at_p90,
	buckets[arrayFirstIndex(sum -> sum >= 0.95 * sums[-1], sums)] AS at_p95,
	buckets[arrayFirstIndex(sum -> sum >= 0.99 * sums[-1], sums)] AS at_p99,
	buckets[arrayFirstIndex(sum -> sum >= 0.999 * sums[-1], sums)] AS at_p99_9
SELECT
	time, host, segment, direction, retransmitted,
	sumMerge(count_state) AS count, sumMerge(sum_state) AS sum_ns, minMerge(min_state) AS min_ns, maxMerge(max_state) AS max_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p50 < 128, at_p50, (bitAnd(at_p50, 63) + 64.5) * exp2(intDiv(at_p50, 64) - 1))))) AS p50_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p90 < 128, at_p90, (bitAnd(at_p90, 63) + 64.5) * exp2(intDiv(at_p90, 64) - 1))))) AS p90_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p95 < 128, at_p95, (bitAnd(at_p95, 63) + 64.5) * exp2(intDiv(at_p95, 64) - 1))))) AS p95_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p99 < 128, at_p99, (bitAnd(at_p99, 63) + 64.5) * exp2(intDiv(at_p99, 64) - 1))))) AS p99_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p99_9 < 128, at_p99_9, (bitAnd(at_p99_9, 63) + 64.5) * exp2(intDiv(at_p99_9, 64) - 1))))) AS p99_9_ns
FROM intervals_60_sums
GROUP BY time, host, segment, direction, retransmitted;

CREATE VIEW IF NOT EXISTS paths_60 AS
WITH
	sumMapMerge(histogram_state) AS histogram, histogram.1 AS buckets, arrayCumSum(histogram.2) AS sums,
	buckets[arrayFirstIndex(sum -> sum >= 0.5 * sums[-1], sums)] AS at_p50,
	buckets[arrayFirstIndex(sum -> sum >= 0.9 * sums[-1], sums)] AS at_p90,
	buckets[arrayFirstIndex(sum -> sum >= 0.95 * sums[-1], sums)] AS at_p95,
	buckets[arrayFirstIndex(sum -> sum >= 0.99 * sums[-1], sums)] AS at_p99,
	buckets[arrayFirstIndex(sum -> sum >= 0.999 * sums[-1], sums)] AS at_p99_9
SELECT
	time, tx_host, rx_host, segment, direction, retransmitted, method,
	sumMerge(count_state) AS count, sumMerge(sum_state) AS sum_ns, minMerge(min_state) AS min_ns, maxMerge(max_state) AS max_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p50 < 128, at_p50, (bitAnd(at_p50, 63) + 64.5) * exp2(intDiv(at_p50, 64) - 1))))) AS p50_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p90 < 128, at_p90, (bitAnd(at_p90, 63) + 64.5) * exp2(intDiv(at_p90, 64) - 1))))) AS p90_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p95 < 128, at_p95, (bitAnd(at_p95, 63) + 64.5) * exp2(intDiv(at_p95, 64) - 1))))) AS p95_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p99 < 128, at_p99, (bitAnd(at_p99, 63) + 64.5) * exp2(intDiv(at_p99, 64) - 1))))) AS p99_ns,
	greatest(min_ns, least(max_ns, toUInt64(
		if(at_p99_9 < 128, at_p99_9, (bitAnd(at_p99_9, 63) + 64.5) * exp2(intDiv(at_p99_9, 64) - 1))))) AS p99_9_ns,
	maxMerge(bound_state) AS bound_ns
FROM paths_60_sums
GROUP BY time, tx_host, rx_host, segment, direction, retransmitted, method;
