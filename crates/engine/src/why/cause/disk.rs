//! The local program waits for a disk, and the connection for the program.

use super::*;

/// The share of the time in which a thread waited for a disk.
pub(super) const MIN_DISK: f64 = 0.3;

pub(super) const RULE: Rule = Rule {
    name: "disk",
    sentence: "The local program waits for a disk, and the connections for the program: they waited",
    parts: &[Part::Reader, Part::Service, Part::Application],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let is_why = evidence.process.is_some_and(|it| it.disk >= MIN_DISK && it.disk >= it.waiting_thread);
    slow_program(evidence, RULE.parts, is_why)
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    vec![
        remedy("iostat -x 1 5".to_owned(), "shows which disk is busy, and how long its requests take"),
        remedy(
            format!("sudo strace -f -c -w -p {}", pid(evidence)),
            "shows in which calls the program waits: fsync and O_SYNC wait for the disk itself (Ctrl-C ends it)",
        ),
    ]
}
