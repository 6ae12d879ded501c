//! `dwell-lab cost`: what one can measure in a moment.

use crate::support::{lab, skipped};

#[test]
fn root_the_control_plane_is_measured_and_a_quick_run_decides_no_goal() {
    if skipped() {
        return;
    }
    let figures = |row: &str| {
        let run = lab(&["cost", "control", "--quick", "--row", row]);
        assert_eq!(run.status, Some(4), "{run}");
        let rows = run.stdout.lines().filter(|line| line.ends_with(" ms"));
        let figures = rows.map(|line| line.split_whitespace().rev().nth(1).unwrap_or_default().parse().unwrap());
        let figures: Vec<f64> = figures.collect();
        assert!(figures.iter().all(|ms| *ms > 0.0), "{run}");
        figures.len()
    };
    assert_eq!(figures("a reload of 30 VIPs with 10 backends"), 1);
    assert_eq!(figures("first sample"), 1);
}
