//! A TLS server that works for 35 to 45 ms, and clients 20 ms away.

use dwell_testbed::{Result, error::run};

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    stage.network.path(
        [port("server", "eth0", "10.0.0.10/24"), port("clients", "eth0", "198.51.100.7/24")],
        slow(20, 100.0, 200, 0.0),
    )?;
    let host = stage.network.host("server")?;
    let mut make = host.command("openssl");
    make.args("req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=server -keyout server.pem -out cert.pem".split(' '));
    run(make.current_dir(stage.folder()), "")?;
    run(host.command("sh").args(["-c", "cat cert.pem >> server.pem"]).current_dir(stage.folder()), "")?;
    stage.traffic("server", "server", "serve 443 --tls server.pem --work 35 45 --bytes 3000")?;
    stage.traffic("clients", "clients", "ask 10.0.0.10:443 --tls --connections 4 --pause 60").map(drop)
}

pub fn before(_stage: &mut Stage, _step: usize) -> Result<&'static str> {
    Ok("server")
}
