//! Two servers whose answers do not pass where the clients' packets do: one works for 20 to 40 ms, the other for 2 to 4.

use dwell_testbed::Result;

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

/// The captures of the repository that the page reads.
const CAPTURES: [(&str, &[u8]); 2] = [
    ("tests/captures/get-loop.pcap.gz", include_bytes!("../../../../../tests/captures/get-loop.pcap.gz")),
    ("tests/captures/one-direction.pcap.gz", include_bytes!("../../../../../tests/captures/one-direction.pcap.gz")),
];

pub fn prepare(stage: &mut Stage) -> Result<()> {
    let network = &mut stage.network;
    network.switch(
        "rack",
        &[
            port("vantage", "eth1", "10.0.0.1/24"),
            port("back", "eth0", "10.0.0.2/24"),
            port("late", "eth0", "10.0.0.10/24"),
            port("soon", "eth0", "10.0.0.11/24"),
        ],
    )?;
    let link = || slow(20, 100.0, 200, 0.0);
    network.path([port("vantage", "eth0", "10.1.0.1/24"), port("clients", "eth0", "198.51.100.7/24")], link())?;
    // What servers send goes by another router, and reaches the clients by their other device.
    network.path([port("back", "eth1", "10.1.1.1/24"), port("clients", "eth1", "192.0.2.7/24")], link())?;
    network.host("back")?.ip("route add 198.51.100.0/24 via 10.1.1.254\n")?;
    network.host("path1")?.ip("route add 198.51.100.0/24 via 192.0.2.7\n")?;
    for (server, port, work) in [("late", 8080, "20 40"), ("soon", 8081, "2 4")] {
        stage.network.host(server)?.ip("route add default via 10.0.0.2\n")?;
        stage.traffic(server, server, &format!("serve {port} --work {work} --bytes 3000"))?;
    }
    for (name, capture) in CAPTURES {
        stage.write(name, capture)?;
    }
    stage.traffic("clients", "clients", "ask 10.0.0.10:8080 10.0.0.11:8081 --connections 3").map(drop)
}

pub fn before(_stage: &mut Stage, _step: usize) -> Result<&'static str> {
    Ok("vantage")
}
