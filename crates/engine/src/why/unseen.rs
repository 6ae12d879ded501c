//! What a verdict leaves open, and what would show it.

use super::{
    Evidence, Group, Key, Part, RoundTrip, Source, Unseen,
    cause::{MIN_SHARE, at_server, peer_address, peer_in_brackets, port, port_number},
};
use crate::measure::Endpoint;

/// By how much round trips of small messages vary on a path whose queues are empty.
const QUIET_VARIATION: f64 = 0.25;

/// Fewer connections are polled as often as a single one.
const FEW: u64 = 64;

/// Packets have exact times, and all connections.
fn capture(evidence: &Evidence) -> String {
    let port = evidence.target.port.map_or_else(String::new, |port| format!(" port {port}"));
    format!("capture the packets: `sudo tcpdump -i any -s 128 -w FILE tcp{port}`, and `dwell why -r FILE`")
}

/// Why there is not enough for a verdict.
pub(super) fn missing(evidence: &Evidence) -> Unseen {
    let unexplained = evidence.unexplained();
    match evidence.source {
        Source::Capture if unexplained >= MIN_SHARE => Unseen {
            what: format!("what {:.0} % of the time were spent on: packets alone do not show it", unexplained * 100.0),
            remedy: {
                let end = evidence.about(&[Part::Unexplained]).target;
                let host = end.seen_from.map_or_else(String::new, |end| format!(" at {end}"));
                format!("run `dwell why{}`{host}, whose kernel knows", end.port_of())
            },
        },
        Source::Capture if evidence.observed_ns == 0 => Unseen {
            what: "when packets passed: all have the same time".into(),
            remedy: "capture them again with their times, or look for the file that the program which wrote this one has read".into(),
        },
        Source::Capture => {
            Unseen { what: "more than a few packets".into(), remedy: "capture for longer, and all packets".into() }
        }
        Source::Stamps if unexplained >= MIN_SHARE => Unseen {
            what: "most of the time is in layers of the kernel, where nothing of these hosts waits".into(),
            remedy: "`dwell report` shows all segments".into(),
        },
        Source::Stamps => Unseen {
            what: "more than a few bytes".into(),
            remedy: "name another time with --since, or let agents stamp more with --sample-bytes".into(),
        },
        Source::Sockets if unexplained >= MIN_SHARE => Unseen {
            what: "most of the time is unexplained: the connections change faster than they are polled".into(),
            remedy: match evidence.connections {
                FEW.. => format!("name fewer of them, as by HOST:PORT, or {}", capture(evidence)),
                _ => capture(evidence),
            },
        },
        Source::Sockets => Unseen {
            what: "connections that end before they are polled, and more of a short look".into(),
            remedy: "run it longer, as with --duration 30s, or capture the packets, and run `dwell why -r FILE`".into(),
        },
    }
}

/// What only the sender of data knows.
pub(super) fn sender(evidence: &Evidence) -> Unseen {
    let host = evidence.target.peer.map_or_else(|| "the peer".to_owned(), |peer| peer.to_string());
    let port = port_number(evidence);
    Unseen { what: "why the peer sends no faster".into(), remedy: format!("run `dwell why :{port}` at {host}") }
}

/// Waits that end before the next poll.
pub(super) fn short_waits((what, apart_ns): (&str, f64)) -> Unseen {
    Unseen {
        what: format!("whether shorter waits add up: {what} were {:.0} ms apart", apart_ns / 1e6),
        remedy: "capture the packets, whose times are exact, and run `dwell why -r FILE`".into(),
    }
}

/// Only the peer knows whether it waited for room.
pub(super) fn room(evidence: &Evidence) -> Unseen {
    let port = port_number(evidence);
    Unseen {
        what: "whether the peer waited for room: a small receive buffer is full again as soon as it was read".into(),
        remedy: format!(
            "`ss -tmin sport = :{port} or dport = :{port}` shows the receive buffer as rb, and `dwell why :{port}` at the \
             peer's host whether its window was the limit"
        ),
    }
}

/// The timeouts of the peer look like its work.
pub(super) fn lost_answers(evidence: &Evidence) -> Unseen {
    let port = port_number(evidence);
    Unseen {
        what: "whether answers were lost on the way, as packets of this host were: the peer sends them again after a \
               timeout, and they come as late as if it had worked on them"
            .into(),
        remedy: format!("run `dwell why :{port}` at the peer's host, whose kernel counts what it sends again"),
    }
}

/// What a server did before it said more.
pub(super) fn before_it_spoke_on(evidence: &Evidence) -> Unseen {
    Unseen {
        what: "what the service did before it said more without being asked: its clients may have waited for the rest of an \
               answer, or it speaks whenever there is something to say"
            .into(),
        remedy: capture(evidence),
    }
}

/// Waits of requests that overlap.
pub(super) fn at_once() -> Unseen {
    Unseen {
        what: "how long each request waited: several were under way on a connection at the same time, as with HTTP/2, \
               which are not told apart"
            .into(),
        remedy:
            "ask the program for the times of its requests, or capture them unencrypted, and run `dwell why -r FILE`"
                .into(),
    }
}

/// Whether requests were answered that ended with their connection.
pub(super) fn resets(evidence: &Evidence, resets: u64) -> Unseen {
    Unseen {
        what: format!(
            "whether these requests were answered: {resets} connections were reset in this network namespace meanwhile"
        ),
        remedy: capture(evidence),
    }
}

