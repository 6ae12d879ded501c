//! Programs that read round trips from a capture: how each is started, and what its output means.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
};

use dwell_testbed::{
    Error, Lab, Nanos, Result, Role, Side,
    error::{find_program, run},
};

use super::{
    figures::Row,
    samples::{self, Sample},
};
use crate::demo::Scope;

/// A program that reads a capture.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    /// `dwell rtt`, whose samples other than of handshakes count.
    Dwell,
    /// `dwell rtt`, whose samples of handshakes count.
    Handshakes,
    Tshark,
    /// tcptrace, with the folder for its files.
    Tcptrace(PathBuf),
    /// A program that prints packets, but no round trips.
    Printer,
}

/// The fields that tshark prints: its round trip of a packet is that of the segment which the packet acknowledges, and
/// `initial_rtt` is that of a connection's handshake from end to end.
const FIELDS: [&str; 4] = ["tcp.stream", "ip.src", "tcp.analysis.ack_rtt", "tcp.analysis.initial_rtt"];

/// All readers of a capture, and the names of those that are not installed.
pub(super) fn readers(dwell: &Path, capture: &Path, folder: &Path) -> (Vec<Reader>, Vec<&'static str>) {
    let capture = capture.display().to_string();
    let of_dwell = |name, kind, options: &str| Reader {
        name,
        program: dwell.to_owned(),
        arguments: format!("rtt --format jsonl {options} -r")
            .split_whitespace()
            .map(str::to_owned)
            .chain([capture.clone()])
            .collect(),
        kind,
    };
    let mut readers = vec![
        of_dwell(DWELL, Kind::Dwell, ""),
        of_dwell(DWELL_TIMESTAMP, Kind::Dwell, "--methods tcp-timestamp"),
        of_dwell(DWELL_SEQ, Kind::Dwell, "--methods tcp-seq"),
        of_dwell(DWELL_HANDSHAKES, Kind::Handshakes, "--methods tcp-seq --include-handshake"),
    ];
    let mut missing = Vec::new();
    let mut add = |name, path: Option<PathBuf>, options: &str, more: Option<String>, kind| match path {
        None => missing.push(name),
        Some(program) => {
            let options = options.split_whitespace().map(str::to_owned);
            let arguments = options.chain(more).chain(["-r".to_owned(), capture.clone()]).collect();
            readers.push(Reader { name, program, arguments, kind });
        }
    };
    let fields = FIELDS.map(|field| format!("-e {field}")).join(" ");
    add(TSHARK, find_program("tshark"), &format!("-n -T fields {fields}"), None, Kind::Tshark);
    // Raw round trips go to files, because the table has no percentiles.
    let raw = folder.join("tcptrace");
    let folder = format!("--output_dir={}", raw.display());
    add(TCPTRACE, find_program("tcptrace"), "-n -l -Z --csv", Some(folder), Kind::Tcptrace(raw));
    add(TCPDUMP, find_program("tcpdump"), "-n", None, Kind::Printer);
    (readers, missing)
}

pub(super) const DWELL: &str = "dwell rtt";
pub(super) const DWELL_TIMESTAMP: &str = "dwell rtt, tcp-timestamp";
pub(super) const DWELL_SEQ: &str = "dwell rtt, tcp-seq";
pub(super) const DWELL_HANDSHAKES: &str = "dwell rtt, handshakes";
pub(super) const TSHARK: &str = "tshark";
pub(super) const TSHARK_ACK: &str = "tshark, ack_rtt";
pub(super) const TSHARK_INITIAL: &str = "tshark, initial_rtt";
pub(super) const TCPTRACE: &str = "tcptrace";
pub(super) const TCPDUMP: &str = "tcpdump";

impl Reader {
    /// Reads the capture once, and returns what the program prints.
    pub(super) fn print(&self) -> Result<String> {
        if let Kind::Tcptrace(folder) = &self.kind {
            fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        }
        run(Command::new(&self.program).args(self.arguments()), "")
    }

    /// The figures in what it printed.
    pub(super) fn rows(&self, printed: &str) -> Result<Vec<Row>> {
        match &self.kind {
            Kind::Dwell => Ok(of_dwell(self.name, &samples::parse(printed)?, false)),
            Kind::Handshakes => Ok(of_dwell(self.name, &samples::parse(printed)?, true)),
            Kind::Tshark => of_tshark(printed),
            Kind::Tcptrace(folder) => of_tcptrace(printed, folder),
            Kind::Printer => Ok(Vec::new()),
        }
    }

