//! The latency that common tools report while an application fills its send buffer, compared with that of its bytes.

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
    program::{PATIENCE, RunningProgram},
    signals::Signals,
    workload::{Bulk, Ends, Ping, output, require},
};
use nix::sys::socket::{setsockopt, sockopt};
use tempfile::TempDir;

use super::{
    accuracy::Span,
    net::{Net, Offload},
    samples,
    scenario::Bottleneck,
    video::{figures::figures, libdwell, watch_sockets},
};

/// The result of one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRow {
    /// The tool's name.
    pub tool: &'static str,
    /// The quantity that the tool measures.
    pub quantity: &'static str,
    /// Number of measurements. `None` where the tool does not report it.
    pub samples: Option<usize>,
    /// The mean of its measurements. `None` if it got no answer.
    pub mean: Option<Nanos>,
    /// The mean time of the application's bytes meanwhile, from the start of the call that wrote them to the end of the
    /// call that read the last of their block.
    pub truth: Option<Nanos>,
}

impl ToolRow {
    /// The measured mean as a share of the truth.
    pub fn share(&self) -> Option<f64> {
        let (mean, truth) = (self.mean?, self.truth.filter(|truth| truth.0 > 0)?);
        Some(mean.0 as f64 / truth.0 as f64)
    }
}

const CONGESTION: &str = "cubic";
const RATE: u64 = 10_000_000;
const ONE_WAY: Nanos = Nanos::from_millis(25);
/// 400 ms at that rate.
const QUEUE_PACKETS: usize = 333;
/// Time in which the application fills its buffer and the queue.
const FILLING: Duration = Duration::from_secs(6);
const BLOCK: usize = 16 << 10;
/// Time between two measurements of a tool.
const EVERY: Duration = Duration::from_millis(250);
/// Time between two polls of libdwell.
const POLL: Duration = Duration::from_millis(10);
/// The output of `dwell run`.
const SAMPLES: &str = "samples.jsonl";

/// Runs all tools for `time` over 10 Mbit/s, a round trip of 50 ms and a FIFO of 400 ms that a bulk flow with cubic fills;
/// then iperf3 by itself, whose truth is the bulk flow's. SIGINT and SIGTERM end it early.
///
/// # Errors
///
/// If the network cannot be made, or a tool is missing or fails.
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
    let net = Net::start(&Bottleneck::Fifo(link), ONE_WAY, Offload::On, &programs.lab)?;
    net.widen_window()?;
    let mut rows = with_bulk_flow(&net, time, &programs.dwell, &signals)?;
    let truth = rows.first().and_then(|row| row.truth);
    rows.push(iperf3(&net, time, truth, &signals.stop)?);
    net.stop()?;
    Ok(rows)
}

fn with_bulk_flow(net: &Net, time: Duration, exe: &Path, signals: &Signals) -> Result<Vec<ToolRow>> {
    let (to, web, silent) = (net.address(0), net.address(1), net.address(2));
    let io = |what: &str, address: SocketAddr| Error::io(format!("{what} {address}"));
    let listen = |address| net.receiver().enter(|| TcpListener::bind(address))?.map_err(io("listen at", address));
    let (listener, web_listener) = (listen(to)?, listen(web)?);
    // hping3 takes every packet from its port for an answer, so it has a port that no other tool uses.
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
        let tools = run_tools(net, [to, web, silent], time, &signals.stop);
        over.store(true, Ordering::Relaxed);
        let ended = monotonic_ns();
        blocks_end.store(true, Ordering::Relaxed);
        let blocks =
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(io("read at", to))?;
        let watched = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let meanwhile = blocks.iter().filter(|(at, _)| (begun..=ended).contains(at));
        let truth = mean(&meanwhile.map(|(_, delay)| *delay).collect::<Vec<_>>());
        let mut rows = tools?;
        let samples = run.finish(to, (begun, ended))?;
        rows.push(ToolRow {
            tool: "dwell run",
            quantity: "send buffer and one-way network delay",
            samples: Some(samples.len()),
            mean: mean(&samples),
            truth: None,
        });
        rows.push(ToolRow {
            tool: "libdwell",
            quantity: "the same, inside the application",
            samples: Some(watched.len()),
            mean: mean(&watched),
            truth: None,
        });
        for row in &mut rows {
            row.truth = truth;
        }
        Ok(rows)
    })
}

