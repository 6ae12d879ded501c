//! What tools of today say of a path while an application fills its send buffer there, beside what its bytes take.

use std::{
    ffi::OsStr,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::Programs;
use dwell_socket::{Socket, clock::monotonic_ns};
use dwell_testbed::{
    BitsPerSecond, Error, Guarded, LinkSpec, Nanos, QueueLimit, Result,
    part::{PATIENCE, Part},
    signals::Signals,
    workload::{Bulk, Ends, Ping, output, require},
};
use nix::sys::socket::{setsockopt, sockopt};
use tempfile::TempDir;

use super::{
    accuracy::Span,
    looks,
    net::Net,
    scenario::Bottleneck,
    video::{figures::figures, libdwell, watch_sockets},
};

/// One tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRow {
    /// Its name.
    pub tool: &'static str,
    /// What it takes the time of.
    pub tells: &'static str,
    /// How often it did. None where it does not say.
    pub samples: Option<usize>,
    /// The mean of what it says. None if it got no answer.
    pub says: Option<Nanos>,
    /// What the application's bytes took meanwhile from the begin of the call that wrote them to the end of the call
    /// that read the last of their block: the mean.
    pub truth: Option<Nanos>,
}

impl ToolRow {
    /// What it says as a share of the truth.
    pub fn share(&self) -> Option<f64> {
        let (says, truth) = (self.says?, self.truth.filter(|truth| truth.0 > 0)?);
        Some(says.0 as f64 / truth.0 as f64)
    }
}

const CONGESTION: &str = "cubic";
const RATE: u64 = 10_000_000;
const ONE_WAY: Nanos = Nanos::from_millis(25);
/// 400 ms.
const QUEUE_PACKETS: usize = 333;
/// Until then the application has filled its buffer and the queue.
const FILLING: Duration = Duration::from_secs(6);
const BLOCK: usize = 16 << 10;
/// Between two questions of a tool.
const EVERY: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(10);
/// Where `dwell run` writes.
const LOOKS: &str = "looks.jsonl";

/// Runs all tools for that long over 10 Mbit/s, round trips of 50 ms and 400 ms of FIFO that a bulk flow by cubic fills.
/// Then iperf3 by itself, which is such a flow; beside it stands what the other one's bytes took. `exe` is the `dwell`
/// that is compared. SIGINT and SIGTERM end it early.
///
/// # Errors
///
/// If the network cannot be made, or a tool is not there or fails.
pub fn compare(time: Duration, programs: &Programs) -> Result<Vec<ToolRow>> {
    for tool in ["ping", "hping3", "httping", "ss", "iperf3"] {
        require(tool)?;
    }
    let signals = Signals::watch()?;
    let link = LinkSpec {
        rate_bits_per_second: BitsPerSecond::new(RATE),
        queue: Some(QueueLimit::Packets(QUEUE_PACKETS)),
        ..LinkSpec::delay(ONE_WAY)
    };
    let net = Net::start(&Bottleneck::Fifo(link), ONE_WAY, &programs.lab)?;
    net.widen_window()?;
    let mut rows = beside_a_flow(&net, time, &programs.dwell, &signals)?;
    let truth = rows.first().and_then(|row| row.truth);
    rows.push(iperf3(&net, time, truth, &signals.stop)?);
    net.stop()?;
    Ok(rows)
}

