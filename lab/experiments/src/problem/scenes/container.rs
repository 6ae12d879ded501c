//! A container that uploads, joined as Docker joins one, on a host whose device is limited to 20 Mbit/s.

use dwell_testbed::{Result, error::run};

use crate::problem::{network::port, stage::Stage};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    let network = &mut stage.network;
    network.wire([port("host", "eth0", "10.0.0.1/24"), port("server", "eth0", "10.0.0.10/24")])?;
    network.host("server")?.ip("route add default via 10.0.0.1\n")?;
    network.pair([("host", "vethbox"), ("box", "eth0")])?;
    let bridge = "link add docker0 type bridge\nlink set docker0 up\nlink set vethbox master docker0\n";
    network.host("host")?.ip(&format!("{bridge}address add 172.17.0.1/16 dev docker0\n"))?;
    network.host("box")?.ip("address add 172.17.0.2/16 dev eth0\nroute add default via 172.17.0.1\n")?;
    let limit = "qdisc add dev eth0 root tbf rate 20mbit burst 10kb limit 60kb";
    run(network.host("host")?.command("tc").args(limit.split(' ')), "")?;
    let id = format!("5e1f00{:06x}{}", std::process::id(), "0".repeat(52));
    let group = stage.group(&format!("docker-{id}.scope"))?;
    stage.start("server", "server", "iperf3 -s")?;
    let upload = "until iperf3 -c 10.0.0.10 -t 600; do sleep 0.1; done";
    let pid = stage.start_in(&group, "upload", "box", upload)?;
    stage.replace("5e1f00d5b0c4", id[..12].to_owned());
    stage.replace("PID", pid.to_string());
    stage.replace("CGROUP", group.display().to_string());
    Ok(())
}

pub fn before(_stage: &mut Stage, _step: usize) -> Result<&'static str> {
    Ok("host")
}
