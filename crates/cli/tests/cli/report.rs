//! `dwell report`: the page of a store with known figures, as a browser shows it.

use std::{
    collections::HashSet,
    io::{Read, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
};

use dwell_engine::{
    histogram::Histogram,
    layers::{Ends, Layer, PathSegment, Segment, SegmentHooks},
    measure::Endpoint,
};
use dwell_records::LatencyObject;
use dwell_store::{BackendRow, ClockRow, IntervalRow, PathMethod, PathRow, Store, Writing, Written};
use tempfile::TempDir;

use crate::{
    stack::{PORT, connect, listen},
    support::{DWELL, Pair, Run, dwell, dwell_reading, eventually, links, run, skipped, spawn},
    wire::{Sender, capture, echo, everyday},
};

/// 2026-11-21T14:00:00Z
const BEGIN_NS: i64 = 1_795_269_600_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const INTERVALS: i64 = 10;
/// Of each flow in each interval.
const BYTES: u64 = 20;
const BOUND_NS: u64 = 200_000;

/// What a byte of the first flow takes; parts are in what they are a part of, and sums in none.
const SEGMENTS: [(PathSegment, u64); 13] = [
    (PathSegment::Host(Segment::SocketTcp), 1_000_000),
    (PathSegment::Host(Segment::TcpIp), 2_000),
    (PathSegment::Host(Segment::IpDriver), 3_000_000),
    (PathSegment::Host(Segment::Queueing), 2_900_000),
    (PathSegment::Host(Segment::TxTotal), 4_002_000),
    (PathSegment::Network, 5_000_000),
    (PathSegment::Host(Segment::DriverIp), 10_000),
    (PathSegment::Host(Segment::IpTcp), 3_000),
    (PathSegment::Host(Segment::TcpSocket), 200_000),
    (PathSegment::Host(Segment::Reordering), 50_000),
    (PathSegment::Host(Segment::Application), 150_000),
    (PathSegment::Host(Segment::RxTotal), 213_000),
    (PathSegment::EndToEnd, 9_215_000),
];

fn end(address: &str, port: u16) -> Endpoint {
    let address: IpAddr = address.parse().unwrap();
    Endpoint { address, port }
}

/// The n-th flow, which takes n times as long as the first.
fn flow(n: u16) -> Ends {
    Ends { src: end("10.78.0.1", 40_000 + n), dst: end("10.78.0.2", 5201) }
}

fn times(values: &[(u64, u64)]) -> Histogram {
    let mut histogram = Histogram::default();
    for (ns, count) in values {
        histogram.record_many(*ns, *count);
    }
    histogram
}

/// Writes the rows of both hosts, and of the path between them, for this many flows.
fn interval(store: &mut Writing<'_>, hosts: [&str; 2], time_ns: i64, flows: u16) -> Written<()> {
    for (segment, ns) in SEGMENTS {
        let each = (1..=flows).map(|n| (Some(flow(n)), times(&[(ns * u64::from(n), BYTES)])));
        let values: Vec<_> = (1..=u64::from(flows)).map(|n| (ns * n, BYTES)).collect();
        for (flow, histogram) in each.chain([(None, times(&values))]) {
            let is_between = segment.direction().is_none();
            store.path(&PathRow {
                time_ns,
                length_ns: SECOND_NS,
                tx_host: Some(hosts[0]),
                rx_host: Some(hosts[1]),
                flow,
                rx_flow: None,
                segment,
                resent: false,
                method: PathMethod::Matched,
                histogram: &histogram,
                bound_ns: is_between.then_some(BOUND_NS),
                clamped: 0,
                doubtful: if is_between { 3 } else { 0 },
            })?;
            let PathSegment::Host(segment) = segment else { continue };
            store.interval(&IntervalRow {
                time_ns,
                time_clamped: false,
                length_ns: SECOND_NS,
                host: hosts[usize::from(segment.direction().name() == "rx")],
                flow,
                namespace: None,
                segment,
                resent: false,
                histogram: &histogram,
                hooks: None,
            })?;
        }
    }
    Ok(())
}

struct Stored {
    folder: TempDir,
}

impl Stored {
    fn new(write: impl FnOnce(&mut Writing<'_>) -> Written<()>) -> Stored {
        let stored = Stored { folder: tempfile::tempdir().unwrap() };
        Store::open(&stored.path("store")).unwrap().write(write).unwrap();
        stored
    }

    fn with(hosts: [&str; 2], flows: u16) -> Stored {
        Stored::new(|store| {
            for n in 1..=INTERVALS {
                interval(store, hosts, BEGIN_NS + n * SECOND_NS.cast_signed(), flows)?;
            }
            store.clock(&ClockRow {
                time_ns: BEGIN_NS + 1,
                host: hosts[1],
                offset_ns: 5,
                bound_ns: BOUND_NS,
                drift_ppb: None,
                drift_bound_ppb: None,
                round_trip_ns: None,
                method: "xdp",
                stepped: false,
            })
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn report(&self, arguments: &[&str]) -> Run {
        let (store, page) = (self.path("store"), self.path("page.html"));
        let always = ["report", "--read", store.to_str().unwrap(), "--output", page.to_str().unwrap()];
        dwell(&[&always[..], arguments].concat())
    }

    /// The page with these options.
    fn page(&self, arguments: &[&str]) -> String {
        let run = self.report(arguments);
        assert_eq!(run.status, Some(0), "{run}");
        std::fs::read_to_string(self.path("page.html")).unwrap()
    }

    /// The same as a browser shows it, by a link that chooses. `None` where there is none.
    fn shown(&self, link: &str) -> Option<String> {
        let url = format!("file://{}{link}", self.path("page.html").display());
        let run = browse(self.folder.path(), &["--dump-dom", &url])?;
        assert!(!run.stderr.contains("CONSOLE"), "{run}");
        Some(run.stdout)
    }
}

/// Runs Chromium without a window; `None`, with a notice, where there is no Chromium.
fn browse(folder: &Path, arguments: &[&str]) -> Option<Run> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&str| std::env::split_paths(&search).any(|path| path.join(name).is_file());
    let Some(program) = ["chromium-headless-shell", "chromium"].into_iter().find(is_there) else {
        dwell_testbed::skip::required("there is no program chromium-headless-shell or chromium");
        return None;
    };
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let run = run(
        Command::new(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--enable-logging=stderr", "--virtual-time-budget=10000"])
            // There is no network: a request of the page would fail, and be reported.
            .args(["--proxy-server=127.0.0.1:9", &profile])
            .args(arguments),
        b"",
    );
    assert_eq!(run.status, Some(0), "{run}");
    Some(run)
}

/// The cells of a row of a table, by its mark.
fn cells(page: &str, mark: &str) -> Vec<String> {
    let (_, row) = page.split_once(&format!("{mark}\"")).unwrap_or_else(|| panic!("no row {mark}"));
    let (row, _) = row.split_once("</tr>").unwrap();
    let cells = row.split("<td").skip(1);
    cells.map(|cell| cell.split_once('>').unwrap().1.split('<').next().unwrap().to_owned()).collect()
}

fn figures(page: &str, segment: &str) -> Vec<String> {
    let mut cells = cells(page, &format!("data-segment=\"{segment}"));
    cells.truncate(8);
    cells
}

#[test]
fn the_waterfall_has_the_figures_of_the_chosen_flows() {
    let stored = Stored::with(["web", "db"], 2);
    let page = stored.page(&[]);
    let Some(all) = stored.shown("") else { return };
    // Two flows of 5 and 10 ms.
    assert_eq!(
        figures(&all, "network"),
        ["400", "7.50 ms", "5.01 ms", "10.0 ms", "10.0 ms", "10.0 ms", "54.3 %", "200 µs"]
    );
    assert_eq!(figures(&all, "end-to-end")[..2], ["400".to_owned(), "13.8 ms".to_owned()]);
    assert_eq!(figures(&all, "tx tcp-ip")[1], "3.00 µs");
    assert!(all.contains("all flows</output>"), "it does not say which flows");
    // Lines of one chart are told apart without their colours.
    let chart = all.split_once("distributions of the segments").unwrap().1.split_once("</svg>").unwrap().0;
    let dash = |line: &str| Some(line.split_once("stroke-dasharray=\"")?.1.split_once('"')?.0.to_owned());
    let dashes: Vec<_> = chart.split("<polyline").skip(1).filter_map(dash).collect();
    let different: HashSet<_> = dashes.iter().collect();
    assert!(dashes.len() > 5 && different.len() == dashes.len(), "{dashes:?}");

    let one = stored.shown("#flows=10.78.0.1:40001").unwrap();
    assert_eq!(
        figures(&one, "network"),
        ["200", "5.00 ms", "5.00 ms", "5.00 ms", "5.00 ms", "5.00 ms", "54.3 %", "200 µs"]
    );
    assert_eq!(figures(&one, "tx queueing")[1], "2.90 ms");
    assert_eq!(figures(&one, "end-to-end")[1], "9.22 ms");
    assert!(one.contains("1 flow chosen"), "it does not say which flows");
    let none = stored.shown("#flows=192.0.2.1").unwrap();
    assert!(none.contains("No bytes in this selection."));

    // What the host itself said.
    let host = stored.shown("#of=host+web").unwrap();
    assert_eq!(figures(&host, "tx ip-driver")[..2], ["400", "4.50 ms"]);
    assert!(!host.contains("data-segment=\"network"));
    assert_eq!(
        cells(&all, "data-hosts=\"tx ip-driver")[..4],
        ["-", "-", "4.50 ms", "6.00 ms"],
        "db sends nothing, web does"
    );
    assert!(all.contains("<figcaption>network</figcaption>"), "nothing over time");
    // Three of each interval, of which there are ten; of one flow as many.
    assert!(all.contains("Of 30 bytes the clocks may be wrong by more"), "{all}");
    assert!(page.len() < 300_000, "{} bytes", page.len());
}

#[test]
fn nothing_is_fetched_and_no_name_is_markup() {
    let nasty = "</script><script>document.title='broken'</script><img src=http://192.0.2.1/x>";
    let stored = Stored::with([nasty, "a&b <i>\u{2028}"], 1);
    let page = stored.page(&[]);
    assert_eq!(page.matches("</script>").count(), 2, "of the data, and of the script");
    assert!(!page.contains("<img"));
    let of_svg = page.matches("http://www.w3.org/2000/svg").count();
    let anywhere = page.replace("http://192.0.2.1/x", "");
    assert_eq!(anywhere.matches("http").count(), of_svg + 1, "http-equiv, and the name of SVG");
    let Some(shown) = stored.shown("") else {
        return;
    };
    assert!(shown.contains("<title>dwell report: "), "{shown}");
    assert!(!shown.contains("<title>broken") && !shown.contains("<img"));
    assert!(shown.contains("a&amp;b &lt;i&gt;"));
    assert_eq!(figures(&shown, "network")[1], "5.00 ms");
}

#[test]
fn what_is_not_known_is_said() {
    let path = |segment, method, histogram, flow| PathRow {
        time_ns: BEGIN_NS + 1,
        length_ns: SECOND_NS,
        tx_host: Some("alone"),
        rx_host: None,
        flow,
        rx_flow: None,
        segment,
        resent: false,
        method,
        histogram,
        bound_ns: None,
        clamped: 0,
        doubtful: 0,
    };
    let histogram = times(&[(3_000_000, 4)]);
    let own = |segment, missing| IntervalRow {
        time_ns: BEGIN_NS + 1,
        time_clamped: false,
        length_ns: SECOND_NS,
        host: "alone",
        flow: None,
        namespace: None,
        segment,
        resent: false,
        histogram: if missing { &EMPTY } else { &histogram },
        hooks: missing.then_some(&UNHOOKED),
    };
    static UNHOOKED: SegmentHooks = SegmentHooks { from: None, to: None, missing: Some(Layer::TxSocket) };
    static EMPTY: std::sync::LazyLock<Histogram> = std::sync::LazyLock::new(Histogram::default);
    let stored = Stored::new(|store| {
        store.path(&path(PathSegment::Network, PathMethod::Estimated, &histogram, None))?;
        store.interval(&own(Segment::SocketTcp, true))?;
        store.interval(&own(Segment::Queueing, false))
    });
    stored.page(&[]);
    let Some(shown) = stored.shown("") else {
        return;
    };
    assert!(shown.contains("only one host has an agent"));
    assert!(shown.contains("network (estimated)"));
    assert!(shown.contains("missing: no hook for tx-socket here"));
    assert!(shown.contains("No flow is shown separately"));
    assert!(shown.contains("nothing to compare"));
    assert!(shown.contains("No clock was compared"));
    assert_eq!(figures(&shown, "network")[..2], ["4", "3.00 ms"]);
    assert_eq!(figures(&shown, "tx queueing")[1], "3.00 ms");
}

#[test]
fn a_page_does_not_take_the_place_of_its_store() {
    let stored = Stored::with(["web", "db"], 1);
    let store = stored.path("store");
    let store = store.to_str().unwrap();
    let before = std::fs::read(store).unwrap();
    let run = dwell(&["report", "--read", store, "--output", store]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("is the store"), "{run}");
    assert_eq!(std::fs::read(store).unwrap(), before);
}

#[test]
fn options_choose_what_is_in_the_page() {
    let stored = Stored::with(["web", "db"], 5);
    let capped = stored.report(&["--top", "2"]);
    assert_eq!(capped.status, Some(0), "{capped}");
    assert!(capped.stderr.contains("only the 2 of 5 flows with the most bytes are shown separately"), "{capped}");
    let page = stored.page(&["--flow", "10.78.0.1:40003", "--flow", "10.78.0.2"]);
    assert!(page.contains("10.78.0.1:40003") && !page.contains("10.78.0.1:40001"));
    if let Some(shown) = stored.shown("") {
        assert_eq!(figures(&shown, "network")[..2], ["200", "15.0 ms"]);
    }
    let page = stored.page(&["--host", "db", "--port", "5201"]);
    assert!(page.contains("10.78.0.1:40001"));
    // The last three seconds, and the first four.
    for (option, time, count) in [("--since", "3s", "300"), ("--until", "2026-11-21T14:00:04Z", "400")] {
        stored.page(&[option, time]);
        if let Some(shown) = stored.shown("") {
            assert_eq!(figures(&shown, "end-to-end")[0], count, "{option}");
        }
    }
    for (arguments, says) in [
        (&["--host", "elsewhere"][..], "there are: db, web"),
        (&["--port", "1"], "has nothing that matches"),
        (&["--since", "2027-01-01T00:00:00Z"], "has nothing that matches"),
        (&["--flow", "nowhere"], "write an address"),
        (&["--since", "yesterday"], "write a time"),
        (&["--top", "0"], "1..=10000"),
    ] {
        let run = stored.report(arguments);
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(says), "{run}");
    }
    for (store, says) in [
        // Nothing of a name acts on the terminal.
        ("\x1b[31mabsent", "/\u{fffd}[31mabsent: No such file"),
        ("", "is a directory"),
        ("page.html", "is not a store of dwell"),
    ] {
        let store = stored.path(store);
        let run = dwell(&["report", "--read", store.to_str().unwrap()]);
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(says), "{run}");
    }
    let store = stored.path("store");
    let printed = dwell(&["report", "--read", store.to_str().unwrap()]);
    assert!(printed.stdout.starts_with("<!doctype html>"), "{}", printed.stderr);
}

/// Pings of three hosts, of which the last one answers after 200 ms, and a verdict on a capture with a nasty name.
#[test]
fn what_other_verbs_have_stored_is_drawn_and_ranked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (store, page) = (path("store"), path("page.html"));
    let rtts_ms = [(1, 5.0), (2, 20.0), (3, 200.0)];
    let mut packets: Vec<_> = rtts_ms
        .into_iter()
        .flat_map(|(id, rtt_ms)| {
            (0..20).flat_map(move |seq| {
                let at_ms = f64::from(seq) * 300.0 + f64::from(id);
                [echo(at_ms, Sender::Client, id, seq), echo(at_ms + rtt_ms, Sender::Server, id, seq)]
            })
        })
        .chain(everyday())
        .collect();
    packets.sort_by(|one, other| one.at_ms.total_cmp(&other.at_ms));
    let measured = dwell_reading(&["rtt", "-r", "-", "--format", "none", "--store", &store], &capture(&packets));
    assert_eq!(measured.status, Some(0), "{measured}");
    let report = || {
        let run = dwell(&["report", "--read", &store, "--output", &page]);
        assert_eq!(run.status, Some(0), "{run}");
        let browsed = browse(folder.path(), &["--dump-dom", &format!("file://{page}")])?;
        assert!(!browsed.stderr.contains("CONSOLE"), "{browsed}");
        Some(browsed.stdout)
    };
    let Some(shown) = report() else { return };
    assert!(shown.contains("Round trips (rtt.sample)"), "{shown}");
    // The slowest ping comes first; all pings have the same two ends, which are one flow.
    let rows: Vec<_> =
        shown.split("data-rank=\"").skip(1).map(|row| row.split('"').next().unwrap().to_owned()).collect();
    assert_eq!(rows[0], "ICMP 192.0.2.1 → 198.51.100.7");
    let first = cells(&shown, "data-rank=\"ICMP 192.0.2.1 → 198.51.100.7");
    let [name, count, mean, p50, p90, p99, max] = &first[..7] else { panic!("{first:?}") };
    assert_eq!([name, count], ["ICMP 192.0.2.1 → 198.51.100.7", "61"]);
    // 20 times 5, 20 and 200 ms, and once 5.123456 ms.
    assert_eq!([mean, p50, p90, p99, max], ["73.9 ms", "20.1 ms", "200 ms", "200 ms", "200 ms"]);
    assert!(rows.iter().any(|row| row == "TCP 192.0.2.1:40000 → 198.51.100.7:443"), "{rows:?}");
    let heat = shown.split("class=\"heat\"").nth(1).unwrap().split("</g>").next().unwrap();
    assert!(heat.matches("<rect").count() >= 18, "{heat}");
    assert!(heat.contains("ms: 3</title>"), "cells say how many: {heat}");
    assert!(
        !shown.contains("id=\"segments\"") && shown.contains("id=\"s-verdicts\" aria-labelledby=\"h-verdicts\" hidden")
    );

    let nasty = path("<img src=x onerror=alert(1)>.pcap");
    std::fs::write(&nasty, capture(&everyday())).unwrap();
    let why = dwell(&["why", "-r", &nasty, "--format", "jsonl", "--store", &store]);
    let verdict = crate::records::objects(&why.stdout).pop().unwrap_or_else(|| panic!("{why}"));
    let shown = report().unwrap();
    assert!(!shown.contains("<img") && shown.contains("&lt;img src=x"), "{shown}");
    assert!(shown.contains(verdict["sentence"].as_str().unwrap()), "{shown}");
    // Of pings alone, the page has no other flows.
    let only = dwell(&["report", "--read", &store, "--port", "443"]);
    assert!(only.stdout.contains("192.0.2.1:40000") && !only.stdout.contains("\"ICMP"), "{}", only.stderr);
}

/// Two backends of one VIP, of which one fails in the third interval.
#[test]
fn backends_of_a_vip_are_side_by_side() {
    let latency = |mean_ns| LatencyObject {
        count: Some(10),
        mean_ns: Some(mean_ns),
        p99_ns: Some(3 * mean_ns),
        ..LatencyObject::default()
    };
    let latencies = [latency(2_000_000), latency(30_000_000)];
    let stored = Stored::new(|store| {
        (1..=4).try_for_each(|n| {
            [("quick", 0), ("<b>slow", 1)].into_iter().try_for_each(|(backend, at)| {
                let is_down = n > 2 && at == 1;
                store.backend(&BackendRow {
                    time_ns: BEGIN_NS + n * SECOND_NS.cast_signed(),
                    length_ns: SECOND_NS,
                    host: "edge",
                    vip: Some("web"),
                    backend,
                    address: "192.0.2.7".parse().unwrap(),
                    state: if is_down { "down" } else { "up" },
                    why: if is_down { "connection refused" } else { "" },
                    weight: 1.0,
                    share: if is_down { 0.0 } else { 0.5 },
                    active: 3,
                    tracked: None,
                    pending: 5 * at as u64,
                    pending_oldest_ns: None,
                    traffic: Some([300, 2_000, 90_000]),
                    latency: Some(&latencies[at]).filter(|_| !is_down),
                })
            })
        })
    });
    let page = stored.page(&[]);
    assert!(!page.contains("<b>slow"), "a name is markup");
    let Some(shown) = stored.shown("") else { return };
    assert!(shown.contains("<h3>VIP web, balancer edge</h3>"), "{shown}");
    let of = |name: &str| cells(&shown, &format!("data-backend=\"{name}"))[2..12].to_vec();
    let always = ["1", "1,200", "8,000", "3.0"];
    assert_eq!(of("quick"), [&["up", "50.0 %"][..], &always, &["0", "40", "2.00 ms", "6.00 ms"]].concat());
    assert_eq!(of("&lt;b&gt;slow"), [&["down", "0.0 %"][..], &always, &["5", "20", "30.0 ms", "90.0 ms"]].concat());
    assert_eq!(
        cells(&shown, "data-change=\"&lt;b&gt;slow"),
        ["2026-11-21 14:00:03", "&lt;b&gt;slow", "down", "connection refused"]
    );
    for chart in ["Response latency", "Waiting requests"] {
        assert!(shown.contains(&format!("<figcaption>{chart}</figcaption>")), "{chart}: {shown}");
    }
    assert!(!shown.contains("id=\"segments\""));
}

/// A million rows in an address space of 300 MB.
#[test]
fn a_large_store_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let store = path("store");
    let options = ["rtt", "-r", "-", "--format", "none", "--store", &store];
    assert_eq!(dwell_reading(&options, &capture(&crate::wire::pings(1))).status, Some(0));
    let db = rusqlite::Connection::open(&store).unwrap();
    db.execute_batch(
        "INSERT INTO flow (src, sport, dst, dport, proto, last_ns)
            WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 50000)
            SELECT '10.0.0.' || (n / 60000), n % 60000, '10.1.0.1', 443, 'TCP', 0 FROM n;
        WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000000)
        INSERT INTO latency (time_ns, interval_ns, type, what, flow_id, count, sum_ns, mean_ns, histogram, method)
            SELECT time_ns + 1000000000 * (n / 1000), 1000000000, type, what, 1 + n % 50000, count, sum_ns, mean_ns, histogram,
            method FROM n, (SELECT * FROM latency LIMIT 1)",
    )
    .unwrap();
    drop(db);
    let script = "ulimit -v 300000 && exec \"$1\" report -r \"$2\" --output \"$3\"";
    let run = run(Command::new("sh").args(["-c", script, "sh", DWELL, &store, &path("page.html")]), b"");
    assert_eq!(run.status, Some(0), "{run}");
    let page = std::fs::read_to_string(path("page.html")).unwrap();
    assert!(page.contains("\"count\":1000001") && page.len() < 1_000_000, "{} bytes", page.len());
}