fn beside_a_flow(net: &Net, time: Duration, exe: &Path, signals: &Signals) -> Result<Vec<ToolRow>> {
    let (to, web, silent) = (net.address(0), net.address(1), net.address(2));
    let io = |what: &str, address: SocketAddr| Error::io(format!("{what} {address}"));
    let listen = |address| net.receiver().enter(|| TcpListener::bind(address))?.map_err(io("listen at", address));
    let (listener, web_listener) = (listen(to)?, listen(web)?);
    // hping3 takes all that comes from its port for an answer, so it has one that nobody else talks to.
    let _silent_listener = listen(silent)?;
    let sender = net.sender().enter(|| TcpStream::connect(to))?.map_err(io("connect to", to))?;
    let (receiver, _) = listener.accept().map_err(io("accept at", to))?;
    setsockopt(&sender, sockopt::TcpCongestion, &CONGESTION.into())
        .map_err(Error::os("set the congestion control of a socket"))?;
    receiver.set_read_timeout(Some(PATIENCE)).map_err(io("read at", to))?;
    web_listener.set_nonblocking(true).map_err(io("listen at", web))?;
    let session = watch_sockets()?;
    let watched = session.watch(&sender).map_err(libdwell)?;
    let (over, blocks_end) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let _ends = SetOnDrop([&over, &blocks_end]);
        scope.spawn(|| send(&sender, &blocks_end));
        let reader = scope.spawn(|| receive(receiver, &blocks_end));
        scope.spawn(|| answer(&web_listener, &blocks_end));
        signals.pause(FILLING)?;
        let run = Run::start(net, &sender, exe)?;
        let begun = monotonic_ns();
        let watcher = scope.spawn(|| watch(&watched, &over));
        let tools = ask(net, [to, web, silent], time, &signals.stop);
        over.store(true, Ordering::Relaxed);
        let ended = monotonic_ns();
        blocks_end.store(true, Ordering::Relaxed);
        let blocks =
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(io("read at", to))?;
        let watched = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let meanwhile = blocks.iter().filter(|(at, _)| (begun..=ended).contains(at));
        let truth = mean(&meanwhile.map(|(_, delay)| *delay).collect::<Vec<_>>());
        let mut rows = tools?;
        let looks = run.end(to, (begun, ended))?;
        rows.push(ToolRow {
            tool: "dwell run",
            tells: "send buffer, and the network there",
            samples: Some(looks.len()),
            says: mean(&looks),
            truth: None,
        });
        rows.push(ToolRow {
            tool: "libdwell",
            tells: "the same, asked by the application",
            samples: Some(watched.len()),
            says: mean(&watched),
            truth: None,
        });
        for row in &mut rows {
            row.truth = truth;
        }
        Ok(rows)
    })
}

/// So that other threads end where this one has failed.
struct SetOnDrop<'a>([&'a AtomicBool; 2]);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        for flag in self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

/// `dwell run --attach`. As this process is in no network namespace of the lab's, it is attached to one that is in the
/// sender's, and does nothing but have the flow's socket.
struct Run {
    part: Part,
    folder: TempDir,
    _holder: Guarded,
}

impl Run {
    fn start(net: &Net, sender: &TcpStream, exe: &Path) -> Result<Run> {
        let folder = tempfile::Builder::new()
            .prefix("dwell-tools-")
            .tempdir()
            .map_err(Error::io("make a folder for what dwell run says"))?;
        let socket = sender.try_clone().map_err(Error::io("share a socket"))?;
        let holder = net.sender().spawn("sleep", |command| {
            command.arg("infinity").stdin(OwnedFd::from(socket));
        })?;
        let (output, pid) = (folder.path().join(LOOKS), holder.id().to_string());
        let arguments = ["run", "--attach", &pid, "--format", "jsonl", "--interval", "100ms", "--output"];
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).chain([output.as_os_str()]).collect();
        let part = Part::start("dwell-run", net.sender(), exe, folder.path(), &arguments)?;
        Ok(Run { part, folder, _holder: holder })
    }

    /// What it said meanwhile of the connection to there.
    fn end(self, to: SocketAddr, (from, until): Span) -> Result<Vec<Nanos>> {
        self.part.end()?;
        let looks = looks::read(&self.folder.path().join(LOOKS))?;
        let looks = looks.iter().filter(|look| look.ends.1 == to && (from..=until).contains(&look.at_ns));
        Ok(looks.filter_map(|look| way_there(look.sender_ns, look.rtt_ns, look.min_rtt_ns)).collect())
    }
}

