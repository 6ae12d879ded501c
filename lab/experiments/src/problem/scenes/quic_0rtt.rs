//! `dwell lb` before four servers, and a client that opens one QUIC connection after the other. Nobody answers: what is looked at
//! are the first packets.

use std::{
    net::UdpSocket,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use dwell_testbed::{Error, ProcessId, Result, workload::PATIENCE};
use quinn::{ClientConfig, crypto::rustls::QuicClientConfig};
use rustls::RootCertStore;

use crate::{
    loads::quic::{block_on, endpoint},
    problem::{network::port, stage::Stage},
};

pub fn prepare(stage: &mut Stage) -> Result<()> {
    let ports = [
        port("balancer", "eth0", "10.0.0.1/24"),
        port("client", "eth0", "10.0.0.7/24"),
        port("b1", "eth0", "10.0.0.11/24"),
        port("b2", "eth0", "10.0.0.12/24"),
        port("b3", "eth0", "10.0.0.13/24"),
        port("b4", "eth0", "10.0.0.14/24"),
    ];
    stage.network.switch("rack", &ports)?;
    stage.network.host("client")?.ip("route add 192.0.2.10 via 10.0.0.1\n")?;
    capture(stage)?;
    configure(stage, false)?;
    stage.start("balancer", "balancer", "dwell lb run lb.toml")?;
    stage.at_end("balancer", format!("dwell lb detach --pin {}", pin()?));
    for verb in ["where", "reload"] {
        stage.replace(verb, format!("{verb} --socket lb.sock"));
    }
    stage.wait_for("lb.sock")
}

pub fn before(stage: &mut Stage, step: usize) -> Result<&'static str> {
    configure(stage, step > 2)?;
    Ok("balancer")
}

/// Captures the first packets of connections until there are five.
fn capture(stage: &Stage) -> Result<()> {
    let host = stage.network.host("client")?;
    let mut capture = host.spawn("tcpdump", |command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.args("-q -Z root -i eth0 -c 5 -w clients.pcap udp dst port 443".split(' ')).current_dir(stage.folder());
    })?;
    let failed = |why: &dyn std::fmt::Display| Error::invalid("QUIC client", why.to_string());
    let tls = rustls::ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(|why| failed(&why))?));
    let mut connections = Vec::new();
    let begun = Instant::now();
    block_on(async {
        while capture.try_wait().map_err(Error::io("wait for tcpdump"))?.is_none() {
            if begun.elapsed() > PATIENCE {
                return Err(Error::Timeout("the capture of five first packets".to_owned()));
            }
            let socket = host.enter(|| UdpSocket::bind("10.0.0.7:0"))?.map_err(Error::io("bind a socket"))?;
            let endpoint = endpoint(socket, None)?;
            let to = ([192, 0, 2, 10], 443).into();
            let connection = endpoint.connect_with(config.clone(), to, "h3.test").map_err(|why| failed(&why))?;
            // Whoever drops one closes it, by a packet more.
            connections.push((endpoint, connection));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    })
}

/// The policy that hashes addresses and ports, or the one that keeps 0-RTT.
fn configure(stage: &Stage, is_zero_rtt: bool) -> Result<()> {
    let policy = if is_zero_rtt { "zero-rtt" } else { "maglev" };
    let backend = |number: usize| {
        let id = if is_zero_rtt { format!(", server_id = {number}") } else { String::new() };
        format!("    {{ name = \"b{number}\", address = \"10.0.0.1{number}\"{id} }},\n")
    };
    let backends: String = (1..=4).map(backend).collect();
    let key = "[vip.zero_rtt]\nlayout = [{ rotation = 0, key = \"8f95f09245765f80256934e50c66207f\" }]\n";
    stage.write(
        "lb.toml",
        format!(
            "interface = \"eth0\"\npin = \"{}\"\n\n[limits]\nconnections = 20000\n\n\
             [api]\nsocket = \"{}/lb.sock\"\n\n[[vip]]\nname = \"h3\"\naddress = \"192.0.2.10\"\nprotocol = \"udp\"\n\
             port = 443\npolicy = \"{policy}\"\nforward = \"l2\"\nbackend = [\n{backends}]\n{}",
            pin()?,
            stage.folder().display(),
            if is_zero_rtt { key } else { "" }
        ),
    )
}

/// Where the balancer pins its maps: a folder by whose name other experiments find it if this process is killed.
fn pin() -> Result<String> {
    let own = ProcessId::own()?;
    Ok(format!("/sys/fs/bpf/dwell/lab-{}-{}-0", own.pid, own.start_ticks))
}
