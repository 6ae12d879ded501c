//! Clients of others: a program in a client's place.

use std::{
    fs,
    time::{Duration, Instant},
};

use dwell_quic::TICKETS;
use dwell_testbed::{Error, Result, signals::Signals};

use super::{
    Policy, Scene,
    identity::NAME,
    stage::{Like, Stage},
};
use crate::lb::Star;

/// What to run.
#[derive(Debug, Clone)]
pub struct OtherOptions {
    /// The program, and its arguments.
    pub command: Vec<String>,
    /// How connections are placed.
    pub policy: Policy,
    /// For no longer.
    pub patience: Duration,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Whether the program said that all is well, by its status.
    pub is_well: bool,
    /// Tickets that servers gave, those that came back and were good, and those that were not.
    pub tickets: (u64, u64, u64),
}

/// Runs a program in the place of a client. Its environment tells it `DWELL_QUIC_SERVER` (address and port),
/// `DWELL_QUIC_NAME`, `DWELL_QUIC_CERTIFICATE` (a file, PEM), and `DWELL_QUIC_OWN`: three addresses that it may use,
/// with commas. It talks `dwell-lab` (ALPN): a stream a request of 17 octets (a number of 8, the length of the answer
/// of 8, and 1 for slowly), and the answer after two octets with the server's number.
///
/// # Errors
///
/// If servers, balancer or the program do not start, it takes too long, or a signal asked to stop.
pub fn other(scene: Scene<'_>, options: &OtherOptions) -> Result<Other> {
    let signals = Signals::watch()?;
    let stage = Stage::start(scene, options.policy, Like::idle(TICKETS))?;
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
    let begun = Instant::now();
    let status = loop {
        let waited = process.try_wait().map_err(Error::io(format!("wait for {program}")))?;
        if let Some(status) = waited {
            break status;
        }
        if begun.elapsed() > options.patience {
            return Err(Error::Timeout(format!("the end of {program}")));
        }
        signals.pause(Duration::from_millis(20))?;
    };
    let after = tickets(&stage);
    stage.stop()?;
    Ok(Other { is_well: status.success(), tickets: (after.0 - before.0, after.1 - before.1, after.2 - before.2) })
}

fn tickets(stage: &Stage<'_>) -> (u64, u64, u64) {
    let all = stage.servers.iter().map(|server| server.sessions());
    all.fold((0, 0, 0), |sum, of| (sum.0 + of.stored, sum.1 + of.resumed, sum.2 + of.missed))
}
