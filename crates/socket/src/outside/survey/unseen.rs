//! What a survey could not see, and what would show it.

use std::collections::BTreeMap;

use dwell_engine::why::{Evidence, Part, Process, Unseen};

use super::MAX_CONNECTIONS;
use crate::sys;

/// What the verdict on a panel leaves open.
pub(super) fn too_many(all: &Evidence, panel: &Evidence) -> Unseen {
    let [all_ms, panel_ms] = [all, panel].map(|evidence| evidence.poll_interval_ns() / 1e6);
    Unseen {
        what: format!(
            "waits below {:.0} ms on all {} connections: {} of them were polled every {panel_ms:.1} ms, the others every \
             {all_ms:.0} ms",
            2.0 * all_ms,
            all.connections,
            panel.connections
        ),
        remedy: "name fewer of them, as by HOST:PORT".into(),
    }
}

/// Fewer looks at a process hardly find a thread four times that waits for a disk for 30 % of the time.
const LEAST_LOOKS: f64 = 14.0;

/// Whether looks at a process that may be what others wait for were too few to find it waiting for a disk.
fn too_seldom(evidence: &Evidence, process: &Process) -> bool {
    let program = evidence.sums.times.share_of(&[Part::Reader, Part::Service, Part::Application]);
    process.look_interval_ns * LEAST_LOOKS > evidence.observed_ns as f64 && program >= 0.3
}

/// Adds what could not be seen: network namespaces that are `inaccessible`, and the first requests of so many connections
/// that are `unread`.
pub(super) fn unseen(evidence: &mut Evidence, inaccessible: &BTreeMap<u64, u32>, unread: u64, has_ended: bool) {
    if evidence.omitted > 0 {
        evidence.unseen.push(Unseen {
            what: format!("{} connections beyond the {MAX_CONNECTIONS} that are followed at once", evidence.omitted),
            remedy: "name fewer of them, as by HOST:PORT".into(),
        });
    }
    if let Some(pid) = inaccessible.values().next() {
        evidence.unseen.push(Unseen {
            what: format!(
                "connections in {} other network namespaces, such as that of process {pid}",
                inaccessible.len()
            ),
            remedy: format!("run dwell as root, or in that namespace: `sudo nsenter -t {pid} -n dwell why {pid}`"),
        });
    }
    if unread > 0 {
        evidence.unseen.push(Unseen {
            what: format!(
                "whether the first request of {unread} connections was TLS's handshake: packets came faster than they could \
                 be read"
            ),
            remedy: "capture them: `sudo tcpdump -s 512 -w FILE`, and `dwell why -r FILE`".into(),
        });
    }
    if has_ended {
        evidence.unseen.push(Unseen {
            what: format!("more than {:.1} s of the target, which then ended", evidence.observed_ns as f64 / 1e9),
            remedy: "name what took its place, or the port, which outlives processes: `dwell why :PORT`".into(),
        });
    }
    if let Some(process) = evidence.process.filter(|process| too_seldom(evidence, process)) {
        evidence.unseen.push(Unseen {
            what: format!(
                "whether threads of the process waited for a disk: looks at them were {:.2} s apart, which are too few",
                process.look_interval_ns / 1e9
            ),
            remedy: format!("look longer: `--duration {:.0}s`", (process.look_interval_ns * LEAST_LOOKS / 1e9).ceil()),
        });
    }
    if evidence.connections > 0 && evidence.process.is_none() {
        evidence.unseen.push(match sys::effective_user() {
            // They are known by their process.
            _ if evidence.is_of_processes => Unseen {
                what: "what the process that has the connections did: it ended before a second look at it".into(),
                remedy: "look at it while it works for longer, or several times in a row".into(),
            },
            0 => Unseen {
                what: "what the process that has the connections did: it was not found while they were open".into(),
                remedy: "name the process, by its ID or unit".into(),
            },
            _ => Unseen {
                what: "what the process that has the connections did".into(),
                remedy: "run dwell as root, or as the user of that process".into(),
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_were_not_read_are_told() {
        for (unread, is_told) in [(0, false), (7, true)] {
            let mut evidence = Evidence::default();
            unseen(&mut evidence, &BTreeMap::new(), unread, false);
            let told: Vec<_> = evidence.unseen.iter().map(|unseen| unseen.what.as_str()).collect();
            assert_eq!(
                told.iter().any(|what| what.contains("the first request of 7 connections")),
                is_told,
                "{told:?}"
            );
        }
    }

    #[test]
    fn a_process_that_was_named_is_not_to_be_named_again() {
        for is_of_processes in [false, true] {
            let mut evidence = Evidence { connections: 1, is_of_processes, ..Evidence::default() };
            unseen(&mut evidence, &BTreeMap::new(), 0, false);
            let [Unseen { what, remedy }] = &evidence.unseen[..] else { panic!("{:?}", evidence.unseen) };
            assert!(what.starts_with("what the process that has the connections did"), "{what}");
            assert_eq!(remedy.contains("for longer"), is_of_processes, "{remedy}");
        }
    }

    #[test]
    fn looks_too_few_to_find_a_disk_are_told_where_others_may_wait_for_the_program() {
        let told = |part, look_interval_ns| {
            let process = Some(Process { look_interval_ns, ..Process::default() });
            let mut evidence = Evidence { observed_ns: 10_000_000_000, process, ..Evidence::default() };
            evidence.sums.times.add(part, 1e9);
            unseen(&mut evidence, &BTreeMap::new(), 0, false);
            !evidence.unseen.is_empty()
        };
        assert!(told(Part::Service, 2e9));
        assert!(!told(Part::Service, 50e6) && !told(Part::Distance, 2e9));
    }
}