    pub(super) fn arguments(&self) -> Vec<&OsStr> {
        self.arguments.iter().map(OsStr::new).collect()
    }
}

/// The part of the path between the vantage point and an address.
fn scope(address: IpAddr) -> Result<Scope> {
    let is = |role| address == IpAddr::from(Lab::address_v4(role));
    match (is(Role::Client), is(Role::Server)) {
        (true, _) => Ok(Scope::Side(Side::Client)),
        (_, true) => Ok(Scope::Side(Side::Server)),
        _ => Err(Error::invalid("round trips", format!("{address} is neither client nor server"))),
    }
}

/// A row per part of the path.
fn rows(tool: &str, samples: impl IntoIterator<Item = (Scope, Nanos)>) -> Vec<Row> {
    let mut all: BTreeMap<Scope, Vec<Nanos>> = BTreeMap::new();
    for (scope, rtt) in samples {
        all.entry(scope).or_default().push(rtt);
    }
    all.into_iter().map(|(scope, values)| Row::of(tool, scope, values)).collect()
}

/// The samples of handshakes, or the others.
pub(super) fn of_dwell(tool: &str, samples: &[Sample], handshakes: bool) -> Vec<Row> {
    let samples = samples.iter().filter(|sample| sample.handshake == handshakes);
    rows(tool, samples.filter_map(|sample| Some((scope(sample.flow.dst).ok()?, sample.rtt_ns))))
}

/// A line per packet: [`FIELDS`], separated by tabs.
fn of_tshark(text: &str) -> Result<Vec<Row>> {
    let (mut ack, mut initial) = (Vec::new(), BTreeMap::new());
    for line in text.lines() {
        let wrong = || Error::invalid("output of tshark", line);
        let mut cells = line.split('\t');
        let mut cell = || cells.next().ok_or_else(wrong);
        let (stream, from, rtt, handshake) = (cell()?, cell()?, cell()?, cell()?);
        let seconds = |text: &str| match text {
            "" => Ok(None),
            _ => text.parse().map(|seconds: f64| Some(Nanos((seconds * 1e9).round() as u64))).map_err(|_| wrong()),
        };
        if let Some(rtt) = seconds(rtt)? {
            ack.push((scope(from.parse().map_err(|_| wrong())?)?, rtt));
        }
        if let Some(rtt) = seconds(handshake)? {
            initial.insert(stream.to_owned(), (Scope::EndToEnd, rtt));
        }
    }
    let mut all = rows(TSHARK_ACK, ack);
    all.extend(rows(TSHARK_INITIAL, initial.into_values()));
    Ok(all)
}

/// The table has numbers, means and minima in tenths of a millisecond, and files have single round trips in whole
/// milliseconds. Clients open all connections, so they are host a.
fn of_tcptrace(table: &str, folder: &Path) -> Result<Vec<Row>> {
    let client = Lab::address_v4(Role::Client).to_string();
    let mut lines = table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let head = lines.next().unwrap_or_default();
    let mut sides = [(Side::Server, "a2b"), (Side::Client, "b2a")].map(|(side, way)| (side, way, Sum::default()));
    for line in lines {
        let cell = |name: &str| {
            let at = head.iter().position(|column| *column == name);
            at.and_then(|at| line.get(at)).ok_or_else(|| Error::invalid("output of tcptrace", format!("no {name}")))
        };
        if *cell("host_a")? != client {
            return Err(Error::invalid("output of tcptrace", "a connection that the client did not open"));
        }
        for (_, way, sum) in &mut sides {
            let number = |name: &str| {
                let text = cell(&format!("{name}_{way}"))?;
                text.parse::<f64>().map_err(|why| Error::invalid("output of tcptrace", why))
            };
            sum.add(number("RTT_samples")?, number("RTT_min")?, number("RTT_avg")?);
        }
    }
    let mut raw = read_raw(folder)?;
    let row = |(side, _, sum): (Side, &str, Sum)| {
        let scope = Scope::Side(side);
        let of_files = Row::of(TCPTRACE, scope, raw.remove(&side).unwrap_or_default());
        Row { samples: sum.count as usize, min: sum.min(), mean: sum.mean(), ..of_files }
    };
    Ok(sides.into_iter().map(row).collect())
}

