//! A database two routers and 4 ms away that works on one request at a time, for 6 ms each.

use dwell_testbed::Result;

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    stage
        .network
        .path([port("web", "eth0", "10.0.0.10/24"), port("db", "eth0", "10.0.1.20/24")], slow(4, 200.0, 200, 0.0))?;
    stage.traffic("database", "db", "serve 5432 --one-thread --work 6 6 --bytes 3000")?;
    stage.traffic("web", "web", "ask 10.0.1.20:5432 --connections 6 --pause 10").map(drop)
}

pub fn before(stage: &mut Stage, step: usize) -> Result<&'static str> {
    if step == 3 {
        stage.start(
            "agent",
            "db",
            "dwell agent --collector 10.0.1.20:4790 --key-file fleet.key --name db --port 5432 --sample-bytes 64",
        )?;
    }
    Ok(if matches!(step, 2 | 4 | 5) { "db" } else { "web" })
}
