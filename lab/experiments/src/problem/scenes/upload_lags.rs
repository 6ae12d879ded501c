//! An upload over a link of 10 Mbit/s and 30 ms with room for 100 packets.

use dwell_testbed::Result;

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    let network = &mut stage.network;
    network.wire([port("gateway", "lan0", "192.168.1.1/24"), port("host", "lan0", "192.168.1.20/24")])?;
    network.host("host")?.ip("route add default via 192.168.1.1\n")?;
    network.path(
        [port("gateway", "eth0", "198.51.100.1/24"), port("server", "eth0", "203.0.113.10/24")],
        slow(30, 10.0, 100, 0.0),
    )?;
    stage.start("server", "server", "iperf3 -s")?;
    stage.await_listener("server", 5201)
}

pub fn before(stage: &mut Stage, step: usize) -> Result<&'static str> {
    if step >= 4 {
        stage.end("upload");
        let pid = stage.start("upload", "host", "iperf3 -c 203.0.113.10 -t 60")?;
        // The page's reader has one iperf3; here others may run beside it.
        stage.replace("$(pidof -s iperf3)", pid.to_string());
    }
    Ok(if step == 5 { "gateway" } else { "host" })
}
