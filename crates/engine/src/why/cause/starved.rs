//! The local program waits for a processor, and the connection for the program.

use super::*;

/// The share of the time in which a thread was ready to run and did not, from which that is what slows the program down.
pub(super) const MIN_WAITING: f64 = 0.25;

/// Less of the time in which somebody waited leaves most of it to something else.
const MOST: f64 = 0.5;

pub(super) const RULE: Rule = Rule {
    name: "starved",
    sentence: "The local program waits for a processor, and the connections for the program: they waited",
    parts: &[Part::Reader, Part::Service, Part::Application],
    assess,
    remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let waits = |it: Process| it.waiting_thread >= MIN_WAITING && it.waiting_thread > it.disk && !it.may_be_background;
    let is_why = evidence.process.is_some_and(waits);
    let mut assessment = slow_program(evidence, RULE.parts, is_why);
    // What a thread slept is something else's, whoever waited meanwhile.
    let awaited = (evidence.sums.times.sum(RULE.parts) / evidence.observed_ns.max(1) as f64).min(1.0);
    let of_awaited = evidence.process.filter(|_| awaited > 0.0).map(|it| (it.waiting_thread / awaited).min(1.0));
    let what = "that, of the time in which somebody waited for the program";
    let fact = share(what, of_awaited, "/proc/PID/task/*/schedstat, polls");
    assessment.facts.push(unless(of_awaited < Some(MOST), fact));
    let what = "periods in which its cgroup used up the processor time that is allowed";
    assessment.facts.extend(evidence.quota.as_ref().map(|it| share(what, Some(it.throttled), "cpu.stat nr_throttled")));
    assessment
}

/// A path as one word of a shell. A cgroup may have any name that its owner gives it.
fn quoted(path: &str) -> String {
    let is_plain = path.chars().all(|char| char.is_ascii_alphanumeric() || "/._@:,-".contains(char));
    if is_plain { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

fn remedies(evidence: &Evidence) -> Vec<Remedy> {
    let pid = pid(evidence);
    // Where nothing is held up, it is the neighbours.
    let quota = evidence.quota.as_ref().filter(|it| it.throttled >= SOME);
    let allow = quota.map(|it| {
        remedy(
            format!("cat {}", quoted(&it.limit)),
            "shows the limit of processor time that keeps the program from running, in microseconds: allow more, as with \
             systemd's CPUQuota= or a container's --cpus",
        )
    });
    let others = [
        remedy(
            "top -b -n 1 | head -n 20".to_owned(),
            "shows who uses the processors: move that away, or the program to another host",
        ),
        remedy(format!("sudo renice -n -5 -p {pid}"), "gives the program precedence"),
    ];
    allow.into_iter().chain(others).collect()
}
