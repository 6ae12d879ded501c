//! `dwell-lab quic client`: a program in a client's place.

use std::time::Duration;

use dwell_app::{Exit, args::positive_duration};

use crate::{
    failure::Failure,
    quic::{self, ClientProgramOptions, Policy, goals},
    star::Common,
};

/// Run a program in a client's place, against four servers behind the balancer
///
/// The program's environment has DWELL_QUIC_SERVER (address and port), DWELL_QUIC_NAME,
/// DWELL_QUIC_CERTIFICATE (a PEM file), and DWELL_QUIC_OWN, three addresses that it may use. ALPN is
/// dwell-lab: one stream per request of 17 octets, which are a number (8), the length of the answer (8),
/// and 1 for an answer that comes slowly; the answer starts with the server's number (2). tests/quic has
/// two such programs. The exit status is 1 if the program does not exit with status 0.
#[derive(Debug, clap::Args)]
pub struct Client {
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// Balancing policy
    #[arg(long, value_enum, default_value_t = Policy::ZeroRtt)]
    policy: Policy,
    /// How long the program may run
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_duration)]
    duration: Duration,
    #[command(flatten)]
    common: Common,
}

impl Client {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(None)?;
        let options =
            ClientProgramOptions { command: self.command.clone(), policy: self.policy, timeout: self.duration };
        let run = quic::client_program((&scene).into(), &options)?;
        self.common.judge(&[goals::client(&self.command, &run)])
    }
}