/// All tools at once, each of a few small packets a second.
fn ask(net: &Net, [to, web, silent]: [SocketAddr; 3], time: Duration, stop: &AtomicBool) -> Result<Vec<ToolRow>> {
    let count = (time.as_secs_f64() / EVERY.as_secs_f64()).ceil() as u32;
    let run = |program, arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
        output(net.sender(), program, &arguments, stop)
    };
    let row = |tool, tells, trips: Vec<Nanos>| ToolRow {
        tool,
        tells,
        samples: Some(trips.len()),
        says: mean(&trips),
        truth: None,
    };
    let (address, port) = (web.ip().to_string(), web.port().to_string());
    let times = count.to_string();
    thread::scope(|scope| {
        let ping = scope.spawn(|| {
            let ends = Ends { client: net.sender(), server: net.receiver(), address: to.ip() };
            let ping = Ping { count, interval: EVERY };
            let trips = ping.run(ends, stop)?.round_trips.0;
            Ok(row("ping", "round trip of an ICMP echo", trips))
        });
        let hping3 = scope.spawn(|| {
            let (every, port) = (format!("u{}", EVERY.as_micros()), silent.port().to_string());
            let words = ["-n", "-S", "-p", &port, "-c", &times, "-i", &every, &address];
            let trips = parse_hping3(&run("hping3", &words)?);
            Ok(row("hping3", "round trip of a TCP SYN", trips))
        });
        let httping = scope.spawn(|| {
            let every = EVERY.as_secs_f64().to_string();
            // It asks again only after an answer, which takes most of a second.
            let times = time.as_secs_f64().ceil().to_string();
            let url = format!("http://{address}:{port}/");
            let words = ["-c", &times, "-i", &every, "-t", "20", "-g", &url];
            let trips = parse_httping(&run("httping", &words)?);
            Ok(row("httping", "connect, request and answer by HTTP", trips))
        });
        let ss = scope.spawn(|| {
            let begun = Instant::now();
            let mut trips = Vec::new();
            while begun.elapsed() < time {
                let port = format!(":{}", to.port());
                let words = ["-tinH", "state", "established", "dport", "=", &port];
                trips.extend(parse_ss(&run("ss", &words)?));
                thread::sleep(EVERY);
            }
            Ok(row("ss -ti", "the connection's smoothed round trip", trips))
        });
        let rows = [ping, hping3, httping, ss]
            .map(|tool| tool.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        rows.into_iter().collect()
    })
}

fn iperf3(net: &Net, time: Duration, truth: Option<Nanos>, stop: &AtomicBool) -> Result<ToolRow> {
    let ends = Ends { client: net.sender(), server: net.receiver(), address: net.address(0).ip() };
    let bulk =
        Bulk { seconds: (FILLING + time).as_secs() as u32, rate: None, download: false, congestion: Some(CONGESTION) };
    let report = bulk.run(ends, stop)?;
    Ok(ToolRow {
        tool: "iperf3",
        tells: "its own smoothed round trips, without others",
        samples: None,
        says: report.rtt_mean,
        truth,
    })
}

/// Writes blocks as fast as it goes, each with the time before it was written.
fn send(mut socket: &TcpStream, over: &AtomicBool) {
    let mut block = vec![1; BLOCK];
    while !over.load(Ordering::Relaxed) {
        block[..8].copy_from_slice(&monotonic_ns().to_ne_bytes());
        // The receiver tells why, where it cannot.
        if socket.write_all(&block).is_err() {
            break;
        }
    }
}

/// When each block had been read, and what it took.
fn receive(mut socket: TcpStream, over: &AtomicBool) -> std::io::Result<Vec<(u64, Nanos)>> {
    let mut block = vec![0; BLOCK];
    let mut blocks = Vec::new();
    while !over.load(Ordering::Relaxed) {
        socket.read_exact(&mut block)?;
        let now = monotonic_ns();
        let stamp: [u8; 8] = block[..8].try_into().unwrap_or_default();
        blocks.push((now, Nanos(now.saturating_sub(u64::from_ne_bytes(stamp)))));
    }
    Ok(blocks)
}

