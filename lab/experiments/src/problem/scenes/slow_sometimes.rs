//! An office behind a link of 20 Mbit/s, whose queue a job fills for 3 s every 10 s.

use dwell_testbed::Result;

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    let network = &mut stage.network;
    network.path(
        [port("gateway", "wan0", "10.8.0.1/24"), port("center", "eth0", "10.9.0.2/24")],
        slow(16, 20.0, 100, 0.0),
    )?;
    network.switch(
        "office",
        &[
            port("gateway", "lan0", "192.168.1.1/24"),
            port("desk", "eth0", "192.168.1.20/24"),
            port("job", "eth0", "192.168.1.77/24"),
        ],
    )?;
    for host in ["desk", "job"] {
        network.host(host)?.ip("route add default via 192.168.1.1\n")?;
    }
    stage.traffic("web", "center", "serve 8080 --work 2 4 --bytes 6000")?;
    stage.start("sink", "center", "iperf3 -s")?;
    stage.await_listener("center", 5201)?;
    stage.traffic("desk", "desk", "ask 10.9.0.2:8080 --connections 2 --pause 100").map(drop)
}

pub fn before(stage: &mut Stage, step: usize) -> Result<&'static str> {
    stage.end("job");
    // The first step is for while it hangs, for connections that were there before.
    if step == 1 {
        stage.await_connection("desk", 8080)?;
    }
    let job =
        if step == 1 { "iperf3 -c 10.9.0.2 -t 60" } else { "sh -c 'while sleep 7; do iperf3 -c 10.9.0.2 -t 3; done'" };
    stage.start("job", "job", job)?;
    Ok(if step == 1 { "desk" } else { "gateway" })
}
