//! `dwell-lab sim`: the tables of a paper, and policies in many settings.

use std::fs;

use crate::support::{lab, objects};

#[test]
fn the_papers_figures_stand_next_to_those_of_the_simulation() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("paper.html");
    let run = lab(&["sim", "paper", "--runs", "1", "--plot", page.to_str().unwrap()]);
    assert_eq!(run.stderr, "", "{run}");
    for title in [
        "Synthetic trace, 64 servers, 1 runs, as in Figures 8a and 8b and Table III",
        "DoH-like trace, 64 servers, as in Table III",
        "the load of 64 servers, as in Figure 9a",
        "in proportion to servers, as in Figure 9b",
    ] {
        assert!(run.stdout.contains(title), "{title}: {run}");
    }
    let [met, missed] = [" met", " missed"]
        .map(|verdict| run.stdout.lines().filter(|line| line.ends_with(verdict)).map(words).collect::<Vec<_>>());
    assert_eq!(met.len() + missed.len(), 34, "{run}");
    assert_eq!(run.status, Some(if missed.is_empty() { 0 } else { 1 }), "{run}");
    // What follows from the numbers of clients, connections and servers is certain.
    let is_met = |name: &str| met.iter().any(|line| line.join(" ").starts_with(name));
    for name in ["least-loaded: TTFB p60", "least-loaded: 0-RTT", "session-affinity: 0-RTT of short ones"] {
        assert!(is_met(name), "{name}: {run}");
    }
    // The sweeps have the three policies of the paper with five numbers of servers each.
    let sweeps = run.stdout.lines().filter(|line| words(line).get(1) == Some(&"session-affinity"));
    assert_eq!(sweeps.count(), 2 * 5, "{run}");
    assert!(fs::read_to_string(page).unwrap().contains("Imbalance"));
}

#[test]
fn every_policy_has_its_tail_in_each_setting_and_missed_goals_show_in_the_exit_status() {
    let run = lab(&["sim", "tail", "half-older", "alike-0.3", "--runs", "1", "--format", "jsonl"]);
    let tails = objects(&run);
    assert_eq!(tails.len(), 2 * 5, "{run}");
    let p99 = |setting: &str, policy: &str| {
        let tail = tails.iter().find(|tail| tail["setting"] == setting && tail["policy"] == policy);
        tail.unwrap()["p99_ns"].as_u64().unwrap()
    };
    assert!(p99("half-older", "latency") * 10 < p99("half-older", "maglev") * 6, "{run}");
    assert!(p99("half-older", "latency") < p99("half-older", "least-connections"), "{run}");
    // Where servers are alike and have little to do, no policy cuts the tail by 40 %.
    assert_eq!(run.status, Some(1), "{run}");
    let text = lab(&["sim", "tail", "half-older", "--runs", "1"]);
    assert_eq!(text.status, Some(0), "{text}");
    assert!(text.stdout.lines().any(|line| line.starts_with("half-older") && line.ends_with("met")), "{text}");
    let unknown = lab(&["sim", "tail", "nothing"]);
    assert_eq!(unknown.status, Some(2), "{unknown}");
    assert!(unknown.stderr.contains("heavy-tailed"), "{unknown}");
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}
