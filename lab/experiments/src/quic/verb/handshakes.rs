//! One server: full handshakes, resumed ones, 0-RTT.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use dwell_app::{Exit, args::duration, tell::tell};
use dwell_testbed::Emulation;
use serde::Serialize;

use super::{Format, SCHEMA, ms, nanos};
use crate::{Programs, print::folders, star::save};
use crate::{
    failure::Failure,
    quic::{self, HandshakeOptions, Mode},
};

/// What a full handshake, a resumed one and 0-RTT take a client to its first byte, and the server's processor
///
/// One client's host, one server, no balancer. Each connection asks for ten bytes once; a client has one
/// connection at a time. Modes take turns. Processor time is that of the server's thread, with what the
/// kernel does for it.
#[derive(Debug, clap::Args)]
pub struct Handshakes {
    /// Keys of the server's certificate
    #[arg(long, value_enum, value_name = "KIND,...", value_delimiter = ',', default_values_t = [Certificate::Ecdsa, Certificate::Rsa])]
    certificates: Vec<Certificate>,
    /// Round trips between client and server
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_values = ["0ms", "20ms"], value_parser = duration)]
    rtts: Vec<Duration>,
    /// Clients side by side
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 10, 50, 100, 200], value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: Vec<u16>,
    /// Connections of each mode at each number of clients
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// How often modes take turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Keep pictures in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// How to print: text, or jsonl, an object a line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Certificate {
    Ecdsa,
    Rsa,
}

impl From<Certificate> for quic::Certificate {
    fn from(certificate: Certificate) -> Self {
        match certificate {
            Certificate::Ecdsa => quic::Certificate::Ecdsa,
            Certificate::Rsa => quic::Certificate::Rsa,
        }
    }
}

#[derive(Serialize)]
struct Object {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    certificate: &'static str,
    rtt_ns: u64,
    clients: usize,
    mode: &'static str,
    connections: usize,
    resumed: u64,
    early: usize,
    first_byte_mean_ns: Option<u64>,
    first_byte_p50_ns: Option<u64>,
    first_byte_p99_ns: Option<u64>,
    server_cpu_ns: Option<u64>,
}

impl Handshakes {
    pub fn run(&self) -> Result<Exit, Failure> {
        // A folder is made for pictures only.
        let _folder = folders("dwell-quic-", self.keep.as_deref())?;
        let lab = Programs::find()?.lab;
        let mut pictures = Vec::new();
        for certificate in self.certificates.iter().map(|kind| quic::Certificate::from(*kind)) {
            for rtt in &self.rtts {
                let options = HandshakeOptions {
                    certificate,
                    rtt: *rtt,
                    simultaneous: self.clients.iter().map(|clients| usize::from(*clients)).collect(),
                    connections: self.connections as usize,
                    rounds: self.rounds as usize,
                };
                let title = format!("{}, round trip {rtt:?}", certificate.name());
                tell(&title);
                self.format.say(&head())?;
                let runs = quic::handshakes(&options, Emulation::Process(lab.clone()))?;
                for clients in &options.simultaneous {
                    self.tell(&options, *clients, &runs)?;
                }
                pictures.push((title, runs));
            }
        }
        let pictures: Vec<_> = pictures.iter().map(|(title, runs)| (title.clone(), runs.as_slice())).collect();
        let picture = quic::by_clients("Full handshakes, resumed ones, 0-RTT", &pictures);
        save(self.keep.as_deref(), "handshakes.svg", &picture)?;
        Ok(Exit::Done)
    }

    /// All modes, with the full handshake over each.
    fn tell(&self, options: &HandshakeOptions, clients: usize, runs: &[quic::Handshakes]) -> Result<(), Failure> {
        let of = |mode| runs.iter().find(|run| run.mode == mode && run.simultaneous == clients);
        let Some(full) = of(Mode::Full) else {
            return Ok(());
        };
        for run in Mode::ALL.into_iter().filter_map(of) {
            let object = Object {
                kind: "lab_quic_handshakes",
                schema: SCHEMA,
                certificate: options.certificate.name(),
                rtt_ns: dwell_app::args::nanos(options.rtt),
                clients,
                mode: run.mode.name(),
                connections: run.first_byte.len(),
                resumed: run.resumed,
                early: run.early,
                first_byte_mean_ns: nanos(run.mean()),
                first_byte_p50_ns: nanos(run.quantile(0.5)),
                first_byte_p99_ns: nanos(run.quantile(0.99)),
                server_cpu_ns: nanos(run.cpu_each()),
            };
            self.format.print(&object, || line(run, full))?;
        }
        Ok(())
    }
}

fn head() -> String {
    format!(
        "{:>7} {:<13}{:>7}{:>8}{:>7}{:>10}{:>10}{:>10}{:>7}{:>10}{:>7}",
        "clients", "mode", "conns", "resumed", "0-RTT", "mean ms", "p50 ms", "p99 ms", "x", "cpu ms", "x"
    )
}

fn line(run: &quic::Handshakes, full: &quic::Handshakes) -> String {
    let over = |of: fn(&quic::Handshakes) -> Option<Duration>| {
        let (full, own) = (of(full)?, of(run)?);
        Some(full.as_secs_f64() / own.as_secs_f64())
    };
    let times = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    format!(
        "{:>7} {:<13}{:>7}{:>8}{:>7}{:>10}{:>10}{:>10}{:>7}{:>10}{:>7}",
        run.simultaneous,
        run.mode.name(),
        run.first_byte.len(),
        run.resumed,
        run.early,
        ms(run.mean()),
        ms(run.quantile(0.5)),
        ms(run.quantile(0.99)),
        times(over(quic::Handshakes::mean)),
        ms(run.cpu_each()),
        times(over(quic::Handshakes::cpu_each)),
    )
}
