//! A store of any size, with rows of all kinds, to measure what reads it:
//! `cargo run --release -p dwell-store --example large_store -- big.db 10000000`
//!
//! An interval of 10 s has 10,000 rows of 8 hosts, where each has 10 long connections and many short ones: those of `rtt`, also
//! with `--aggregate`, of `response`, `run` and `lb run`, and of agents with a collector.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it prints what it does and has nothing to clean up")]

use std::{net::IpAddr, path::Path};

use dwell_engine::{
    histogram::Histogram,
    layers::{Direction, Ends, PathSegment, Segment},
    measure::Endpoint,
};
use dwell_records::LatencyObject;
use dwell_store::{BackendRow, IntervalRow, PathMethod, PathRow, Store, Writing, Written};
use rusqlite::{Connection, params};

const LENGTH_NS: u64 = 10_000_000_000;
/// 2026-11-21T14:00:00Z
const BEGIN_NS: i64 = 1_795_269_600_000_000_000;
const HOSTS: u64 = 8;
/// Rows of each kind in an interval. Segments of hosts and paths make up the rest.
const SAMPLES: u64 = 2_500;
const GROUPS: u64 = 300;
const EPOCHS: u64 = 1_500;
const SOCKETS: u64 = 400;
const BACKENDS: u64 = 300;
/// Flows of an interval whose bytes agents have followed, those of which two agents have, and long ones.
const FOLLOWED: u64 = 400;
const JOINED: u64 = 110;
const LONG: u64 = 80;
/// Intervals of one transaction.
const AT_ONCE: u64 = 20;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, rows] = &arguments[..] else { panic!("name a file that is not there yet, and a number of rows") };
    let (path, wanted): (&Path, u64) = (path.as_ref(), rows.parse().unwrap());
    assert!(!path.exists(), "{} is there already", path.display());
    let mut store = Store::open(path).unwrap();
    let mut random = Random(1);
    let (mut rows, mut interval) = (0, 0);
    while rows < wanted {
        let from = interval;
        interval += AT_ONCE;
        rows += store
            .write(|writing| {
                (from..interval).map(|interval| measured(writing, interval, &mut random)).sum::<Written<u64>>()
            })
            .unwrap();
        rows += latencies(path, from..interval, &mut random).unwrap();
    }
    println!("{rows} rows in {}", path.display());
}

/// The numbers of a linear congruential generator, so that a store of a size is always the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Latencies of a flow, some of which are much longer.
    fn times(&mut self, base_ns: u64, count: u64) -> Histogram {
        let mut histogram = Histogram::default();
        for _ in 0..count {
            let tail = if self.below(50) == 0 { 8 } else { 1 };
            histogram.record(base_ns * tail * (70 + self.below(90)) / 100);
        }
        histogram
    }
}

/// The number of a flow of an interval: the first are always the same, others last four intervals.
fn number(interval: u64, n: u64) -> u64 {
    if n < LONG { n } else { LONG + n % 2_500 + 2_500 * (interval / 4) }
}

/// A flow from a client to a service of one of the hosts.
fn flow(number: u64) -> Ends {
    let end = |network: u64, host: u64, port: u64| Endpoint {
        address: IpAddr::from([10, network as u8, (host / 250) as u8, (1 + host % 250) as u8]),
        port: port as u16,
    };
    let service = [443, 5432, 6379, 8080][(number % 4) as usize];
    Ends { src: end(1, number % 3_000, 20_000 + number % 40_000), dst: end(0, number % HOSTS, service) }
}

fn host(number: u64) -> String {
    format!("host-{}", number % HOSTS)
}

fn end_ns(interval: u64) -> i64 {
    BEGIN_NS + ((interval + 1) * LENGTH_NS).cast_signed()
}

/// Writes what agents and balancers have measured, and returns the number of rows.
fn measured(store: &mut Writing<'_>, interval: u64, random: &mut Random) -> Written<u64> {
    let time_ns = end_ns(interval);
    let mut rows = 0;
    for n in 0..FOLLOWED {
        let number = number(interval, n);
        // Rows of hosts have one direction of a flow; the first are those of all flows of a host.
        let (flow, bytes) = if n < 2 * HOSTS { (None, 200) } else { (Some(flow(number)), 3 + random.below(20)) };
        let direction = [Direction::Tx, Direction::Rx][usize::from(n % (2 * HOSTS) >= HOSTS)];
        for segment in Segment::ALL.into_iter().filter(|segment| segment.direction() == direction) {
            let histogram = random.times(2_000 << (segment as u64 * 2 % 9), bytes);
            store.interval(&IntervalRow {
                time_ns,
                time_clamped: false,
                length_ns: LENGTH_NS,
                host: &host(n),
                flow,
                namespace: None,
                segment,
                resent: false,
                histogram: &histogram,
                hooks: None,
            })?;
            rows += 1;
        }
    }
    for n in 0..JOINED {
        let number = number(interval, n);
        let flow = (n >= 2 * HOSTS).then(|| flow(number));
        for segment in PathSegment::ALL {
            let is_network = segment == PathSegment::Network;
            let histogram = random.times(if is_network { 3_000_000 } else { 20_000 }, 10);
            store.path(&PathRow {
                time_ns,
                length_ns: LENGTH_NS,
                tx_host: Some(&host(n)),
                rx_host: Some(&host(n + 1)),
                flow,
                rx_flow: None,
                segment,
                resent: false,
                method: PathMethod::Matched,
                histogram: &histogram,
                bound_ns: is_network.then_some(20_000),
                clamped: 0,
                doubtful: 0,
            })?;
            rows += 1;
        }
    }
    for n in 0..BACKENDS {
        let mean_ns = 2_000_000 + random.below(3_000_000);
        let latency = LatencyObject {
            count: Some(40),
            mean_ns: Some(mean_ns),
            p99_ns: Some(mean_ns * 3),
            ..LatencyObject::default()
        };
        store.backend(&BackendRow {
            time_ns,
            length_ns: LENGTH_NS,
            host: &host(n / 150),
            vip: Some(["web", "api", "static"][(n % 3) as usize]),
            backend: &format!("server-{n}"),
            address: IpAddr::from([10, 2, 0, n as u8]),
            state: if random.below(1_000) == 0 { "down" } else { "up" },
            why: "as its response latency says",
            weight: 1.0,
            share: 0.01,
            active: 3 + random.below(10),
            tracked: None,
            pending: random.below(4),
            pending_oldest_ns: Some(1_000_000),
            traffic: Some([120, 8_000, 900_000]),
            latency: Some(&latency),
        })?;
        rows += 1;
    }
    Ok(rows)
}