/// Handshakes that were over when connections were found.
pub(super) fn handshakes(evidence: &Evidence) -> Unseen {
    let port = evidence.target.port.map_or_else(String::new, |port| format!(" port {port}"));
    Unseen {
        what: format!(
            "how long TLS's handshake took on {} connections: it was under way or over when they were found",
            evidence.missed_handshakes
        ),
        remedy: format!("capture it: `sudo tcpdump -i any -s 512 -w FILE tcp{port}`, and `dwell why -r FILE`"),
    }
}

/// Connections that ended before a search found them; `None` of a capture, which has them all.
pub(super) fn short_lived(evidence: &Evidence) -> Option<Unseen> {
    let port = evidence.target.port.map_or_else(String::new, |port| format!(" port {port}"));
    (evidence.source == Source::Sockets).then(|| Unseen {
        what: match evidence.search_interval_ns {
            apart_ns if apart_ns > 0.0 => {
                format!("connections that were over between two searches for them, {:.0} ms apart", apart_ns / 1e6)
            }
            _ => "connections that were over before they were found".into(),
        },
        remedy: format!(
            "capture their packets: `sudo tcpdump -i any -s 128 -w FILE tcp{port} or port 53`, and `dwell why -r FILE`"
        ),
    })
}

/// What a service waits for on connections that are over before searches find them.
pub(super) fn brief_upstream(asked: &Group) -> Unseen {
    let Key { peer, port, .. } = asked.key;
    Unseen {
        what: format!(
            "how long the service waits for {}: it opens a connection for each question there",
            Endpoint { address: peer, port }
        ),
        remedy: format!("ask for that one: `dwell why :{port}` at its host"),
    }
}

/// Only the program knows why it is silent.
pub(super) fn purpose(of_peer: bool) -> Unseen {
    let (who, look) = match of_peer {
        true => ("peer", "at the peer's host"),
        false => ("service", "which requests wait (as root, unless they are encrypted)"),
    };
    Unseen {
        what: format!(
            "whether the {who} takes its time on purpose, as for long polls and consumers that wait for messages"
        ),
        remedy: format!("ask for the connections of other requests, as by port, or look {look}"),
    }
}

/// Whether the rate is the path's or TCP's, where written data waits and neither queues nor losses show.
pub(super) fn window(evidence: &Evidence) -> Unseen {
    Unseen {
        what: "whether the path takes no more, or TCP keeps its congestion window small".into(),
        remedy: format!(
            "`ss -tin dst {}` shows cwnd, ssthresh and pacing_rate: another congestion control may have others",
            peer_in_brackets(evidence)
        ),
    }
}

/// Only the application knows whether an answer is due.
pub(super) fn owed(evidence: &Evidence) -> Unseen {
    let pid = evidence.target.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    Unseen {
        what: "whether these clients wait".into(),
        remedy: match evidence.accepted {
            0 => format!(
                "run `dwell why{}` at the server, and look for what its process does",
                evidence.target.port_of()
            ),
            _ => {
                format!("`sudo cat /proc/{pid}/status /proc/{pid}/stack` shows whether the server is stopped or stuck")
            }
        },
    }
}

/// Only the server knows why it does not answer.
pub(super) fn failure(evidence: &Evidence) -> Unseen {
    let evidence = &evidence.about_failures();
    let listeners = format!("sudo ss -ltnp sport = :{}", port_number(evidence));
    Unseen {
        what: "why the server does not answer".into(),
        remedy: format!("`{}` shows who listens there, and its log may say why", at_server(evidence, &listeners)),
    }
}

/// The kernel counts attempts that failed, and not whose they were.
pub(super) fn refusal(evidence: &Evidence) -> Unseen {
    let (peer, port) = (peer_address(evidence), port_number(evidence));
    Unseen {
        what: "whose attempts to open a connection failed".into(),
        remedy: format!("`nc -vz {peer} {port}` opens one and says whether it is refused: then nothing listens there"),
    }
}

/// The queue of the host's own device where it has one and no byte that passed it was stamped.
pub(super) fn own_queue(evidence: &Evidence) -> Unseen {
    Unseen {
        what: "whether the queue is that of this host's own device: no byte of the target was stamped".into(),
        remedy: format!("`sudo dwell stack{} --duration 10s`", port(evidence)),
    }
}

/// Where the wait for an answer begins.
pub(super) fn arrival() -> Unseen {
    Unseen {
        what: "when requests had arrived: their acknowledgements came with the answers, so that a queue on the path looks the same"
            .into(),
        remedy: "ask at the peer's host; `ping` the peer shows a queue".into(),
    }
}

/// A queue that others fill, where round trips are longer than the shortest by more than they vary on a quiet path. If it was full
/// when the connections began, the shortest one has waited in it too.
pub(super) fn others_queue(messages: &RoundTrip) -> Option<Unseen> {
    let longer = messages.mean_ns()? / messages.base_ns()? - 1.0;
    (longer >= QUIET_VARIATION).then(|| Unseen {
        what: format!(
            "whether the path is far, or others fill a queue on it: round trips were {:.0} % longer than the shortest",
            longer * 100.0
        ),
        remedy:
            "`sudo dwell rtt -i DEVICE --aggregate` at a gateway shows it, and so does this command at a quiet time"
                .into(),
    })
}

/// What only packets show of UDP.
pub(super) fn packets() -> Unseen {
    Unseen {
        what: "requests and round trips over UDP".into(),
        remedy: "`sudo dwell rtt -i DEVICE` measures those of QUIC and DNS".into(),
    }
}