/// Ends the other threads where this one fails.
struct SetOnDrop<'a>([&'a AtomicBool; 2]);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        for flag in self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

/// `dwell run --pid`. This process is in none of the lab's network namespaces, so it is attached to a process in the
/// sender's namespace that only holds the flow's socket.
struct Run {
    program: RunningProgram,
    folder: TempDir,
    _holder: Guarded,
}

impl Run {
    fn start(net: &Net, sender: &TcpStream, exe: &Path) -> Result<Run> {
        let folder = tempfile::Builder::new()
            .prefix("dwell-tools-")
            .tempdir()
            .map_err(Error::io("make a folder for the output of dwell run"))?;
        let socket = sender.try_clone().map_err(Error::io("share a socket"))?;
        let holder = net.sender().spawn("sleep", |command| {
            command.arg("infinity").stdin(OwnedFd::from(socket));
        })?;
        let (output, pid) = (folder.path().join(SAMPLES), holder.id().to_string());
        let arguments = ["run", "--pid", &pid, "--format", "jsonl", "--interval", "100ms", "--write"];
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).chain([output.as_os_str()]).collect();
        let program = RunningProgram::start("dwell-run", net.sender(), exe, folder.path(), &arguments)?;
        Ok(Run { program, folder, _holder: holder })
    }

    /// Ends the program. Returns the latencies of the connection to `to` within a span of time.
    fn finish(self, to: SocketAddr, (from, until): Span) -> Result<Vec<Nanos>> {
        self.program.interrupt()?;
        let samples = samples::read(&self.folder.path().join(SAMPLES))?;
        let samples = samples.iter().filter(|sample| sample.ends.1 == to && (from..=until).contains(&sample.at_ns));
        Ok(samples.filter_map(|sample| one_way(sample.sender_ns, sample.rtt_ns, sample.min_rtt_ns)).collect())
    }
}

