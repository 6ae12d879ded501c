//! The network of the benchmark: client, vantage and server, namespaces that are joined by veth devices without delay.

use std::fs;

use anyhow::{Context, Result, ensure};
use dwell_testbed::Namespace;

/// The interface of the vantage that dwell watches.
pub const WATCHED: &str = "server0";

pub struct Net {
    pub client: Namespace,
    pub vantage: Namespace,
    pub server: Namespace,
    pub single_segments: bool,
}

/// The packets that have crossed the watched interface, in both directions.
#[derive(Clone, Copy)]
pub struct Counters {
    pub packets: i64,
    pub bytes: i64,
}

impl Counters {
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters { packets: self.packets - earlier.packets, bytes: self.bytes - earlier.bytes }
    }
}

impl Net {
    pub const SERVER: &str = "10.78.2.2";

    pub fn build(single_segments: bool) -> Result<Net> {
        let net = Net {
            client: Namespace::create("bench")?,
            vantage: Namespace::create("bench")?,
            server: Namespace::create("bench")?,
            single_segments,
        };
        let macs = ["02:00:0a:4e:01:01", "02:00:0a:4e:01:02", "02:00:0a:4e:02:01", "02:00:0a:4e:02:02"];
        net.vantage.set(&[("ipv4/ip_forward", "1")])?;
        // After a pause connections would start slowly, with fewer packets at a time, which
        // changes the cost of a packet far more than dwell does.
        net.client.set(&[("ipv4/tcp_slow_start_after_idle", "0")])?;
        let (client, server) = (net.client.name(), net.server.name());
        let segments = if single_segments { "gso_max_segs 1" } else { "" };
        ip(
            &net.vantage,
            &format!(
                "link add client0 address {} type veth peer name vantage0 address {} netns {client}
             link add {WATCHED} address {} type veth peer name vantage0 address {} netns {server}
             link set client0 addrgenmode none {segments} up
             link set {WATCHED} addrgenmode none {segments} up
             address add 10.78.1.1/24 dev client0
             address add 10.78.2.1/24 dev {WATCHED}
             neighbour replace 10.78.1.2 lladdr {} dev client0
             neighbour replace {} lladdr {} dev {WATCHED}",
                macs[0],
                macs[1],
                macs[2],
                macs[3],
                macs[1],
                Self::SERVER,
                macs[3]
            ),
        )?;
        for (namespace, subnet, mac) in [(&net.client, 1, macs[0]), (&net.server, 2, macs[2])] {
            ip(
                namespace,
                &format!(
                    "link set vantage0 addrgenmode none {segments} up
                 address add 10.78.{subnet}.2/24 dev vantage0
                 neighbour replace 10.78.{subnet}.1 lladdr {mac} dev vantage0
                 route add default via 10.78.{subnet}.1"
                ),
            )?;
        }
        Ok(net)
    }

    pub fn counters(&self) -> Result<Counters> {
        let text = self.vantage.enter(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let (_, figures) = text
            .lines()
            .filter_map(|line| line.trim().split_once(':'))
            .find(|(name, _)| *name == WATCHED)
            .context("the watched interface is gone")?;
        let figures: Vec<i64> = figures.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
        ensure!(figures.len() == 16, "/proc/net/dev has no 16 columns");
        Ok(Counters {
            bytes: figures[0] + figures[8],
            // A packet that the other end had no room for was seen all the same.
            packets: figures[1] + figures[9] + figures[11],
        })
    }
}

/// Runs commands of `ip`, one per line.
fn ip(namespace: &Namespace, batch: &str) -> Result<()> {
    for line in batch.lines() {
        let output = namespace.command("ip").args(line.split_whitespace()).output()?;
        ensure!(output.status.success(), "ip {}: {}", line.trim(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
