//! An office behind a link of 20 Mbit/s, whose queue a job fills for 3 s each 10 s.

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
    network.add("office")?;
    network.host("office")?.ip("link add br0 type bridge\nlink set br0 up\n")?;
    for (host, device, address) in
        [("gateway", "lan0", "192.168.1.1/24"), ("desk", "eth0", "192.168.1.20/24"), ("job", "eth0", "192.168.1.77/24")]
    {
        network.pair([(host, device), ("office", host)])?;
        network.host("office")?.ip(&format!("link set {host} master br0\n"))?;
        network.host(host)?.ip(&format!("address add {address} dev {device}\n"))?;
        if host != "gateway" {
            network.host(host)?.ip("route add default via 192.168.1.1\n")?;
        }
    }
    stage.traffic("web", "center", "serve 8080 --work 2 4 --bytes 6000")?;
    stage.start("sink", "center", "iperf3 -s")?;
    stage.traffic("desk", "desk", "ask 10.9.0.2:8080 --connections 2 --pause 100")?;
    stage.start("job", "job", "sh -c 'while sleep 7; do iperf3 -c 10.9.0.2 -t 3; done'").map(drop)
}

pub fn before(_stage: &mut Stage, step: usize) -> Result<&'static str> {
    Ok(if step == 1 { "desk" } else { "gateway" })
}
