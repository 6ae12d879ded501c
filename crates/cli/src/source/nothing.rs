//! Why a capture gave nothing that could be measured.

use std::path::Path;

use dwell_engine::{
    missing::OneWay,
    rtt::{Counter, Counters},
};
use dwell_records::counted;

/// What a verb measures, for one whose capture gave nothing.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The protocols, as in "TCP, QUIC or DNS".
    pub protocols: &'static str,
    /// Whether both directions are needed. Otherwise those are that clients send.
    pub both_directions: bool,
}

/// Returns one sentence that says why a capture gave nothing, if it is known. `one_way` is what passed of TCP, if one end alone of
/// each connection did.
pub fn why_nothing(wanted: Wanted, path: &Path, counters: &Counters, one_way: Option<OneWay>) -> Option<String> {
    let packets = counters.get(Counter::Packets);
    if packets == 0 || counters.get(Counter::Samples) > 0 {
        return None;
    }
    if counters.get(Counter::FlowsOpened) == 0 {
        return match counters.get(Counter::Filtered) {
            0 => Some(format!("none of the {packets} packets is of {}", wanted.protocols))
                .filter(|_| counters.get(Counter::NotIp) + counters.get(Counter::OtherProtocol) == packets),
            filtered => Some(format!(
                "the filter (--filter, --port) leaves out all {} that could be measured",
                counted(filtered, "packet", "packets")
            )),
        };
    }
    let one_way = one_way?;
    let all = match one_way.packets {
        1 => "the only packet of TCP goes".into(),
        many => format!("all {many} packets of TCP go"),
    };
    let ends = match one_way.connections {
        1 => format!("{all} from {} to {}", one_way.from, one_way.to),
        many => format!("{all} one way, of {many} connections, as from {} to {}", one_way.from, one_way.to),
    };
    if wanted.both_directions {
        return Some(format!(
            "{ends}: a round trip needs both directions; from what clients send alone `dwell response -r {}` estimates",
            path.display()
        ));
    }
    (counters.get(Counter::Server) > 0).then(|| {
        format!("{ends}, which is the client: nothing that a client sends was captured; --server says which end is the server")
    })
}
