//! Four servers whose clients are 10 ms away: three work for 3 to 6 ms, 10.0.0.13 for 30 to 50 ms.

use dwell_testbed::Result;

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    let network = &mut stage.network;
    network.path(
        [port("gateway", "eth0", "10.1.0.1/24"), port("clients", "eth0", "198.51.100.7/24")],
        slow(10, 100.0, 200, 0.0),
    )?;
    network.switch(
        "rack",
        &[
            port("gateway", "eth1", "10.0.0.1/24"),
            port("b1", "eth0", "10.0.0.11/24"),
            port("b2", "eth0", "10.0.0.12/24"),
            port("b3", "eth0", "10.0.0.13/24"),
            port("b4", "eth0", "10.0.0.14/24"),
        ],
    )?;
    for server in ["b1", "b2", "b3", "b4"] {
        stage.network.host(server)?.ip("route add default via 10.0.0.1\n")?;
        let work = if server == "b3" { "30 50" } else { "3 6" };
        stage.traffic(server, server, &format!("serve 8080 --work {work} --bytes 3000"))?;
    }
    let servers = "10.0.0.11:8080 10.0.0.12:8080 10.0.0.13:8080 10.0.0.14:8080";
    stage.traffic("clients", "clients", &format!("ask {servers} --connections 3 --pause 20")).map(drop)
}

pub fn before(_stage: &mut Stage, step: usize) -> Result<&'static str> {
    Ok(if matches!(step, 1 | 4) { "b3" } else { "gateway" })
}
