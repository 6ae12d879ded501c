//! `dwell-lab sim`: the tables of a paper.

use std::fs;

use crate::support::lab;

#[test]
fn the_papers_tables_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("paper.html");
    let run = lab(&["sim", "paper", "--runs", "1", "--plot", page.to_str().unwrap()]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    for title in [
        "Synthetic trace, 64 servers, 1 runs",
        "DoH-like trace, 64 servers",
        "the load of 64 servers, as in Figure 8",
        "in proportion to servers, as in Figure 9",
    ] {
        assert!(run.stdout.contains(title), "{title}: {run}");
    }
    let goals: Vec<&str> = run.stdout.lines().filter(|line| line.ends_with(" met")).collect();
    for goal in ["0-RTT of all that could", "0-RTT of short ones", "TTFB p60", "TTFB p90", "FCT p60", "load over"] {
        assert!(goals.iter().any(|line| line.starts_with(goal)), "{goal}: {run}");
    }
    // DoH: the same words a second time
    assert_eq!(goals.iter().filter(|line| line.starts_with("0-RTT of all")).count(), 2, "{run}");
    assert!(fs::read_to_string(page).unwrap().contains("Imbalance"));
}
