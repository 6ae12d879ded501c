//! An API whose database works for 90 to 150 ms, and clients 30 ms away.

use dwell_testbed::Result;

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    let network = &mut stage.network;
    network.path(
        [port("api", "eth0", "10.0.0.10/24"), port("clients", "eth0", "198.51.100.7/24")],
        slow(30, 50.0, 200, 0.0),
    )?;
    network.wire([port("api", "eth1", "10.0.1.10/24"), port("db", "eth0", "10.0.1.20/24")])?;
    stage.traffic("db", "db", "serve 5432 --work 90 150 --bytes 20000")?;
    stage.traffic("api", "api", "serve 8080 --work 3 8 --behind 10.0.1.20:5432 --bytes 20000")?;
    stage.traffic("clients", "clients", "ask 10.0.0.10:8080 --connections 5 --pause 60").map(drop)
}

pub fn before(_stage: &mut Stage, _step: usize) -> Result<&'static str> {
    Ok("api")
}
