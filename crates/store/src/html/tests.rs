use std::sync::{LazyLock, OnceLock};

use dwell_engine::{histogram::Histogram, layers::Segment};
use dwell_records::LatencyObject;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{
    BackendRow, ClockRow, IntervalRow, Loss, LostRow, PathMethod, PathRow, Reader, Store, StoreError, Writing, Written,
    tests::{self, endpoint},
};

const SECOND_NS: i64 = 1_000_000_000;

fn store(write: impl FnOnce(&mut Writing<'_>) -> Written<()>) -> (TempDir, Reader) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    Store::open(&path).unwrap().write(write).unwrap();
    let reader = Reader::open(&path).unwrap();
    (folder, reader)
}

fn of(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    values.iter().for_each(|value| histogram.record(*value));
    histogram
}

fn interval(time_ns: i64, histogram: &Histogram, flow: Option<Ends>) -> IntervalRow<'_> {
    IntervalRow {
        time_ns,
        time_clamped: false,
        length_ns: SECOND_NS.cast_unsigned(),
        host: "here",
        flow,
        namespace: None,
        segment: Segment::TxTotal,
        resent: false,
        histogram,
        hooks: None,
    }
}

fn ends(port: u16) -> Ends {
    Ends { src: endpoint("192.0.2.1", port), dst: endpoint("2001:db8::1", 443) }
}

fn page(reader: &Reader, choice: &Choice) -> Page {
    let report = Report::read(reader, choice, 0).unwrap();
    report.expect("something of it").into_page()
}

fn choice() -> Choice {
    Choice { most_flows: 10, ..Choice::default() }
}

#[test]
fn pieces_of_time_hold_whole_intervals_and_their_figures() {
    let (_folder, reader) = store(|store| {
        for second in 1..=240i64 {
            let ns = second.cast_unsigned() * 100;
            store.interval(&interval(second * SECOND_NS, &of(&[ns, 3 * ns]), None))?;
        }
        Ok(())
    });
    let page = page(&reader, &choice());
    assert_eq!((page.from_ms, page.to_ms), (0.0, 240e3));
    // 240 s in at most 120 pieces; the end of one is in it, and not in the next
    assert_eq!(page.bin_ms, 3000.0);
    let [row] = &page.rows[..] else { panic!("{:?}", page.rows) };
    assert_eq!(row.times.len(), 80);
    // 100 300, 200 600, 300 900
    assert_eq!(row.times[0][..3], [0, 6, 400]);
    assert!((893..=900).contains(&row.times[0][3]), "{:?}", row.times[0]);
    assert_eq!(row.times[79][..2], [79, 6]);
    assert_eq!(row.count, 480);
    assert_eq!((row.min_ns, row.max_ns), (Some(100), Some(72_000)));
    let counts = row.buckets.iter().skip(1).step_by(2);
    assert_eq!(counts.sum::<u64>(), 480);
    assert_eq!(row.buckets[0], 100);
}

#[test]
fn what_was_sent_again_is_apart_and_ways_come_first() {
    let (_folder, reader) = store(|store| {
        let histogram = of(&[1000]);
        store.interval(&interval(SECOND_NS, &histogram, None))?;
        for (rx_host, resent, method, ns) in [
            (None, false, PathMethod::Estimated, 7),
            (Some("there"), false, PathMethod::Matched, 500),
            (Some("there"), true, PathMethod::Matched, 9000),
        ] {
            store.path(&PathRow {
                time_ns: SECOND_NS,
                length_ns: SECOND_NS.cast_unsigned(),
                tx_host: Some("here"),
                rx_host,
                flow: None,
                rx_flow: None,
                segment: if rx_host.is_some() { PathSegment::EndToEnd } else { PathSegment::Network },
                resent,
                method,
                histogram: &of(&[ns]),
                bound_ns: rx_host.map(|_| 40),
                clamped: u64::from(rx_host.is_some()),
                doubtful: 2 * u64::from(rx_host.is_some()),
            })?;
        }
        Ok(())
    });
    let page = page(&reader, &choice());
    let places: Vec<_> = page.places.iter().map(|place| (place.host, place.tx, place.rx)).collect();
    assert_eq!(page.hosts, ["here", "there"]);
    assert_eq!(places, [(None, Some(0), Some(1)), (None, Some(0), None), (Some(0), None, None)]);
    let row = |place| page.rows.iter().find(|row| row.place == place).unwrap();
    assert_eq!((row(0).count, row(0).max_ns), (1, Some(500)));
    assert_eq!((row(0).bound_ns, row(0).clamped, row(0).doubtful), (Some(40), 1, 2));
    assert!(row(1).estimated && !row(0).estimated);
    let resent: Vec<_> = page.resent.iter().map(|resent| (resent.place, resent.count, resent.mean_ns)).collect();
    assert_eq!(resent, [(0, 1, Some(9000))]);
}

