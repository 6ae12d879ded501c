//! Weights that follow measured latency, and what a store has of them.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use rusqlite::Connection;

use crate::{
    scene::Scene,
    support::{dwell, eventually, skipped},
    traffic::events,
};

#[test]
fn root_a_slow_backend_loses_weight_and_the_others_gain_it() {
    a_slow_backend_loses_weight("slow", "interval = \"200ms\"");
}

/// The paper's estimator needs several gaps between packets in an interval.
#[test]
fn root_the_papers_estimator_steers_too() {
    a_slow_backend_loses_weight("slow-pirate", "interval = \"500ms\"\nestimator = \"pirate\"");
}

fn a_slow_backend_loses_weight(name: &str, settings: &str) {
    if skipped() {
        return;
    }
    let scene = Scene::new(name, 3);
    let vip = "policy = \"latency\"\nlatency = { rate = 0.5, cap = 1.0, floor = 0.1, regress = 0 }";
    scene.configure(settings, vip, &[0, 1, 2]);
    scene.run();
    let load = scene.load(45);
    load.go_on();
    eventually("the slow one has at most half of its part", || {
        // Requests at regular times would look like a timer to the paper's estimator.
        for (server, delay_ms) in scene.servers.iter().zip([8, 8, 40]) {
            let last = server.delay_ms.load(Ordering::Relaxed);
            server.delay_ms.store(if last == delay_ms { 3 * delay_ms } else { delay_ms }, Ordering::Relaxed);
        }
        // Requests that wait may tell before the first of its answers does.
        let slow = scene.backend(2);
        slow["share"].as_f64() < Some(0.167) && slow["latency"]["mean_ns"].as_f64() > Some(40e6)
    });
    let status = scene.status();
    let backends = status["vips"][0]["backends"].as_array().unwrap();
    let total: f64 = backends.iter().map(|backend| backend["weight"].as_f64().unwrap()).sum();
    assert!((total - 3.0).abs() < 1e-6, "weight is conserved: {status}");
    assert!(backends[2]["weight"].as_f64().unwrap() >= 0.0999, "the floor holds: {status}");
    let latency = |server: usize| backends[server]["latency"]["mean_ns"].as_f64().map(|ns| ns / 1e9);
    assert!(latency(2) > Some(0.04), "{status}");
    assert!(latency(2) < Some(0.4), "{status}");
    // The paper's estimator knows no single responses.
    let percentile = |name: &str| backends[2]["latency"][name].as_f64();
    assert_eq!(percentile("p99_ns").is_none(), name == "slow-pirate", "{status}");
    assert!(percentile("p50_ns") <= percentile("p90_ns") && percentile("p90_ns") <= percentile("p99_ns"), "{status}");
    assert!(percentile("p99_ns").is_none_or(|ns| (40e6..400e6).contains(&ns)), "{status}");
    assert_eq!(load.end(), [""; 0]);
    let run = scene.end();
    let weights = events(&run.stdout, "lb.weights");
    let last = &weights.last().unwrap()["backends"];
    assert_eq!(last[2]["backend"], "s2");
    assert!(last[2]["weight"].as_f64() < Some(0.6), "{last}");
}

/// Most of 360 connections wait at any time: 120 for each backend, of which none of 15 to be measured is one in 100,000.
#[test]
fn root_a_sample_of_connections_shows_which_backend_is_slow() {
    if skipped() {
        return;
    }
    let scene = Scene::new("sample", 3);
    let vip = "policy = \"latency\"\nmeasure = \"1/8\"\n\
               latency = { rate = 0.5, cap = 1.0, floor = 0.1, regress = 0, min_connections = 2 }";
    scene.configure("interval = \"200ms\"", vip, &[0, 1, 2]);
    for (server, delay_ms) in scene.servers.iter().zip([100, 100, 400]) {
        server.delay_ms.store(delay_ms, Ordering::Relaxed);
    }
    scene.run();
    assert_eq!(scene.status()["vips"][0]["measured"], 0.125);
    assert!(scene.ok(&["status"]).contains(", 1/8 of connections measured"));
    let load = scene.load(360);
    load.go_on();
    let waiting = || (0..3).map(|server| scene.backend(server)["pending"]["requests"].as_u64().unwrap()).sum::<u64>();
    // Each of those that are measured counts as eight. Four standard deviations from 45 of these.
    eventually("one of eight is measured", || waiting() % 8 == 0 && (160..=560).contains(&waiting()));
    eventually("the slow one has at most half of its part", || {
        let slow = scene.backend(2);
        slow["share"].as_f64() < Some(0.167) && slow["latency"]["mean_ns"].as_f64() > Some(0.4e9)
    });
    let fresh = scene.backend(0)["freshness"].as_f64();
    assert!(fresh > Some(0.3), "requests of the sample stand for all: {fresh:?}");
    assert_eq!(load.end(), [""; 0]);
}