/// A web server for one at a time.
fn answer(listener: &TcpListener, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let Ok((mut client, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        // A client that has gone wants no answer.
        let _ = client
            .set_nonblocking(false)
            .and_then(|()| client.set_read_timeout(Some(Duration::from_secs(2))))
            .and_then(|()| client.read(&mut [0; 1024]))
            .and_then(|_| client.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
    }
}

/// What libdwell says of a byte's way from write to receiver, look by look.
fn watch(socket: &Socket<'_>, over: &AtomicBool) -> Vec<Nanos> {
    let mut all = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let figures = figures(&socket.info());
        all.extend(way_there(figures.sender_delay_ns, figures.rtt_ns, figures.min_rtt_ns));
        thread::sleep(LOOK);
    }
    all
}

/// From write to receiver: the queue is on the way there, so of a round trip all is but half of the least.
fn way_there(sender: Option<u64>, rtt: Option<u64>, least: Option<u64>) -> Option<Nanos> {
    Some(Nanos(sender? + rtt?.saturating_sub(least? / 2)))
}

fn mean(times: &[Nanos]) -> Option<Nanos> {
    let sum: u128 = times.iter().map(|time| u128::from(time.0)).sum();
    let mean = sum.checked_div(times.len() as u128)?;
    u64::try_from(mean).ok().map(Nanos)
}

/// The round trips of `hping3 -S`, of the first answer to each SYN only: a port that refuses has the flags RA, and an
/// answer that is sent again, as the reset after it was lost, is no round trip.
fn parse_hping3(text: &str) -> Vec<Nanos> {
    let lines = text.lines();
    let answers = lines.filter(|line| line.contains("flags=SA") && !line.starts_with("DUP!"));
    answers.filter_map(|line| millis(line.split_once("rtt=")?.1)).collect()
}

/// The times of `httping`.
fn parse_httping(text: &str) -> Vec<Nanos> {
    let answers = text.lines().filter(|line| line.starts_with("connected to"));
    answers.filter_map(|line| millis(line.split_once("time=")?.1)).collect()
}

/// The smoothed round trips of `ss -ti`, one a connection.
fn parse_ss(text: &str) -> Vec<Nanos> {
    text.split_ascii_whitespace().filter_map(|word| millis(word.strip_prefix("rtt:")?.split('/').next()?)).collect()
}

/// The first word as milliseconds.
fn millis(text: &str) -> Option<Nanos> {
    let millis: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    (millis >= 0.0).then(|| Nanos((millis * 1e6).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hping3_is_read() {
        let text = "HPING 10.77.4.2 (eth0 10.77.4.2): S set, 40 headers + 0 data bytes\n\
            len=44 ip=10.77.4.2 ttl=61 DF id=0 sport=5402 flags=SA seq=0 win=65495 rtt=350.3 ms\n\
            DUP! len=44 ip=10.77.4.2 ttl=61 DF id=0 sport=5402 flags=RA seq=0 win=0 rtt=1350.3 ms\n\
            DUP! len=44 ip=10.77.4.2 ttl=61 DF id=0 sport=5402 flags=SA seq=0 win=65495 rtt=1390.3 ms\n\
            len=44 ip=10.77.4.2 ttl=61 DF id=0 sport=5402 flags=SA seq=1 win=65495 rtt=51.1 ms\n";
        let expected = [350_300_000, 51_100_000].map(Nanos);
        assert_eq!(parse_hping3(text), expected);
        assert_eq!(parse_hping3(""), []);
    }

    #[test]
    fn httping_is_read() {
        let text = "PING 10.77.4.2:5402 (/):\n\
            connected to 10.77.4.2:5402 (161 bytes), seq=0 time=710.45 ms \n\
            connected to 10.77.4.2:5402 (161 bytes), seq=1 time=  3.88 ms \n\
            --- http://10.77.4.2:5402/ ping statistics ---\n\
            3 connects, 3 ok, 0.00% failed, time 648ms\nround-trip min/avg/max = 3.9/14.1/28.1 ms\n";
        assert_eq!(parse_httping(text), [710_450_000, 3_880_000].map(Nanos));
    }

    #[test]
    fn ss_is_read_and_the_least_round_trip_is_not_taken_for_it() {
        let text = "0 3801194 127.0.0.1:55864 127.0.0.1:5201\n\t cubic wscale:10,10 rto:204 rtt:0.361/0.482 \
            mss:65483 cwnd:28 busy:368ms rcv_rtt:1.22 minrtt:0.007 snd_wnd:32900096\n";
        assert_eq!(parse_ss(text), [Nanos(361_000)]);
        assert_eq!(parse_ss("cubic cwnd:10 rtt:?"), []);
    }

    #[test]
    fn a_tool_without_an_answer_has_no_share() {
        let row = ToolRow { tool: "ping", tells: "", samples: Some(0), says: mean(&[]), truth: Some(Nanos(5)) };
        assert_eq!((row.says, row.share()), (None, None));
        let row = ToolRow { says: mean(&[Nanos(1), Nanos(3)]), ..row };
        assert_eq!(row.share(), Some(0.4));
    }
}
