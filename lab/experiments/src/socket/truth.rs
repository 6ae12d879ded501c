//! The true delays of bytes: the stamps of `dwell stack` on both hosts.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    path::Path,
};

use dwell_testbed::{Error, Result};
use serde::Deserialize;

use super::accuracy::Series;

/// All flows with stamped bytes.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Flows by the addresses of sender and receiver.
    pub flows: BTreeMap<(SocketAddr, SocketAddr), Flow>,
    /// Stamped bytes that were not reported.
    pub lost: u64,
}

/// The stamped bytes of one direction of a connection, without bytes that were retransmitted.
#[derive(Debug, Clone, Default)]
pub struct Flow {
    /// Bytes that left the sender's TCP, in the order of the flow.
    pub sent: Vec<Sent>,
    /// Bytes that were read, in the order of the flow.
    pub read: Vec<Read>,
}

/// A byte on the sender's host. Times are on CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Sequence number.
    pub seq: u32,
    /// When it was copied into the socket.
    pub written_ns: u64,
    /// When TCP passed it to IP.
    pub left_ns: u64,
}

/// A byte on the receiver's host. Times are on CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Sequence number.
    pub seq: u32,
    /// When it and all bytes before it had arrived.
    pub ready_ns: u64,
    /// When the application had read it.
    pub read_ns: u64,
}

impl Truth {
    /// Reads the output of `dwell stack --raw --format jsonl` in the sender's and the receiver's namespace.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or a line of a stamped byte is malformed.
    pub fn read(sender: &Path, receiver: &Path) -> Result<Truth> {
        let mut truth = Truth::default();
        for file in [sender, receiver] {
            let mut lost = 0;
            for_each_line(file, |line| {
                if line.starts_with(BYTE) {
                    truth.add(from_json(line, file)?);
                } else if line.starts_with(STATUS) {
                    lost = from_json::<Status>(line, file)?.lost;
                }
                Ok(())
            })?;
            truth.lost += lost;
        }
        for flow in truth.flows.values_mut() {
            flow.sort();
        }
        Ok(truth)
    }

    /// The flow to this port of the receiver with the most bytes.
    pub fn to_port(&self, port: u16) -> Option<(&(SocketAddr, SocketAddr), &Flow)> {
        let flows = self.flows.iter().filter(|((_, to), _)| to.port() == port);
        flows.max_by_key(|(_, flow)| flow.sent.len())
    }

    fn add(&mut self, line: Byte) {
        let Byte { flow, seq, .. } = line;
        let stamps = &line.stamp_ns;
        let flow = self.flows.entry(flow.addresses()).or_default();
        if line.direction == "rx" {
            if let (Some(ready_ns), Some(read_ns)) = (stamps.ready, stamps.read) {
                flow.read.push(Read { seq, ready_ns, read_ns });
            }
        } else if !line.retransmitted
            && line.sent == Some(1)
            && let (Some(written_ns), Some(left_ns)) = (stamps.written, stamps.left)
        {
            flow.sent.push(Sent { seq, written_ns, left_ns });
        }
    }
}

impl Flow {
    /// Delays in the send buffer, by the time at which bytes left it.
    pub fn sending(&self) -> Series {
        let sent = self.sent.iter();
        Series::new(sent.map(|byte| (byte.left_ns, byte.left_ns.saturating_sub(byte.written_ns))))
    }

    /// Delays in the receive buffer, by the time at which bytes were read.
    pub fn reading(&self) -> Series {
        let read = self.read.iter();
        Series::new(read.map(|byte| (byte.read_ns, byte.read_ns.saturating_sub(byte.ready_ns))))
    }

    /// Delays from socket to socket, by the time at which bytes were read.
    pub fn end_to_end(&self) -> Series {
        let written: HashMap<u32, u64> = self.sent.iter().map(|byte| (byte.seq, byte.written_ns)).collect();
        let read = self.read.iter();
        Series::new(read.filter_map(|byte| {
            let written_ns = *written.get(&byte.seq)?;
            Some((byte.read_ns, byte.read_ns.saturating_sub(written_ns)))
        }))
    }

    /// When the first byte was written.
    pub fn start_ns(&self) -> Option<u64> {
        self.sent.iter().map(|byte| byte.written_ns).min()
    }

    /// The rate of bytes read within a span, in bits per second. `None` if fewer than two bytes were read in it.
    pub fn goodput_bps(&self, (from_ns, to_ns): (u64, u64)) -> Option<f64> {
        let mut within = self.read.iter().filter(|byte| (from_ns..=to_ns).contains(&byte.read_ns));
        let first = within.next()?;
        let last = within.next_back()?;
        let bytes = last.seq.wrapping_sub(first.seq);
        let ns = last.read_ns.checked_sub(first.read_ns).filter(|&ns| ns > 0)?;
        Some(f64::from(bytes) * 8e9 / ns as f64)
    }

    /// Sorts by sequence number, which starts anywhere and wraps around.
    fn sort(&mut self) {
        let first = self.sent.iter().map(|byte| (byte.left_ns, byte.seq)).min();
        let first = first.or_else(|| self.read.iter().map(|byte| (byte.read_ns, byte.seq)).min());
        let Some((_, base)) = first else {
            return;
        };
        // The flow spans less than half of all sequence numbers.
        let position = |seq: u32| seq.wrapping_sub(base).cast_signed();
        self.sent.sort_by_key(|byte| (position(byte.seq), byte.left_ns));
        self.sent.dedup_by_key(|byte| byte.seq);
        self.read.sort_by_key(|byte| (position(byte.seq), byte.read_ns));
        self.read.dedup_by_key(|byte| byte.seq);
    }
}

