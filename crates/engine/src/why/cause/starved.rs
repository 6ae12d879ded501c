//! The local program waits for a processor, and the connection for the program.

use super::*;

/// The share of the time in which a thread was ready to run and did not, from which that is what slows the program down.
pub(super) const MIN_WAITING: f64 = 0.25;

pub(super) const RULE: Rule = Rule {
    name: "starved",
    sentence: "The local program waits for a processor, and the connections for the program: they waited",
    parts: &[Part::Reader, Part::Service, Part::Application],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let is_why = evidence.process.is_some_and(|it| it.waiting_thread >= MIN_WAITING && it.waiting_thread > it.disk);
    slow_program(evidence, RULE.parts, is_why)
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    let pid = pid(evidence);
    vec![
        remedy(
            "top -b -n 1 | head -n 20".to_owned(),
            "shows who uses the processors: move that away, or the program to another host",
        ),
        remedy(format!("sudo renice -n -5 -p {pid}"), "gives the program precedence"),
        remedy(
            format!("cat /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/{pid}/cgroup)/cpu.max"),
            "shows whether a limit keeps the program from running: QUOTA and PERIOD in microseconds, or max",
        ),
    ]
}
