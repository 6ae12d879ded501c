use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use serde_json::Value;

use super::{Ends, PATIENCE, RoundTrips, output, serve};
use crate::{BitsPerSecond, Bytes, Error, Nanos, Result};

/// Requests and responses on one TCP connection. Each request is sent when the previous response has arrived.
#[derive(Debug, Clone, Copy)]
pub struct PingPong {
    /// The duration.
    pub duration: Duration,
    /// The longest message. Lengths are uniform from 1; a request and its response have the same length.
    pub longest: Bytes,
    /// Random seed of the lengths.
    pub seed: u64,
}

impl PingPong {
    /// Sends the requests from the client to the server. A round trip is the time from before a request is written
    /// until its response is read. The connection's handshake is not included.
    pub fn run(&self, ends: Ends<'_>, stop: &AtomicBool) -> Result<RoundTrips> {
        let listener = ends.server.enter(|| TcpListener::bind((ends.address, 0)))?.map_err(Error::io("listen"))?;
        let address = listener.local_addr().map_err(Error::io("listen"))?;
        thread::scope(|scope| {
            let server = scope.spawn(|| echo_one(&listener));
            let client = ends.client.enter(|| self.ask(address, stop))?;
            let server = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // The client's error is the cause where both have one.
            client.and_then(|trips| server.map(|()| trips))
        })
    }

    fn ask(&self, address: SocketAddr, stop: &AtomicBool) -> Result<RoundTrips> {
        let failed = || Error::io(format!("talk to {address}"));
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed())?;
        prepare(&stream).map_err(failed())?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut message = vec![0x5a; self.longest.0.max(1) as usize];
        let begun = Instant::now();
        let mut trips = Vec::new();
        while begun.elapsed() < self.duration {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let length = random.random_range(1..=message.len());
            let sent = Instant::now();
            stream.write_all(&message[..length]).map_err(failed())?;
            stream.read_exact(&mut message[..length]).map_err(failed())?;
            trips.push(sent.elapsed().into());
        }
        Ok(RoundTrips(trips))
    }
}

/// Sends every byte back as it arrives, until the other side has finished.
fn echo_one(listener: &TcpListener) -> Result<()> {
    let failed = || Error::io("echo");
    let mut watched = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::NONE);
    if poll(&mut watched, patience).map_err(Error::os("wait for a connection"))? == 0 {
        return Err(Error::Timeout("a connection".to_owned()));
    }
    let (mut stream, _) = listener.accept().map_err(failed())?;
    prepare(&stream).map_err(failed())?;
    let mut buffer = [0; 64 << 10];
    loop {
        match stream.read(&mut buffer).map_err(failed())? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length]).map_err(failed())?,
        }
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// A bulk transfer by `iperf3`.
#[derive(Debug, Clone, Copy)]
pub struct Bulk {
    /// The duration in whole seconds.
    pub seconds: u32,
    /// The limit of the rate; if absent, there is none.
    pub rate: Option<BitsPerSecond>,
    /// True if the server sends.
    pub download: bool,
    /// The congestion control; if absent, the kernel's default.
    pub congestion: Option<&'static str>,
}

/// The result of `iperf3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkReport {
    /// Bytes received.
    pub received: Bytes,
    /// The sending kernel's lowest smoothed round trip. `null` if iperf3 does not report it.
    pub rtt_min: Option<Nanos>,
    /// The mean of the smoothed round trips.
    pub rtt_mean: Option<Nanos>,
    /// The number of retransmitted segments.
    pub retransmits: Option<u64>,
}

impl Bulk {
    /// Runs the transfer.
    pub fn run(&self, ends: Ends<'_>, stop: &AtomicBool) -> Result<BulkReport> {
        const PORT: u16 = 5201;
        let address = ends.address.to_string();
        let listen = |command: &mut Command| {
            command.args(["-s", "-1", "-B", &address]);
        };
        let _server = serve(ends.server, "iperf3", listen, "tcp", PORT)?;
        let mut arguments = vec!["-J".to_owned(), "-c".to_owned(), address.clone()];
        arguments.extend(["-t".to_owned(), self.seconds.to_string()]);
        arguments.extend(["--connect-timeout".to_owned(), PATIENCE.as_millis().to_string()]);
        if let Some(rate) = self.rate {
            arguments.extend(["-b".to_owned(), u64::from(rate).to_string()]);
        }
        if let Some(congestion) = self.congestion {
            arguments.extend(["-C".to_owned(), congestion.to_owned()]);
        }
        if self.download {
            arguments.push("-R".to_owned());
        }
        let text = output(ends.client, "iperf3", &arguments, stop)?;
        parse(&text).map_err(|reason| Error::invalid("output of iperf3", reason))
    }
}

/// Returns the result, or why there is none, in iperf3's words where it has any.
fn parse(text: &str) -> std::result::Result<BulkReport, String> {
    let output: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    result_of(&output).ok_or_else(|| output["error"].as_str().unwrap_or("it has no result").to_owned())
}

fn result_of(output: &Value) -> Option<BulkReport> {
    let end = output.get("end")?;
    let sender = &end["streams"][0]["sender"];
    let micros = |key: &str| sender[key].as_u64().filter(|&micros| micros > 0).map(Nanos::from_micros);
    Some(BulkReport {
        received: Bytes(end["sum_received"]["bytes"].as_u64()?),
        rtt_min: micros("min_rtt"),
        rtt_mean: micros("mean_rtt"),
        retransmits: sender["retransmits"].as_u64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_iperf3_is_read() {
        let text = r#"{"start":{},"end":{"streams":[{"sender":{"retransmits":3,"min_rtt":25100,"mean_rtt":25400}}],
            "sum_received":{"bytes":123456}}}"#;
        let expected = BulkReport {
            received: Bytes(123_456),
            rtt_min: Some(Nanos::from_micros(25_100)),
            rtt_mean: Some(Nanos::from_micros(25_400)),
            retransmits: Some(3),
        };
        assert_eq!(parse(text), Ok(expected));
        assert_eq!(parse(r#"{"end":{},"error":"unable to connect"}"#), Err("unable to connect".to_owned()));
    }
}
