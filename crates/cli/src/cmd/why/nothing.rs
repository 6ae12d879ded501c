//! Where to look where a target has no connection.

use dwell_engine::why::{Evidence, Unseen};
use dwell_records::counted;
use dwell_socket::outside::{Elsewhere, OtherNamespace, Selection};

/// Adds to evidence without a connection where there may be some.
pub fn hint(selected: &Selection, evidence: &mut Evidence) {
    if evidence.connections > 0
        || evidence.sums.set_ups.count > 0
        || !evidence.unopened.is_empty()
        || evidence.datagrams.is_some()
    {
        return;
    }
    let elsewhere = selected.elsewhere();
    let target = evidence.target.name.clone();
    evidence.unseen.extend(elsewhere.namespace.map(|there| other_namespace(there, &target)));
    if let Selection::Ends { port: Some(port), .. } = selected {
        evidence.unseen.push(listener(&elsewhere, *port));
    }
    let is_root = nix::unistd::geteuid().is_root();
    evidence.unseen.push(Unseen {
        what: match selected {
            Selection::Ends { .. } if !is_root => "other hosts and ports, and other network namespaces".into(),
            Selection::Ends { .. } => "other hosts and ports".into(),
            _ => "connections that others open for the target".into(),
        },
        remedy: match is_root {
            true => "`dwell top` shows all connections here, with their hosts, ports and processes".into(),
            false => "`dwell top` shows all connections here, and dwell looks into other namespaces as root".into(),
        },
    });
}

fn other_namespace(OtherNamespace { pid, connections }: OtherNamespace, target: &str) -> Unseen {
    let has = match connections {
        0 => "a program that listens at its port is".to_owned(),
        count => {
            format!("{} of it {}", counted(count, "connection", "connections"), if count == 1 { "is" } else { "are" })
        }
    };
    Unseen {
        what: format!("another network namespace: {has} in that of process {pid}"),
        remedy: format!("`sudo nsenter -t {pid} -n dwell why {target}` looks there"),
    }
}

/// Who listens at the port of the target.
fn listener(elsewhere: &Elsewhere, port: u16) -> Unseen {
    match elsewhere.is_listening {
        true => Unseen {
            what: format!(
                "connections to {}, which listens at port {port} here",
                elsewhere.listener.map_or_else(|| "a program".to_owned(), |pid| format!("process {pid}"))
            ),
            remedy: "look while clients are connected, and for longer, as with `--duration 60s`".into(),
        },
        false => Unseen {
            what: format!("a program of this host that listens at port {port}"),
            remedy: "`sudo ss -tlnp` lists the ports at which programs listen here, if the target is here".into(),
        },
    }
}
