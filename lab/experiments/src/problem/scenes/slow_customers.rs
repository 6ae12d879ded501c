//! Four customers of one server: initech fills its own link with a download, umbrella loses packets, globex is far away, and
//! acme has none of that.

use std::{thread, time::Duration};

use dwell_testbed::Result;

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    let network = &mut stage.network;
    network.wire([port("gateway", "eth1", "10.0.0.1/24"), port("server", "eth0", "10.0.0.10/24")])?;
    network.wire([port("gateway", "eth0", "203.0.114.2/30"), port("provider", "eth0", "203.0.114.1/30")])?;
    network.host("server")?.ip("route add default via 10.0.0.1\n")?;
    network.host("gateway")?.ip("route add default via 203.0.114.1\n")?;
    network.host("provider")?.ip("route add default via 203.0.114.2\n")?;
    for (from, to, link) in [
        (port("provider", "acme0", "10.1.0.1/24"), port("acme", "eth0", "198.51.100.7/25"), slow(24, 50.0, 200, 0.0)),
        (
            port("provider", "initech0", "10.1.1.1/24"),
            port("initech", "eth0", "198.51.100.135/25"),
            slow(24, 3.0, 70, 0.0),
        ),
        (
            port("provider", "globex0", "10.1.2.1/24"),
            port("globex", "eth0", "203.0.113.4/24"),
            slow(190, 50.0, 200, 0.0),
        ),
        (
            port("provider", "umbrella0", "10.1.3.1/24"),
            port("umbrella", "eth0", "192.0.2.9/24"),
            slow(24, 50.0, 200, 0.02),
        ),
    ] {
        network.path([from, to], link)?;
    }
    stage.write(
        "customers.txt",
        "198.51.100.0/25    acme\n198.51.100.128/25  initech\n203.0.113.0/24     globex\n192.0.2.0/24       umbrella\n",
    )?;
    stage.traffic("web", "server", "serve 8080 --work 3 8 --bytes 6000")?;
    for customer in ["acme", "initech", "globex", "umbrella"] {
        stage.traffic(customer, customer, "ask 10.0.0.10:8080 --connections 2 --pause 30")?;
    }
    stage.start("downloads", "server", "iperf3 -s")?;
    stage.await_listener("server", 5201)?;
    stage.start("download", "initech", "iperf3 -c 10.0.0.10 -R -t 600")?;
    // Its slow start overshoots the queue, and is over by then.
    thread::sleep(Duration::from_secs(4));
    Ok(())
}

pub fn before(_stage: &mut Stage, step: usize) -> Result<&'static str> {
    Ok(if step == 1 { "server" } else { "gateway" })
}
