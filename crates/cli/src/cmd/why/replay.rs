//! The connections of a capture.

use std::{cell::RefCell, path::Path};

use dwell_engine::{
    filter::Filter,
    rtt::Counters,
    why::{Evidence, Replay, UdpPackets, Unseen},
};
use dwell_socket::outside::Selection;

use super::peers::PeerNames;
use crate::{
    exit::{Exit, Failure},
    source::{Capture, MORE_OF_EACH, NoInput, interrupted},
    stop::Stop,
};

/// Reads a capture. Returns what its connections show, and how complete the capture is.
pub fn read(
    path: &Path,
    filter: Filter,
    name: &str,
    has_labels: bool,
    learned: PeerNames,
    stop: &Stop,
) -> Result<(Evidence, Result<Exit, Failure>), Failure> {
    let mut capture = match Capture::open(path, stop, || true) {
        Ok(capture) => capture,
        Err(NoInput::Failed(error)) => return Err(error.into()),
        Err(NoInput::Stopped) => return Err(interrupted(path, 0)),
    };
    let seen = RefCell::new((Replay::new(filter, has_labels), learned));
    let read = capture.read(
        stop,
        |_| {},
        |packet| {
            let (replay, learned) = &mut *seen.borrow_mut();
            replay.observe(packet);
            learned.observe(packet);
            true
        },
    );
    let (replay, learned) = seen.into_inner();
    let counters: Counters = replay.counters();
    let mut evidence = replay.evidence(name);
    learned.name(&mut evidence);
    evidence.is_unreadable = capture.is_unreadable(&counters);
    let (cut, is_much) = capture.cut(&counters);
    if cut > 0 && !is_much {
        let what = format!("{cut} packets whose headers were cut off");
        evidence.unseen.push(Unseen { what, remedy: MORE_OF_EACH.into() });
    }
    let faults = capture.faults(&counters).into_iter().map(|(what, remedy)| Unseen { what, remedy });
    evidence.unseen.splice(0..0, faults);
    if capture.repeated() > 0 {
        let what = format!("{} copies of packets that the capture has more than once", capture.repeated());
        let remedy = "capture at one interface, where each packet passes once".into();
        evidence.unseen.push(Unseen { what, remedy });
    }
    if capture.disordered() > 0 {
        let what = format!("the order of {} packets, which are earlier than one before them", capture.disordered());
        let remedy = "`reordercap FILE SORTED` sorts them by their times".into();
        evidence.unseen.push(Unseen { what, remedy });
    }
    if let Err(error) = &read {
        let (what, remedy) = (format!("what follows in the capture: {error}"), "copy or capture it again".into());
        evidence.unseen.push(Unseen { what, remedy });
    }
    let exit = capture.verdict(read, &counters);
    evidence.unseen.extend(datagrams(path, &evidence));
    Ok((evidence, exit))
}

/// Without connections: what packets of UDP waited for, and the verb that measures what can be measured of them; without any of
/// these, where to look.
fn datagrams(path: &Path, evidence: &Evidence) -> Option<Unseen> {
    if evidence.connections > 0 {
        return None;
    }
    let UdpPackets { count, opening_quic } = evidence.udp;
    let file = if path.as_os_str() == "-" { "FILE".into() } else { path.display().to_string() };
    let what = match (count, opening_quic) {
        (0, _) => {
            let remedy = format!("`dwell top -r {file} --once` shows which flows the capture has, if any");
            return Some(Unseen { what: "packets of other hosts and ports".into(), remedy });
        }
        (_, 0) => format!("what {count} packets of UDP waited for"),
        _ => format!(
            "what {count} packets of UDP, {opening_quic} of which open connections of QUIC, waited for: it is encrypted"
        ),
    };
    let remedy = format!("`dwell rtt -r {file} --summary` has round trips of QUIC's handshakes and spin bits");
    Some(Unseen { what, remedy })
}

/// Returns the filter that admits the connections of a target, as of `--filter`.
pub fn filter(selected: &Selection) -> Option<Vec<String>> {
    let Selection::Ends { addresses, port } = selected else {
        return None;
    };
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    if addresses.is_empty() {
        return Some(vec![port]);
    }
    let of = |address: &std::net::IpAddr| match address {
        std::net::IpAddr::V4(_) => format!("{address}{port}"),
        std::net::IpAddr::V6(_) => format!("[{address}]{port}"),
    };
    Some(addresses.iter().map(of).collect())
}