/// Its answers take longer than anything that counts as a response, so none of them says so.
#[test]
fn root_a_backend_that_answers_nothing_any_more_loses_weight() {
    if skipped() {
        return;
    }
    let scene = Scene::new("stalled", 3);
    let vip = "policy = \"latency\"\nlatency = { rate = 0.5, cap = 1.0, floor = 0.1, regress = 0 }";
    scene.configure("interval = \"200ms\"", vip, &[0, 1, 2]);
    scene.run();
    let load = scene.load(45);
    load.go_on();
    let is_known = |server| scene.backend(server)["latency"].is_object();
    eventually("all are measured", || (0..3).all(is_known));
    scene.servers[2].delay_ms.store(8_000, Ordering::Relaxed);
    eventually("the stalled one has at most half of its part", || scene.backend(2)["share"].as_f64() < Some(0.167));
    eventually("its requests wait for a second", || {
        let stalled = scene.backend(2);
        let is_late = |figure: &str| stalled.pointer(figure).and_then(|ns| ns.as_u64()) >= Some(1 << 29);
        is_late("/pending/oldest_ns") && is_late("/latency/mean_ns")
    });
    scene.servers[2].delay_ms.store(0, Ordering::Relaxed);
    assert_eq!(load.end(), [""; 0]);
}

#[test]
fn root_maglev_measures_nothing_and_moves_nothing() {
    if skipped() {
        return;
    }
    let scene = Scene::new("plain", 2);
    scene.configure("interval = \"200ms\"", "", &[0, 1]);
    scene.servers[1].delay_ms.store(20, Ordering::Relaxed);
    scene.run();
    let load = scene.load(20);
    load.go_on();
    let packets = || scene.backend(1)["packets"].as_u64().unwrap();
    let before = packets();
    eventually("intervals pass", || packets() > before + 100);
    let backend = scene.backend(1);
    assert_eq!((&backend["weight"], &backend["reason"]), (&1.0.into(), &"configured".into()));
    assert!(backend["latency"].is_null(), "{backend}");
    assert_eq!(load.end(), [""; 0]);
    // The first table is still in use.
    assert_eq!(events(&scene.end().stdout, "lb.weights").len(), 0);
}

/// What restarts it waits for its end.
#[test]
fn root_a_balancer_whose_store_is_locked_ends_soon_and_tells_what_is_missing() {
    if skipped() {
        return;
    }
    let scene = Scene::new("locked", 1);
    scene.configure("interval = \"200ms\"", "", &[0]);
    let store = scene.path("store");
    scene.run_with(&["--store", &store]);
    let db = Connection::open(&store).unwrap();
    let rows = || db.query_row("SELECT count(*) FROM backend", [], |row| row.get::<_, i64>(0)).unwrap();
    eventually("an interval is stored", || rows() > 0);
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The time that the control loop works is another one in each interval.
    let mut times = BTreeSet::new();
    eventually("intervals pass", || {
        times.insert(scene.status()["interval_work_ns"].as_u64());
        times.len() > 3
    });
    let run = scene.end();
    assert_eq!(run.status, Some(4), "{run}");
    assert!(run.stderr.contains("waiting for the store") && run.stderr.contains("; 2s at most"), "{run}");
    assert!(run.stderr.contains(" rows are missing in the store "), "{run}");
}

#[test]
fn root_what_each_backend_did_in_each_interval_is_in_the_store_and_in_the_page() {
    if skipped() {
        return;
    }
    let scene = Scene::new("stored", 2);
    scene.configure("interval = \"200ms\"", "policy = \"latency\"", &[0, 1]);
    let store = scene.path("store");
    scene.run_with(&["--store", &store]);
    let db = Connection::open(&store).unwrap();
    let count = |condition: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM backends WHERE {condition}");
        db.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    eventually("an interval is stored", || count("connections IS NOT NULL") > 0);
    scene.servers.iter().for_each(|server| server.delay_ms.store(8, Ordering::Relaxed));
    let load = scene.load(20);
    load.go_on();
    eventually("all are stored", || {
        let sum = "SELECT ifnull(sum(connections), 0) FROM backends";
        db.query_row(sum, [], |row| row.get::<_, i64>(0)).unwrap() == 20
    });
    eventually("latencies are stored", || count("mean_ns > 0 AND count > 0") > 0);
    scene.ok(&["drain", "web/s1"]);
    eventually("the drain is stored", || count("backend = 's1' AND state = 'draining' AND share = 0") > 0);
    assert_eq!(load.end(), [""; 0]);
    let run = scene.end();
    assert_eq!(run.status, Some(0), "{run}");

    // Each interval has both backends, and only the first one does not know what was new.
    let (rows, ends, unknown): (i64, i64, i64) = db
        .query_row(
            "SELECT count(*), count(DISTINCT time_ns), sum(connections IS NULL) FROM backends
                WHERE vip = 'web' AND interval_ns = 200000000 AND backend IN ('s0', 's1')",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!((rows, unknown), (2 * ends, 2));
    assert!(count("active > 0 AND packets > 0 AND bytes > packets AND address IN ('10.79.0.3', '10.79.0.4')") > 0);
    let page = dwell(&["report", "--read", &store]);
    assert_eq!(page.status, Some(0), "{}", page.stderr);
    let (_, data) = page.stdout.split_once("id=\"data\">").unwrap();
    let data: serde_json::Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let shown = data["backends"]["shown"].as_array().unwrap();
    let connections: u64 = shown.iter().map(|backend| backend["connections"].as_u64().unwrap()).sum();
    assert_eq!((shown.len(), connections), (2, 20), "{}", data["backends"]);
    assert_eq!((&shown[1]["name"], &shown[1]["state"]), (&"s1".into(), &"draining".into()));
    let changes = shown[1]["changes"].as_array().unwrap();
    assert_eq!(changes.last().map(|change| &change["state"]), Some(&"draining".into()), "{}", data["backends"]);
}