#[test]
fn the_flows_with_most_bytes_are_told_apart() {
    let (_folder, reader) = store(|store| {
        for (port, bytes) in [(1, 5), (2, 50), (3, 20)] {
            let histogram = of(&vec![1000; bytes]);
            store.interval(&interval(SECOND_NS, &histogram, Some(ends(port))))?;
        }
        store.interval(&interval(SECOND_NS, &of(&[1000; 75]), None))
    });
    let two = Choice { most_flows: 2, ..choice() };
    let sources = |page: &Page| -> Vec<String> { page.flows.iter().map(|flow| flow.src.clone()).collect() };
    let most = page(&reader, &two);
    assert_eq!(sources(&most), ["192.0.2.1:2", "192.0.2.1:3"]);
    assert_eq!(most.flows_known, 3);
    let counts: Vec<_> = most.rows.iter().map(|row| (row.flow, row.count)).collect();
    assert_eq!(counts, [(None, 75), (Some(0), 50), (Some(1), 20)]);

    let one = Choice {
        ends: vec![FlowEnd { address: "192.0.2.1".parse().unwrap(), port: Some(1) }],
        port: Some(443),
        ..choice()
    };
    let one = page(&reader, &one);
    assert_eq!(sources(&one), ["192.0.2.1:1"]);
    assert!(!one.has_sums && one.rows.iter().all(|row| row.flow == Some(0)));
    let elsewhere = Choice { port: Some(5), ..choice() };
    assert!(Report::read(&reader, &elsewhere, 0).unwrap().is_none());
}

#[test]
fn damaged_rows_are_left_out_and_counted() {
    let (folder, reader) = store(|store| {
        store.interval(&interval(1, &of(&[1]), None))?;
        store.interval(&interval(2, &of(&[7]), None))
    });
    drop(reader);
    let path = folder.path().join("store");
    let damaged = rusqlite::Connection::open(&path).unwrap();
    let sql = "UPDATE interval SET histogram = x'0102' WHERE time_ns = 1";
    damaged.execute(sql, []).unwrap();
    let report = Report::read(&Reader::open(&path).unwrap(), &choice(), 0);
    let report = report.unwrap().unwrap();
    assert_eq!(report.damaged(), 1);
    assert_eq!(report.into_page().rows[0].count, 1);
}

#[test]
fn a_store_of_nothing_and_a_damaged_one_are_told() {
    let (_folder, empty) = store(|_| Ok(()));
    assert!(Report::read(&empty, &choice(), 0).unwrap().is_none());
    let (folder, reader) = store(|store| store.interval(&interval(1, &of(&[1]), None)));
    drop(reader);
    let path = folder.path().join("store");
    let damaged = rusqlite::Connection::open(&path).unwrap();
    damaged.execute("UPDATE interval SET histogram = x'0102'", []).unwrap();
    let error = Report::read(&Reader::open(&path).unwrap(), &choice(), 0).unwrap_err();
    assert!(matches!(error, StoreError::Sqlite { .. }));
    assert!(error.to_string().contains("the bytes of a histogram"), "{error}");
}