/// Runs all tools at once; each sends a few small packets per second.
fn run_tools(net: &Net, [to, web, silent]: [SocketAddr; 3], time: Duration, stop: &AtomicBool) -> Result<Vec<ToolRow>> {
    let count = (time.as_secs_f64() / EVERY.as_secs_f64()).ceil() as u32;
    let run = |program, arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
        output(net.sender(), program, &arguments, stop)
    };
    let row = |tool, quantity, times: Vec<Nanos>| ToolRow {
        tool,
        quantity,
        samples: Some(times.len()),
        mean: mean(&times),
        truth: None,
    };
    let (address, port) = (web.ip().to_string(), web.port().to_string());
    let times = count.to_string();
    thread::scope(|scope| {
        let ping = scope.spawn(|| {
            let ends = Ends { client: net.sender(), server: net.receiver(), address: to.ip() };
            let ping = Ping { count, interval: EVERY };
            let round_trips = ping.run(ends, stop)?.round_trips.0;
            Ok(row("ping", "round trip of an ICMP echo", round_trips))
        });
        let hping3 = scope.spawn(|| {
            let (every, port) = (format!("u{}", EVERY.as_micros()), silent.port().to_string());
            let words = ["-n", "-S", "-p", &port, "-c", &times, "-i", &every, &address];
            Ok(row("hping3", "round trip of a TCP SYN", parse_hping3(&run("hping3", &words)?)))
        });
        let httping = scope.spawn(|| {
            let every = EVERY.as_secs_f64().to_string();
            // httping sends the next request only after an answer, which takes most of a second.
            let times = time.as_secs_f64().ceil().to_string();
            let url = format!("http://{address}:{port}/");
            let words = ["-c", &times, "-i", &every, "-t", "20", "-g", &url];
            Ok(row("httping", "connect, request and answer by HTTP", parse_httping(&run("httping", &words)?)))
        });
        let ss = scope.spawn(|| {
            let begun = Instant::now();
            let mut round_trips = Vec::new();
            while begun.elapsed() < time {
                let port = format!(":{}", to.port());
                let words = ["-tinH", "state", "established", "dport", "=", &port];
                round_trips.extend(parse_ss(&run("ss", &words)?));
                thread::sleep(EVERY);
            }
            Ok(row("ss -ti", "the connection's smoothed round trip", round_trips))
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
        quantity: "its own smoothed round trips, by itself",
        samples: None,
        mean: report.rtt_mean,
        truth,
    })
}

/// Writes blocks as fast as possible, each with the time before its write.
fn send(mut socket: &TcpStream, over: &AtomicBool) {
    let mut block = vec![1; BLOCK];
    while !over.load(Ordering::Relaxed) {
        block[..8].copy_from_slice(&monotonic_ns().to_ne_bytes());
        // The receiver reports the cause.
        if socket.write_all(&block).is_err() {
            break;
        }
    }
}

/// Reads blocks. Returns when each had been read, and the time since its write.
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

/// A web server for one client at a time.
fn answer(listener: &TcpListener, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let Ok((mut client, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        // A client that has gone needs no answer.
        let _ = client
            .set_nonblocking(false)
            .and_then(|()| client.set_read_timeout(Some(Duration::from_secs(2))))
            .and_then(|()| client.read(&mut [0; 1024]))
            .and_then(|_| client.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
    }
}

/// Polls libdwell for the latency of a byte from write to receiver.
fn watch(socket: &Socket<'_>, over: &AtomicBool) -> Vec<Nanos> {
    let mut all = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let figures = figures(&socket.info());
        all.extend(one_way(figures.sender_delay_ns, figures.rtt_ns, figures.min_rtt_ns));
        thread::sleep(POLL);
    }
    all
}

/// The latency from write to receiver. The queue is in this direction, so the latency is the delay in the send buffer
/// and the round trip less half of the least round trip.
fn one_way(sender: Option<u64>, rtt: Option<u64>, least: Option<u64>) -> Option<Nanos> {
    Some(Nanos(sender? + rtt?.saturating_sub(least? / 2)))
}

fn mean(times: &[Nanos]) -> Option<Nanos> {
    let sum: u128 = times.iter().map(|time| u128::from(time.0)).sum();
    let mean = sum.checked_div(times.len() as u128)?;
    u64::try_from(mean).ok().map(Nanos)
}

/// Reads the round trips of `hping3 -S`, from the first answer to each SYN only: a refused SYN has the flags RA, and an
/// answer that was retransmitted is not a round trip.
fn parse_hping3(text: &str) -> Vec<Nanos> {
    let lines = text.lines();
    let answers = lines.filter(|line| line.contains("flags=SA") && !line.starts_with("DUP!"));
    answers.filter_map(|line| millis(line.split_once("rtt=")?.1)).collect()
}

/// Reads the times of `httping`.
fn parse_httping(text: &str) -> Vec<Nanos> {
    let answers = text.lines().filter(|line| line.starts_with("connected to"));
    answers.filter_map(|line| millis(line.split_once("time=")?.1)).collect()
}

/// Reads the smoothed round trips of `ss -ti`, one per connection.
fn parse_ss(text: &str) -> Vec<Nanos> {
    text.split_ascii_whitespace().filter_map(|word| millis(word.strip_prefix("rtt:")?.split('/').next()?)).collect()
}

/// Reads the first word as milliseconds.
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
    fn ss_is_read_and_the_least_round_trip_is_ignored() {
        let text = "0 3801194 127.0.0.1:55864 127.0.0.1:5201\n\t cubic wscale:10,10 rto:204 rtt:0.361/0.482 \
            mss:65483 cwnd:28 busy:368ms rcv_rtt:1.22 minrtt:0.007 snd_wnd:32900096\n";
        assert_eq!(parse_ss(text), [Nanos(361_000)]);
        assert_eq!(parse_ss("cubic cwnd:10 rtt:?"), []);
    }

    #[test]
    fn a_tool_without_an_answer_has_no_share() {
        let row = ToolRow { tool: "ping", quantity: "", samples: Some(0), mean: mean(&[]), truth: Some(Nanos(5)) };
        assert_eq!((row.mean, row.share()), (None, None));
        let row = ToolRow { mean: mean(&[Nanos(1), Nanos(3)]), ..row };
        assert_eq!(row.share(), Some(0.4));
    }
}
