//! Clients of others.

use std::time::Duration;

use dwell_app::{Exit, args::positive_duration};

use super::star::{Placing, lab};
use crate::{
    failure::Failure,
    quic::{self, OtherOptions},
};
use crate::{goal::Goal, star::Common};

/// Run a program in a client's place, against four servers behind the balancer
///
/// The program is told by its environment: DWELL_QUIC_SERVER (address and port), DWELL_QUIC_NAME,
/// DWELL_QUIC_CERTIFICATE (a PEM file), and DWELL_QUIC_OWN, three addresses that it may use. ALPN is
/// dwell-lab: a stream a request of 17 octets, a number (8), the length of the answer (8), 1 for an answer
/// that comes slowly; the answer begins with the server's number (2). tests/quic has two such programs.
/// Ends with status 1 if the program does not end with status 0.
#[derive(Debug, clap::Args)]
pub struct Client {
    /// The program, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// How connections are placed
    #[arg(long, value_enum, default_value_t = Placing::ZeroRtt)]
    policy: Placing,
    /// For how long the program may run
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_duration)]
    time: Duration,
    #[command(flatten)]
    common: Common,
}

impl Client {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(None)?;
        let options = OtherOptions { command: self.command.clone(), policy: self.policy.into(), patience: self.time };
        let other = quic::other(lab(&scene), &options)?;
        let (stored, taken, missed) = other.tickets;
        self.common.judge(&[Goal {
            holds: Some(other.is_well),
            what: format!("{}; servers gave {stored} tickets, took {taken}, refused {missed}", self.command.join(" ")),
        }])
    }
}