#[test]
fn a_reader_sees_what_there_was_and_leaves_the_writer_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut writer = Store::open(&path).unwrap();
    let mut add = || {
        writer.write(|store| store.interval(&interval(SECOND_NS, &of(&[1000]), None))).unwrap();
    };
    add();
    let reader = Reader::open(&path).unwrap();
    assert_eq!(page(&reader, &choice()).rows[0].count, 1);
    add();
    assert_eq!(page(&reader, &choice()).rows[0].count, 1);
    assert_eq!(page(&Reader::open(&path).unwrap(), &choice()).rows[0].count, 2);
}

#[test]
fn no_name_ends_the_element_of_the_data() {
    let (_folder, reader) = store(|store| {
        let histogram = of(&[1000]);
        let row = interval(SECOND_NS, &histogram, None);
        store.interval(&IntervalRow { host: "</script><b>&/* script */", ..row })
    });
    let html = Report::read(&reader, &choice(), 0).unwrap().unwrap().html();
    assert_eq!(html.matches("</script>").count(), 2);
    let (_, data) = html.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["hosts"][0], "</script><b>&/* script */");
    assert!(html.contains("\"use strict\""));
    for mark in ["/* style */", "/* data */", "/* charts */"] {
        assert!(!html.contains(mark), "{mark}");
    }
}

#[test]
fn a_missing_interval_is_not_an_idle_one() {
    let idle = Histogram::default();
    let (_folder, reader) = store(|store| {
        // Agents go on; `dwell stack --store` ends, and may be run again.
        ["here", "there"].into_iter().try_for_each(|host| store.batch(host, &[1; 16], (1, 1), 1).map(drop))?;
        for second in [1, 7] {
            let of_stack = IntervalRow { host: "elsewhere", ..interval(second * SECOND_NS, &idle, None) };
            store.interval(&of_stack)?;
        }
        store.interval(&interval(SECOND_NS, &of(&[1000]), None))?;
        // Two without traffic, three that are missing, and one more at the end that is missing.
        for second in [2, 3, 7, 8] {
            store.interval(&interval(second * SECOND_NS, &idle, None))?;
        }
        let other = IntervalRow { host: "there", ..interval(9 * SECOND_NS, &idle, None) };
        store.interval(&other)?;
        store.lost(&LostRow {
            time_ns: 7 * SECOND_NS,
            host: "here",
            run: &[1; 16],
            batches: (4, Some(6)),
            since_ns: Some(3 * SECOND_NS),
            until_ns: None,
            why: Loss::Gap,
        })
    });
    let page = page(&reader, &choice());
    let losses: Vec<_> =
        page.losses.iter().map(|loss| (loss.from_ms, loss.to_ms, loss.batches, loss.why.as_str())).collect();
    let silent = |from: f64, to: f64| (Some(from * 1e3), Some(to * 1e3), None, "silent");
    let gap = (Some(3e3), None, Some(3), "gap");
    // The latest end of an interval is 9 s: half of one is no silence, a whole one is not enough either.
    assert_eq!(losses, [gap, silent(3.0, 6.0)]);
    assert_eq!(page.losses_known, 2);
    assert!(page.html().contains("\"why\":\"gap\""));
}

