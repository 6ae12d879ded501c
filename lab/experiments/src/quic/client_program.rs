//! Another program in a client's place.

use std::{
    fs,
    time::{Duration, Instant},
};

use dwell_quic::TICKETS;
use dwell_testbed::{Error, Result, signals::Signals};

use super::{
    Policy, Scene,
    identity::NAME,
    stage::{ServerOptions, Stage},
};
use crate::lb::Star;

/// Options of a run of a program.
#[derive(Debug, Clone)]
pub struct ClientProgramOptions {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Balancing policy.
    pub policy: Policy,
    /// Longest time that the program may run.
    pub timeout: Duration,
}

/// How the program ended, and what servers counted meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientProgramResult {
    /// Whether the program exited with status 0.
    pub succeeded: bool,
    /// Tickets that servers issued.
    pub issued: u64,
    /// Tickets that clients used and servers accepted.
    pub accepted: u64,
    /// Tickets that clients used and servers did not know.
    pub refused: u64,
}

/// Runs a program in a client's place.
///
/// Its environment has `DWELL_QUIC_SERVER` (address and port), `DWELL_QUIC_NAME`, `DWELL_QUIC_CERTIFICATE` (a file in
/// PEM), and `DWELL_QUIC_OWN` (three addresses that it may use, separated by commas). ALPN is `dwell-lab`: one stream
/// per request of 17 octets, which are a number (8), the length of the answer (8), and 1 for an answer that comes
/// slowly. The answer starts with two octets, the server's number.
///
/// # Errors
///
/// If servers, balancer or the program do not start, it takes too long, or a signal asked to stop.
pub fn client_program(scene: Scene<'_>, options: &ClientProgramOptions) -> Result<ClientProgramResult> {
    let signals = Signals::watch()?;
    let stage = Stage::start(scene, options.policy, ServerOptions::without_work(TICKETS))?;
    let certificate = scene.folder.join("certificate.pem");
    fs::write(&certificate, stage.identity.pem()).map_err(Error::file("write", &certificate))?;
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(Error::invalid("command", "names no program"));
    };
    let own = [1, 2, 3].map(|host| Star::client_address(0, host).to_string());
    let before = tickets(&stage);
    let mut process = scene.star.clients[0].spawn(program, |command| {
        command
            .args(arguments)
            .env("DWELL_QUIC_SERVER", Stage::vip().to_string())
            .env("DWELL_QUIC_NAME", NAME)
            .env("DWELL_QUIC_CERTIFICATE", &certificate)
            .env("DWELL_QUIC_OWN", own.join(","));
    })?;
    let start = Instant::now();
    let status = loop {
        let waited = process.try_wait().map_err(Error::io(format!("wait for {program}")))?;
        if let Some(status) = waited {
            break status;
        }
        if start.elapsed() > options.timeout {
            return Err(Error::Timeout(format!("the end of {program}")));
        }
        signals.pause(Duration::from_millis(20))?;
    };
    let after = tickets(&stage);
    stage.stop()?;
    let [issued, accepted, refused] = [0, 1, 2].map(|count| after[count] - before[count]);
    Ok(ClientProgramResult { succeeded: status.success(), issued, accepted, refused })
}

/// Tickets that all servers have issued, accepted and refused so far.
fn tickets(stage: &Stage<'_>) -> [u64; 3] {
    let all = stage.servers.iter().map(|server| server.sessions());
    all.fold([0; 3], |sum, of| [sum[0] + of.stored, sum[1] + of.resumed, sum[2] + of.missed])
}