/// The round trips of several connections, in milliseconds.
#[derive(Debug, Default)]
struct Sum {
    count: f64,
    min_ms: Option<f64>,
    sum_ms: f64,
}

impl Sum {
    fn add(&mut self, count: f64, min_ms: f64, mean_ms: f64) {
        if count > 0.0 {
            self.count += count;
            self.min_ms = Some(self.min_ms.map_or(min_ms, |least| least.min(min_ms)));
            self.sum_ms += count * mean_ms;
        }
    }

    fn min(&self) -> Option<Nanos> {
        self.min_ms.map(nanos)
    }

    fn mean(&self) -> Option<Nanos> {
        self.min_ms.map(|_| nanos(self.sum_ms / self.count))
    }
}

fn nanos(ms: f64) -> Nanos {
    Nanos((ms * 1e6).round() as u64)
}

/// Reads the files of raw round trips. Hosts are a, b and so on, with two letters after z: `a2b_rttraw.dat` has the
/// packets of the first connection from its host a, and `b2a_rttraw.dat` the others. Each line has a sequence number and
/// milliseconds.
fn read_raw(folder: &Path) -> Result<BTreeMap<Side, Vec<Nanos>>> {
    let mut found: BTreeMap<Side, Vec<Nanos>> = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(Error::file("list", folder))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((from, to)) = name.strip_suffix("_rttraw.dat").and_then(|ways| ways.split_once('2')) else {
            continue;
        };
        let is_from_a = (from.len(), from) < (to.len(), to);
        let side = if is_from_a { Side::Server } else { Side::Client };
        let text = fs::read_to_string(entry.path()).map_err(Error::file("read", &entry.path()))?;
        let round_trips = text.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).map(nanos);
        found.entry(side).or_default().extend(round_trips);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_of_tshark_is_to_the_sender_of_the_ack() {
        let text = "0\t10.77.1.1\t\t\n0\t10.77.4.2\t0.005000123\t0.025\n0\t10.77.1.1\t0.020\t0.025\n\t10.77.1.1\t\t\n";
        let rows = of_tshark(text).unwrap();
        let found: Vec<_> =
            rows.iter().map(|row| (row.tool.as_str(), row.scope.name(), row.samples, row.p50)).collect();
        assert_eq!(
            found,
            [
                (TSHARK_ACK, "client", 1, Some(Nanos(20_000_000))),
                (TSHARK_ACK, "server", 1, Some(Nanos(5_000_123))),
                (TSHARK_INITIAL, "both", 1, Some(Nanos(25_000_000))),
            ]
        );
        assert!(of_tshark("0\t10.77.1.1\n").is_err());
        assert!(of_tshark("0\t10.0.0.1\t0.1\t\n").is_err());
    }

    #[test]
    fn tcptrace_has_a_table_and_files_of_whole_milliseconds() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a2b_rttraw.dat", "17 5\n18 6\n");
        write("b2a_rttraw.dat", "19 20\n");
        write("aa2ab_rttraw.dat", "20 7\n");
        write("other.txt", "1 1\n");
        let table = "#tcptrace\nconn_#,host_a,RTT_samples_a2b,RTT_samples_b2a,RTT_min_a2b,RTT_min_b2a,RTT_avg_a2b,RTT_avg_b2a\n\
                     1,10.77.1.1,2,1,5.1,20.2,5.5,20.2\n2,10.77.1.1,1,0,4.9,0.0,7.0,0.0\n";
        let rows = of_tcptrace(table, folder.path()).unwrap();
        let [server, client] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((server.samples, server.p50, server.p99), (3, Some(nanos(6.0)), Some(nanos(7.0))));
        assert_eq!((server.min, server.mean), (Some(nanos(4.9)), Some(nanos(6.0))));
        assert_eq!((client.samples, client.min, client.mean), (1, Some(nanos(20.2)), Some(nanos(20.2))));
        assert!(of_tcptrace("host_a\n10.0.0.9\n", folder.path()).is_err());
    }
}