/// A page shows at most 100 losses of each kind, and 200 verdicts.
#[test]
fn what_is_missing_of_a_host_is_shown_however_much_of_others_is() {
    let lost = |second, host| LostRow {
        time_ns: second * SECOND_NS,
        host,
        run: &[1; 16],
        batches: (1, Some(1)),
        since_ns: None,
        until_ns: None,
        why: Loss::Gap,
    };
    let idle = Histogram::default();
    let (folder, reader) = store(|store| {
        ["here", "there"].into_iter().try_for_each(|host| store.batch(host, &[1; 16], (1, 1), 1).map(drop))?;
        let interval = |second, host| IntervalRow { host, ..interval(second * SECOND_NS, &idle, None) };
        store.interval(&interval(1, "here"))?;
        store.lost(&lost(2, "here"))?;
        store.interval(&interval(4, "here"))?;
        for second in (5..).step_by(3).take(150) {
            store.interval(&interval(second, "there"))?;
            store.lost(&lost(second, "there"))?;
        }
        store.interval(&interval(5, "here"))
    });
    drop(reader);
    let path = folder.path().join("store");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(
        "INSERT INTO verdict (time_ns, host_id, target, outcome, sentence, observed_ns, connections, active_ns,
                causes, parts, facts, unseen, remedies)
            WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 201)
            SELECT 3000000000 + n, host_id, ':443', 'good', 'It is.', 1, 1, 1, '[]', '[]', '[]', '[]', '[]'
            FROM n, host WHERE name = iif(n = 0, 'here', 'there')",
    )
    .unwrap();
    drop(db);
    let reader = Reader::open(&path).unwrap();
    let all = page(&reader, &choice());
    assert_eq!((all.losses.len(), all.verdicts.len(), all.verdicts_known), (200, 200, 202));
    let here = page(&reader, &Choice { hosts: vec!["here".into()], ..choice() });
    let silent_from =
        |from_ms: f64| here.losses.iter().any(|loss| loss.why == "silent" && loss.from_ms == Some(from_ms));
    assert!(silent_from(1e3) && here.losses.iter().any(|loss| loss.why == "gap"), "{:?}", here.losses);
    // The last silence is the one after its last interval.
    assert_eq!((here.losses.len(), here.losses_known), (3, 3));
    assert_eq!((here.verdicts.len(), here.verdicts_known), (1, 1));
}

#[test]
fn a_clock_is_shown_with_its_worst_bound_and_its_latest_method() {
    let clock = |second, bound_ns, method| ClockRow {
        time_ns: second * SECOND_NS,
        host: "here",
        offset_ns: 0,
        bound_ns,
        drift_ppb: None,
        drift_bound_ppb: None,
        round_trip_ns: None,
        method,
        stepped: second == 1,
    };
    let (_folder, reader) = store(|store| {
        for (second, bound_ns, method) in [(1, 20, "xdp"), (2, 900, "socket"), (3, 30, "driver"), (4, 10, "generic")] {
            store.interval(&interval(second * SECOND_NS, &of(&[1000]), None))?;
            store.clock(&clock(second, bound_ns, method))?;
        }
        Ok(())
    });
    let clocks = page(&reader, &choice()).clocks;
    let clocks: Vec<_> = clocks.iter().map(|clock| (clock.bound_ns, clock.steps, clock.method.as_str())).collect();
    assert_eq!(clocks, [(900, 1, "generic")]);
}

fn backend(second: i64, name: &'static str, latency: Option<&'static LatencyObject>) -> BackendRow<'static> {
    BackendRow { time_ns: second * SECOND_NS, backend: name, latency, pending: 0, ..tests::backend() }
}