/// From the connection to the page: two agents, a collector, and what a browser shows.
#[test]
fn root_what_agents_told_of_a_connection_is_in_the_page() {
    if skipped() {
        return;
    }
    let pair = Pair::start("report");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (key, store, port) = (path("key"), path("store"), PORT.to_string());
    assert_eq!(dwell(&["collect", "--new-key", &key]).status, Some(0));
    let at = "10.78.0.2:4790";
    let collect = ["collect", "--listen", at, "--key-file", &key, "--store", &store];
    let collector = spawn(&pair.right, DWELL, &collect);
    let agents = [(&pair.left, "client"), (&pair.right, "server")].map(|(namespace, name)| {
        let agent = [
            "agent",
            "--collector",
            at,
            "--key-file",
            &key,
            "--name",
            name,
            "--port",
            &port,
            "--sample-bytes",
            "64",
            "--buffer-dir",
            "none",
        ];
        let mut agent = spawn(namespace, DWELL, &agent);
        eventually("it stamps", || agent.has_ended() || links(agent.id()) >= 10);
        agent
    });
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    let told = || {
        let page = dwell(&["report", "--read", &store, "--host", "client"]);
        page.status == Some(0) && page.stdout.contains("\"tx\":0,\"rx\":1")
    };
    eventually("both hosts' bytes are joined", || {
        for _ in 0..20 {
            client.write_all(&[1; 640]).unwrap();
            server.read_exact(&mut [0; 640]).unwrap();
        }
        told()
    });
    for agent in agents {
        assert_eq!(agent.interrupt().status, Some(0));
    }
    assert_eq!(collector.interrupt().status, Some(0));
    let page = path("page.html");
    let run = dwell(&["report", "--read", &store, "--output", &page]);
    assert_eq!(run.status, Some(0), "{run}");
    let Some(run) = browse(folder.path(), &["--dump-dom", &format!("file://{page}")]) else {
        return;
    };
    assert!(!run.stderr.contains("CONSOLE"), "{run}");
    let shown = run.stdout;
    assert!(shown.contains("<option value=\"0\">client → server</option>"), "{shown}");
    let whole = figures(&shown, "end-to-end");
    assert_eq!(whole[6], "100.0 %");
    let bytes: u64 = whole[0].replace(',', "").parse().unwrap();
    assert!(bytes >= 10, "{whole:?}");
    for segment in ["tx total", "network", "rx total"] {
        assert_eq!(figures(&shown, segment)[0], whole[0], "{segment}");
    }
    let client = client.local_addr().unwrap().to_string();
    assert!(std::fs::read_to_string(&page).unwrap().contains(&client), "{client}");
}
