//! How connections broke: what their client noticed, and which server had sent the reset.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use dwell_testbed::{
    Error, Namespace, Result,
    error::find_program,
    program::{PATIENCE, RunningProgram},
};
use serde::Serialize;

use super::hosts::{REALS, SERVERS};
use crate::lb::star::{PORT, VIP, mac};

/// A connection that ended though nobody had ended it, as its client noticed it.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) how: How,
    /// The port of the client; none if the connection could not be opened.
    pub(super) port: Option<u16>,
    /// The server that had answered so far, and how often.
    pub(super) server: Option<u8>,
    pub(super) answers: u64,
    /// Whether an earlier connection had the same port.
    pub(super) is_port_used_again: bool,
    pub(super) opened: SystemTime,
    pub(super) noticed: SystemTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    Reset,
    /// Nothing has come for too long.
    Silence(Duration),
    AnotherServer(u8),
    /// It could not be opened, or something else.
    Other(String),
}

/// What is known of a connection that broke.
#[derive(Debug, Serialize)]
pub(super) struct Break {
    /// How it broke, in words; those that broke alike have the same.
    pub(super) how: String,
    /// Time from its beginning to the end, and how many answers it had.
    lasted_ns: u64,
    answers: u64,
    port: Option<u16>,
}

/// Counts what broke alike.
pub(super) fn alike(breaks: &[Break]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for each in breaks {
        *counts.entry(each.how.as_str()).or_default() += 1;
    }
    counts
}

impl Broken {
    /// Tells with the resets that the client got what is known.
    pub(super) fn explain(&self, resets: &[Reset]) -> Break {
        let how = match &self.how {
            How::Reset => match self.reset_by(resets) {
                Some(server) => format!("reset by server{}", server + 1),
                None => "reset by a server that was not seen".to_owned(),
            },
            How::Silence(time) => format!("no answer in {time:?}"),
            How::AnotherServer(server) => format!("answered by server{}", server + 1),
            How::Other(error) => error.clone(),
        };
        let of = match (self.port, self.server) {
            (None, _) => String::new(),
            (_, None) => ", before its first answer".to_owned(),
            (_, Some(server)) => format!(", a connection of server{}", server + 1),
        };
        let again = if self.is_port_used_again { ", whose port an earlier one had" } else { "" };
        let lasted = self.noticed.duration_since(self.opened).unwrap_or_default();
        Break {
            how: format!("{how}{of}{again}"),
            lasted_ns: lasted.as_nanos() as u64,
            answers: self.answers,
            port: self.port,
        }
    }

    fn reset_by(&self, resets: &[Reset]) -> Option<u8> {
        let is_its =
            |reset: &&Reset| Some(reset.port) == self.port && (self.opened..=self.noticed).contains(&reset.time);
        resets.iter().rfind(is_its)?.server
    }
}

/// A reset that the client got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reset {
    time: SystemTime,
    port: u16,
    /// The server that has sent it: its answers come directly.
    server: Option<u8>,
}

impl Reset {
    /// Reads a line of tcpdump with Ethernet's header and the time since 1970.
    fn parse(line: &str) -> Option<Reset> {
        let (time, rest) = line.split_once(' ')?;
        let (from, rest) = rest.split_once(" > ")?;
        let (_, port) = rest.split_once(&format!("{VIP}.{PORT} > "))?.1.split_once(':')?.0.rsplit_once('.')?;
        Some(Reset {
            time: SystemTime::UNIX_EPOCH + Duration::from_secs_f64(time.parse().ok()?),
            port: port.parse().ok()?,
            server: (0..SERVERS as u8).find(|server| mac(REALS + server) == from),
        })
    }
}

/// Watches for resets where the client gets them, if tcpdump is there.
pub(super) struct ResetWatch(Option<RunningProgram>);

impl ResetWatch {
    pub(super) fn start(client: &Namespace, folder: &Path) -> Result<ResetWatch> {
        let Some(tcpdump) = find_program("tcpdump") else { return Ok(ResetWatch(None)) };
        let filter = format!("src host {VIP} and tcp[tcpflags] & tcp-rst != 0");
        let arguments = ["-i", "eth0", "-n", "-e", "-tt", "-Z", "root", &filter];
        let mut program = RunningProgram::start("resets", client, &tcpdump, folder, &arguments)?;
        program.wait_for("listening on", 1, PATIENCE)?;
        Ok(ResetWatch(Some(program)))
    }

    /// Returns the resets so far, in their order.
    pub(super) fn end(self) -> Result<Vec<Reset>> {
        let Some(program) = self.0 else { return Ok(Vec::new()) };
        let file = program.stdout_file().to_owned();
        program.interrupt()?;
        let text = fs::read_to_string(&file).map_err(Error::file("read", &file))?;
        Ok(text.lines().filter_map(Reset::parse).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_reset_is_told_by_the_server_that_sent_it_while_the_connection_was_open() {
        let line = |time: u64, host: &str, port: u16| {
            format!(
                "{time}.000000 02:00:0a:4f:00:{host} > 02:00:0a:4f:00:01, ethertype IPv4 (0x0800), length 54: \
                 10.79.0.100.80 > 10.79.0.1.{port}: Flags [R], seq 1, win 0, length 0"
            )
        };
        let lines = [line(3, "1f", 1025), line(8, "20", 1025), line(8, "63", 1026), line(30, "21", 1025)];
        let resets: Vec<Reset> = lines.iter().filter_map(|line| Reset::parse(line)).collect();
        assert_eq!(resets.iter().map(|reset| reset.server).collect::<Vec<_>>(), [Some(0), Some(1), None, Some(2)]);
        assert_eq!(Reset::parse("tcpdump: listening on eth0"), None);
        let broken = |port, server| Broken {
            how: How::Reset,
            port: Some(port),
            server,
            answers: 2,
            is_port_used_again: true,
            opened: at(5),
            noticed: at(9),
        };
        let how = |broken: Broken| broken.explain(&resets).how;
        assert_eq!(
            how(broken(1025, Some(2))),
            "reset by server2, a connection of server3, whose port an earlier one had"
        );
        let fresh = Broken { is_port_used_again: false, ..broken(1026, None) };
        assert_eq!(how(fresh), "reset by a server that was not seen, before its first answer");
        let refused = Broken { how: How::Other("opening: refused".into()), port: None, ..broken(1, None) };
        assert_eq!(how(Broken { is_port_used_again: false, ..refused.clone() }), "opening: refused");
        let breaks = [refused.explain(&resets), refused.explain(&resets)];
        assert_eq!(alike(&breaks).into_values().collect::<Vec<_>>(), [2]);
    }
}