#[test]
fn backends_of_a_vip_have_their_figures_and_their_changes_of_state() {
    let known = |count, mean_ns, p99_ns| LatencyObject {
        count: Some(count),
        mean_ns: Some(mean_ns),
        p99_ns,
        ..LatencyObject::default()
    };
    static QUICK: LazyLock<LatencyObject> = LazyLock::new(LatencyObject::default);
    static OBJECTS: OnceLock<[LatencyObject; 2]> = OnceLock::new();
    let [one, three] = OBJECTS.get_or_init(|| [known(1, 1_000, Some(1_500)), known(3, 5_000, None)]);
    let (_folder, reader) = store(|store| {
        store.backend(&BackendRow { traffic: None, ..backend(1, "a", Some(one)) })?;
        store.backend(&BackendRow { pending: 3, active: 8, ..backend(2, "a", Some(three)) })?;
        store.backend(&BackendRow { state: "down", why: "refused", share: 0.0, ..backend(3, "a", Some(&QUICK)) })?;
        store.backend(&BackendRow { vip: None, state: "leaving", ..backend(3, "old", None) })?;
        store.backend(&backend(3, "b", None))
    });
    let page = serde_json::to_value(page(&reader, &choice())).unwrap();
    let shown = page["backends"]["shown"].as_array().unwrap();
    let names: Vec<_> = shown.iter().map(|backend| backend["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "old"], "those of no VIP come last");
    let of = |key: &str| &shown[0][key];
    assert_eq!((of("host"), of("vip"), of("address")), (&"edge".into(), &"web".into(), &"192.0.2.7".into()));
    assert_eq!((of("connections"), of("packets"), of("bytes")), (&4.into(), &40.into(), &400.into()));
    assert_eq!((of("count"), of("mean_ns"), of("p99_ns")), (&4.into(), &4_000.into(), &1_500.into()));
    assert_eq!((of("pending"), of("state"), of("share")), (&3.into(), &"down".into(), &0.0.into()));
    assert_eq!(of("active").as_f64().map(|active| (active * 3.0).round()), Some(16.0));
    assert_eq!(of("times"), &json!([[0, 1, 1000, 1500], [1, 3, 5000, 0]]));
    assert_eq!((of("waits"), &shown[1]["waits"]), (&json!([[0, 0], [1, 3], [2, 0]]), &json!([])));
    assert_eq!(of("changes"), &json!([{ "time_ms": 3000.0, "state": "down", "why": "refused" }]));
    assert_eq!((&shown[1]["mean_ns"], &shown[1]["changes_known"]), (&Value::Null, &0.into()));

    // Of a flow there is no backend.
    let flow = Choice { port: Some(443), ..choice() };
    assert!(Report::read(&reader, &flow, 0).unwrap().is_none());
    let elsewhere = Choice { hosts: vec!["other".into()], ..choice() };
    assert!(Report::read(&reader, &elsewhere, 0).unwrap().is_none());
}

/// Of more flows than are kept apart, the last one is the slowest, and the only one of its peer and its process.
#[test]
fn peers_and_processes_have_the_latencies_of_all_flows() {
    const FLOWS: i64 = 30_000;
    let (folder, reader) = store(|_| Ok(()));
    drop(reader);
    let path = folder.path().join("store");
    let db = rusqlite::Connection::open(&path).unwrap();
    let histogram = |ns| of(&[ns]).to_bytes();
    db.execute_batch("INSERT INTO host VALUES (1, 'here')").unwrap();
    db.execute_batch(&format!(
        "INSERT INTO names (names_id, src_process, dst_process, last_ns) VALUES (1, 'client', 'quick', 0), (2, 'client', 'slow', 0);
        WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {FLOWS})
            INSERT INTO flow SELECT n, '10.' || (n / 62500) || '.' || (n / 250 % 250) || '.' || (n % 250), 1024,                 iif(n = {FLOWS}, '192.0.2.2', '192.0.2.1'), 443, 'TCP', NULL, 0 FROM n"
    ))
    .unwrap();
    for second in 1..=2 {
        db.execute(
            &format!(
                "INSERT INTO latency (time_ns, interval_ns, host_id, type, what, flow_id, names_id, count, histogram)
                    SELECT {second}000000000, 1000000000, 1, 'rtt.sample', 'latency', flow_id, iif(flow_id = {FLOWS}, 2, 1), 1,
                        iif(flow_id = {FLOWS}, ?1, ?2) FROM flow ORDER BY flow_id"
            ),
            [histogram(900_000), histogram(1_000)],
        )
        .unwrap();
    }
    drop(db);
    let page = serde_json::to_value(page(&Reader::open(&path).unwrap(), &choice())).unwrap();
    let set = &page["latency"]["sets"][0];
    let ranking = |by: &str| -> Vec<(String, u64, u64)> {
        let groups = set["groups"].as_array().unwrap().iter().filter(|group| group["by"] == by);
        let figures = |group: &serde_json::Value| {
            let number = |key: &str| group[key].as_u64().unwrap();
            (group["name"].as_str().unwrap().to_owned(), number("count"), number("max_ns"))
        };
        groups.map(figures).collect()
    };
    let all = FLOWS.cast_unsigned();
    let slow = |name: &str| (name.to_owned(), 2, 900_000);
    assert_eq!(ranking("peer"), [slow("192.0.2.2"), ("192.0.2.1".into(), 2 * (all - 1), 1_000)]);
    let client = ("client".into(), 2 * all, 900_000);
    assert_eq!(ranking("process"), [slow("slow"), client, ("quick".into(), 2 * (all - 1), 1_000)]);
    let unranked = |by: &str| set["unranked"][by].as_u64().unwrap();
    assert_eq!((unranked("peer"), unranked("process")), (0, 0));
    assert_eq!(unranked("flow"), 2 * (all - 20_000));
}

#[test]
fn a_flow_whose_addresses_are_translated_is_shown_and_found_as_both_hosts_see_it() {
    let (_folder, reader) = store(|store| {
        store.path(&PathRow {
            time_ns: SECOND_NS,
            length_ns: SECOND_NS.cast_unsigned(),
            tx_host: Some("here"),
            rx_host: Some("there"),
            flow: Some(ends(1)),
            rx_flow: Some(ends(1_024)),
            segment: PathSegment::EndToEnd,
            resent: false,
            method: PathMethod::Matched,
            histogram: &of(&[1000]),
            bound_ns: None,
            clamped: 0,
            doubtful: 0,
        })
    });
    let shown = page(&reader, &Choice { port: Some(1_024), ..choice() });
    let Ends { src, dst } = ends(1_024);
    let flows: Vec<_> = shown.flows.iter().map(|flow| (flow.src.as_str(), flow.rx.clone())).collect();
    assert_eq!(flows, [("192.0.2.1:1", Some(format!("{src} → {dst}")))]);
    assert_eq!(shown.rows.len(), 1);
}

/// Somebody's file, or one whose disk has failed.
#[test]
fn values_that_cannot_be_true_end_no_report() {
    let (most, least) = (i64::MAX, i64::MIN);
    for change in [
        format!("interval SET interval_ns = {most}"),
        format!("interval SET interval_ns = {least}"),
        format!("latency SET interval_ns = {most}"),
        format!("backend SET interval_ns = {most}"),
        format!("interval SET time_ns = CASE WHEN time_ns > 1000000000 THEN {most} ELSE {least} END"),
        format!("latency SET time_ns = CASE WHEN time_ns > 1000000000 THEN {most} ELSE {least} / 2 END"),
        format!("interval SET count = {most}"),
        format!("path SET clamped = {most}, doubtful = {most}, bound_ns = {most}, count = {most}"),
        format!("latency SET count = {most}, mean_ns = {most}"),
        format!("backend SET active = {most}, packets = {most}, bytes = {most}, count = {most}, mean_ns = {most}"),
        format!("clock SET bound_ns = -1, stepped = {most}"),
        format!("lost SET from_batch = {least}, to_batch = {most}, from_ns = {most}, to_ns = {least}"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let histogram = of(&[5]);
        let written = Store::open(&path).unwrap().write(|store| {
            (1..=3).try_for_each(|second| {
                let time_ns = second * SECOND_NS;
                store.interval(&interval(time_ns, &histogram, Some(ends(1))))?;
                store.backend(&BackendRow { time_ns, ..tests::backend() })
            })
        });
        written.unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        let time = "SELECT time_ns, host_id";
        db.execute_batch(&format!(
            "INSERT INTO path (time_ns, tx_host_id, interval_ns, flow_id, segment, retransmitted, method, count, sum_ns, histogram,
                clamped, doubtful)
                {time}, 5, flow_id, 'end-to-end', 0, 'matched', count, sum_ns, histogram, 0, 0 FROM interval;
            INSERT INTO clock (time_ns, host_id, offset_ns, bound_ns, method, stepped) {time}, 0, 1, 'xdp', 0 FROM interval;
            INSERT INTO lost {time}, 'run', 1, 2, 3, 4, 'gap' FROM interval;
            INSERT INTO latency (time_ns, host_id, type, what, interval_ns, count, mean_ns, histogram)
                {time}, 'rtt.sample', 'latency', 5, count, 5, histogram FROM interval"
        ))
        .unwrap();
        let changed = db.execute(&format!("UPDATE {change}"), []).unwrap();
        assert_eq!(changed, 3, "{change}");
        let reader = Reader::open(&path).unwrap();
        let report = Report::read(&reader, &choice(), 0).unwrap_or_else(|error| panic!("{change}: {error}"));
        assert!(report.is_some_and(|report| report.html().len() > 1_000), "{change}");
    }
}