/// Writes what runs of other verbs have measured, as [`dwell_store::Recorder`] does, and returns the number of rows.
fn latencies(path: &Path, intervals: std::ops::Range<u64>, random: &mut Random) -> rusqlite::Result<u64> {
    let mut db = Connection::open(path)?;
    let (write, mut rows) = (db.transaction()?, 0);
    {
        let mut find = write.prepare(
            "SELECT flow_id FROM flow WHERE src = ?1 AND ifnull(sport, -1) = ?2 AND dst = ?3 AND ifnull(dport, -1) = ?4
                AND proto = 'TCP'",
        )?;
        let mut add = write.prepare(
            "INSERT INTO flow (src, sport, dst, dport, proto, id, last_ns) VALUES (?1, ?2, ?3, ?4, 'TCP', '1:x', ?5)
                RETURNING flow_id",
        )?;
        let mut insert = write.prepare(
            "INSERT INTO latency (time_ns, interval_ns, host_id, type, what, flow_id, names_id, count, sum_ns, mean_ns,
                min_ns, max_ns, p50_ns, p90_ns, p95_ns, p99_ns, p99_9_ns, histogram, valid, method, prefix)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)",
        )?;
        let mut names = write.prepare(
            "INSERT OR IGNORE INTO names (names_id, src_pid, src_process, src_unit, last_ns)
                VALUES (?1, ?1, 'worker', 'web.service', ?2)",
        )?;
        for interval in intervals {
            let time_ns = end_ns(interval);
            let kinds = [
                ("rtt.sample", "latency", SAMPLES),
                ("rtt.aggregate", "latency", GROUPS),
                ("response.epoch", "latency", EPOCHS),
                ("run.socket", "sender_delay", SOCKETS),
                ("run.socket", "receiver_delay", SOCKETS),
                ("run.socket", "network_rtt", SOCKETS),
            ];
            for (kind, what, count) in kinds {
                for n in 0..count {
                    let number = number(interval, n);
                    let ends = flow(number);
                    let is_group = kind == "rtt.aggregate";
                    let (src, dst) = (ends.src.address.to_string(), ends.dst.address.to_string());
                    let found = find.query_row(params![src, ends.src.port, dst, ends.dst.port], |row| row.get(0));
                    let flow: i64 = match found {
                        Err(rusqlite::Error::QueryReturnedNoRows) => {
                            add.query_row(params![src, ends.src.port, dst, ends.dst.port, i64::MAX], |row| row.get(0))?
                        }
                        found => found?,
                    };
                    let names_id = (kind == "run.socket").then_some((1_000 + number % 200).cast_signed());
                    if let Some(names_id) = names_id {
                        names.execute(params![names_id, i64::MAX])?;
                    }
                    let of_flow = if kind == "response.epoch" { 5_000_000 } else { 500_000 };
                    let histogram = random.times(of_flow + number % 97 * 100_000, if is_group { 60 } else { 12 });
                    let is_estimate = kind == "response.epoch";
                    let signed = |ns: Option<u64>| ns.map(u64::cast_signed);
                    let quantile = |q| (!is_estimate).then(|| signed(histogram.quantile_ns(q))).flatten();
                    insert.execute(params![
                        time_ns,
                        LENGTH_NS.cast_signed(),
                        (1 + number % HOSTS).cast_signed(),
                        kind,
                        what,
                        (!is_group).then_some(flow),
                        names_id,
                        histogram.count().cast_signed(),
                        histogram.sum_ns() as i64,
                        signed(histogram.mean_ns()),
                        signed(histogram.min_ns()),
                        signed(histogram.max_ns()),
                        quantile(0.5),
                        quantile(0.9),
                        quantile(0.95),
                        quantile(0.99),
                        quantile(0.999),
                        matches!(kind, "rtt.sample" | "rtt.aggregate").then(|| histogram.to_bytes()),
                        is_estimate.then(|| random.below(10) > 0),
                        if is_estimate { "page" } else { "TCP_TS" },
                        is_group.then(|| format!("10.1.{}.0/24", n % 256)),
                    ])?;
                    rows += 1;
                }
            }
        }
    }
    write.commit()?;
    Ok(rows)
}