/// The starts of the lines.
const BYTE: &str = r#"{"type":"stack.byte""#;
const STATUS: &str = r#"{"type":"stack.status""#;

#[derive(Deserialize)]
struct Byte {
    flow: Ends,
    seq: u32,
    direction: String,
    sent: Option<u32>,
    retransmitted: bool,
    stamp_ns: Stamps,
}

/// The addresses of a connection, as in records.
#[derive(Deserialize)]
pub(super) struct Ends {
    src: IpAddr,
    sport: u16,
    dst: IpAddr,
    dport: u16,
}

impl Ends {
    pub(super) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (SocketAddr::new(self.src, self.sport), SocketAddr::new(self.dst, self.dport))
    }
}

#[derive(Deserialize)]
struct Stamps {
    #[serde(rename = "tx-socket")]
    written: Option<u64>,
    #[serde(rename = "tx-tcp")]
    left: Option<u64>,
    #[serde(rename = "rx-ready")]
    ready: Option<u64>,
    #[serde(rename = "rx-socket")]
    read: Option<u64>,
}

#[derive(Deserialize)]
struct Status {
    lost: u64,
}

/// Calls `each` for each line of a file, except for a last line without its end, which a killed program leaves.
pub(super) fn for_each_line(file: &Path, mut each: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let open = File::open(file).map_err(Error::file("read", file))?;
    let mut lines = BufReader::new(open);
    let mut line = String::new();
    loop {
        line.clear();
        lines.read_line(&mut line).map_err(Error::file("read", file))?;
        let Some(whole) = line.strip_suffix('\n') else {
            return Ok(());
        };
        each(whole)?;
    }
}

pub(super) fn from_json<'a, T: Deserialize<'a>>(line: &'a str, file: &Path) -> Result<T> {
    serde_json::from_str(line).map_err(|why| Error::invalid(format!("{}: {line}", file.display()), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(direction: &str, seq: u32, sent: &str, stamps: &str) -> String {
        format!(
            r#"{{"type":"stack.byte","schema":"dwell/2","time":null,"host":"h","flow":{{"src":"10.0.0.1","sport":9,"dst":"10.0.0.2","dport":7,"proto":"TCP"}},"seq":{seq},"direction":"{direction}","sent":{sent},"retransmitted":false,"stamp_ns":{{{stamps}}}}}"#
        ) + "\n"
    }

    fn truth(sender: &str, receiver: &str) -> Result<Truth> {
        let folder = tempfile::tempdir().unwrap();
        let files = ["tx", "rx"].map(|name| folder.path().join(name));
        std::fs::write(&files[0], sender).unwrap();
        std::fs::write(&files[1], receiver).unwrap();
        Truth::read(&files[0], &files[1])
    }

    #[test]
    fn bytes_are_in_the_order_of_the_flow_also_where_numbers_wrap() {
        let tx = |seq, at: u64, left: u64| {
            let stamps = format!(r#""tx-socket":{at},"tx-tcp":{left},"tx-ip":null"#);
            line("tx", seq, "1", &stamps)
        };
        let rx = |seq, ready: u64, read: u64| {
            let stamps = format!(r#""rx-ready":{ready},"rx-socket":{read}"#);
            line("rx", seq, "null", &stamps)
        };
        let sender = tx(u32::MAX - 999, 1000, 1500)
            + &tx(1024, 3000, 5000)
            + &tx(24, 2000, 4000)
            + &line("tx", 2048, "2", r#""tx-socket":1,"tx-tcp":9"#)
            + r#"{"type":"stack.status","last":false,"lost":3}"#
            + "\n{\"type\":\"stack.byte\",\"sch";
        let receiver = rx(1024, 7000, 7100) + &rx(u32::MAX - 999, 6000, 6050);
        let truth = truth(&sender, &receiver).unwrap();
        assert_eq!(truth.lost, 3);
        assert!(truth.to_port(8).is_none());
        let (ends, flow) = truth.to_port(7).unwrap();
        assert_eq!(ends.0.to_string(), "10.0.0.1:9");
        let sent: Vec<_> = flow.sent.iter().map(|byte| byte.seq).collect();
        assert_eq!(sent, [u32::MAX - 999, 24, 1024]);
        assert_eq!(flow.sending(), Series::new([(1500, 500), (4000, 2000), (5000, 2000)]));
        assert_eq!(flow.reading(), Series::new([(6050, 50), (7100, 100)]));
        assert_eq!(flow.end_to_end(), Series::new([(6050, 5050), (7100, 4100)]));
        assert_eq!(flow.start_ns(), Some(1000));
        // 2024 bytes in 1050 ns
        let goodput = flow.goodput_bps((0, 10_000)).unwrap();
        assert!((goodput - 2024.0 * 8e9 / 1050.0).abs() < 1.0, "{goodput}");
        assert_eq!(flow.goodput_bps((0, 7000)), None);
    }

    #[test]
    fn a_malformed_line_is_named() {
        let error = truth("{\"type\":\"stack.byte\",1\n", "").unwrap_err();
        assert!(error.to_string().contains("tx: {\"type\""), "{error}");
    }
}
