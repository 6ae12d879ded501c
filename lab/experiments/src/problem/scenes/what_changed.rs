//! A service whose only thread works 2.2 ms longer for each request since its update.

use dwell_testbed::Result;

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    stage.network.path(
        [port("server", "eth0", "10.0.0.10/24"), port("clients", "eth0", "198.51.100.7/24")],
        slow(2, 100.0, 200, 0.0),
    )
}

pub fn before(stage: &mut Stage, step: usize) -> Result<&'static str> {
    let is_updated = !matches!(step, 2 | 3);
    stage.end("clients");
    stage.end("service");
    let work = if is_updated { "2.3 2.5" } else { "0.1 0.3" };
    stage.traffic("service", "server", &format!("serve 8080 --one-thread --work {work}"))?;
    stage.traffic("clients", "clients", "ask 10.0.0.10:8080 --connections 6 --pause 20")?;
    Ok("server")
}
