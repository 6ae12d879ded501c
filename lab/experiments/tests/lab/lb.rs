//! `dwell-lab lb`: a balancer between real clients and servers.

use std::{thread, time::Duration};

use dwell_experiments::lb::{Options, Outcome, Policy, Scenario, Star, Work, run};
use dwell_testbed::{CpuGroups, skip::skip};
use serde_json::Value;

use crate::support::{lab, objects, programs, skipped};

fn outcome(star: &Star, scenario: Scenario, policy: Policy, seconds: u64) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        scenario,
        policy,
        load: 0.4,
        time: Duration::from_secs(seconds),
        work: Work::Exponential(scenario.work()),
        requests: 4,
        settings: Vec::new(),
        seed: 1,
        dwell: programs().dwell,
        folder: folder.path().to_owned(),
    };
    run(star, &options).unwrap()
}

/// A server is ten times slower from the tenth second on.
#[test]
fn root_a_slow_server_gets_less_by_latency_and_the_same_by_maglev() {
    if skipped() {
        return;
    }
    let slowed = |policy| outcome(&Star::start().unwrap(), Scenario::Slowed, policy, 17);
    let (plain, steered) = thread::scope(|scope| {
        let plain = scope.spawn(|| slowed(Policy::Maglev));
        let steered = slowed(Policy::Latency);
        (plain.join().unwrap(), steered)
    });
    assert_eq!(plain.weight_changes, []);
    assert!(plain.answered.iter().all(|answered| *answered > 0));
    assert_eq!((plain.clients.broken.len(), steered.clients.broken.len()), (0, 0));
    let of_slow = |at: usize| {
        let weights = &steered.weight_changes[at].weights;
        let slow = weights.iter().find(|weight| weight.server == "server1");
        slow.unwrap().share
    };
    let last = steered.weight_changes.len() - 1;
    assert!(of_slow(last) < 0.2, "{:?}", steered.weight_changes);
    let total = steered.weight_changes[last].weights.iter();
    let total: f64 = total.map(|weight| weight.share).sum();
    assert!((total - 1.0).abs() < 1e-6, "{total}");
    // Arrivals are the same, though answers come later.
    assert_eq!(plain.clients.connections, steered.clients.connections);
    assert_eq!(plain.clients.answers.len(), steered.clients.answers.len());
}

#[test]
fn root_a_server_that_is_added_gets_connections_and_none_breaks() {
    if skipped() {
        return;
    }
    let star = Star::start().unwrap();
    let outcome = outcome(&star, Scenario::Added, Policy::Maglev, 14);
    assert_eq!(outcome.clients.broken.len(), 0);
    assert!(outcome.answered[3] > 0, "{:?}", outcome.answered);
    assert!(outcome.answered[3] < outcome.answered[0]);
}

/// A neighbour uses up a server's share of a processor, which then stalls until the next period of 100 ms.
#[test]
fn root_servers_that_compute_stall_where_they_share_their_limit() {
    if skipped() {
        return;
    }
    if let Err(error) = CpuGroups::create() {
        return skip(error);
    }
    let star = Star::start().unwrap();
    let outcome = outcome(&star, Scenario::Shared, Policy::Maglev, 5);
    assert_eq!((outcome.clients.broken.len(), outcome.late_p99), (0, None));
    assert!(outcome.answered.iter().all(|answered| *answered > 0), "{:?}", outcome.answered);
    let latency = |share| outcome.quantile(share, Duration::ZERO, Duration::MAX).unwrap();
    assert!(latency(0.5) < Duration::from_millis(20), "{:?}", latency(0.5));
    assert!(latency(0.99) > Duration::from_millis(50), "{:?}", latency(0.99));
}

#[test]
fn root_a_run_prints_one_object_per_policy_and_leaves_nothing_behind() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().to_str().unwrap();
    let arguments = ["--loads", "0.3,0.5", "--duration", "3s", "--format", "jsonl"];
    let run = lab(&[&["lb", "think", "--keep-in", keep], &arguments[..]].concat());
    // Three seconds do not decide whether p99 meets its goal.
    assert!(matches!(run.status, Some(0 | 1)), "{run}");
    let objects = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    let objects: Vec<Value> = objects.take(4).collect();
    let policies: Vec<_> = objects.iter().map(|o| o["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["maglev", "latency", "maglev", "latency"]);
    for object in &objects {
        assert_eq!((&object["type"], &object["broken"]), (&"lab.lb".into(), &0.into()));
        let answered = object["answered"].as_array().unwrap();
        let answered: u64 = answered.iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(object["requests"].as_u64(), Some(answered));
        // No response is faster than its server: half of the exponential times are above 3 ms.
        assert!(object["p50_ns"].as_u64().unwrap() > 3_000_000);
    }
    assert!(folder.path().join("think.svg").exists());
    assert!(folder.path().join("think-0.5-0-latency.svg").exists());
}

#[test]
fn root_other_balancers_spread_the_same_load() {
    if skipped() {
        return;
    }
    let run = lab(&["lb", "compare", "--duration", "6s", "--format", "jsonl"]);
    // A busy machine may miss goals, and 6 s leave some undecided.
    assert!(matches!(run.status, Some(0 | 1 | 4)), "{run}");
    let objects = objects(&run);
    let found = |name: &str| objects.iter().find(|object| object["balancer"] == name);
    for name in ["dwell lb, latency", "dwell lb, maglev"] {
        assert!(found(name).is_some(), "{name}: {run}");
    }
    // Those that are not installed are named.
    for name in ["HAProxy, leastconn", "nginx, least_conn", "IPVS, wlc"] {
        let left_out = run.stderr.contains(&format!("left out: {name}: "));
        assert_eq!(found(name).is_none(), left_out, "{name}: {run}");
    }
    for object in &objects {
        assert_eq!(object["broken"], 0.0, "{object}");
        // No response is faster than its server: half of the exponential times are above 3 ms.
        assert!(object["p50_ms"].as_f64() > Some(3.0), "{object}");
        assert!(object["all_us"].as_f64() > Some(0.0) && object["busy_rate"].as_f64() > Some(0.0), "{object}");
    }
}
