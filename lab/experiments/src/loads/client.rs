//! The client: threads that share out connections, and wait for what comes next on any of theirs.

use std::{
    fs::File,
    io::BufWriter,
    net::{SocketAddr, TcpStream},
    os::fd::AsFd,
    path::PathBuf,
    thread,
    time::Duration,
};

use dwell_socket::clock::monotonic_ns;
use dwell_testbed::{Error, Nanos, Result, workload::PATIENCE};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{prctl::set_timerslack, time::TimeSpec},
};
use serde::{Deserialize, Serialize};

use super::{
    Kind, LoadReport, Mode,
    agenda::{Agenda, Manner},
    connection::Connection,
    pace::{Pace, Think},
    random::generator,
    truth::{self, Flow, realtime_minus_monotonic_ns},
};

/// What the client is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ClientConfig {
    pub(super) server: SocketAddr,
    pub(super) kind: Kind,
    pub(super) depth: usize,
    pub(super) threads: usize,
    pub(super) connections: usize,
    /// Requests a second of all connections; as many as it goes if absent.
    pub(super) rate: Option<f64>,
    pub(super) think: Think,
    pub(super) coalesce: bool,
    pub(super) duration: Duration,
    pub(super) seed: u64,
    pub(super) truth: Option<PathBuf>,
}

/// How long the last answers may take.
pub(super) const LAST_ANSWERS: Duration = Duration::from_secs(30);

/// Runs the load, writes the truth log, and sums up.
pub(super) fn run(config: &ClientConfig) -> Result<LoadReport> {
    let offset_ns = realtime_minus_monotonic_ns();
    let opened = (0..config.connections).map(|_| open(config.server));
    let mut streams = opened.collect::<Result<Vec<_>>>()?;
    let begin_ns = monotonic_ns() + 10_000_000;
    let share = config.connections.div_ceil(config.threads.max(1));
    let flows = thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut first = 0;
        while !streams.is_empty() {
            let own: Vec<TcpStream> = streams.drain(..share.min(streams.len())).collect();
            let begun = first;
            first += own.len();
            threads.push(scope.spawn(move || drive(config, own, begun, begin_ns)));
        }
        let ended =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect::<Result<Vec<_>>>()
    })?;
    conclude(config, &flows.into_iter().flatten().collect::<Vec<_>>(), offset_ns)
}

/// Writes the truth log if there is to be one, and sums up.
pub(super) fn conclude(config: &ClientConfig, flows: &[Flow], offset_ns: i64) -> Result<LoadReport> {
    if let Some(path) = &config.truth {
        let file = File::create(path).map_err(Error::file("write", path))?;
        truth::write(flows, offset_ns, &mut BufWriter::new(file))?;
    }
    Ok(report(flows))
}

fn open(server: SocketAddr) -> Result<TcpStream> {
    let open = || {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    open().map_err(Error::io(format!("connect to {server}")))
}

/// The connections of one thread; `first` is the number of the first of them.
fn drive(config: &ClientConfig, streams: Vec<TcpStream>, first: usize, begin_ns: u64) -> Result<Vec<Flow>> {
    let _ = set_timerslack(1);
    let mut connections: Vec<Connection> = (first as u64..)
        .zip(streams)
        .map(|(number, stream)| Connection::new(stream, agenda(config, number, begin_ns)))
        .collect();
    let end_ns = begin_ns + Nanos::from(config.duration).0;
    let give_up_ns = end_ns + Nanos::from(LAST_ANSWERS).0;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let now_ns = monotonic_ns();
        let ending = now_ns >= end_ns;
        if ending && connections.iter().all(Connection::is_idle) {
            return connections.into_iter().map(flow).collect();
        }
        if now_ns > give_up_ns {
            return Err(Error::Timeout("the answer to a request".to_owned()));
        }
        if !ending {
            for connection in &mut connections {
                connection.start_round(now_ns)?;
            }
        }
        let until_ns = next_ns(&connections, if ending { give_up_ns } else { end_ns }, ending);
        let events = wait(&connections, until_ns)?;
        for (connection, events) in connections.iter_mut().zip(events) {
            let ending = monotonic_ns() >= end_ns;
            if events.contains(PollFlags::POLLOUT) {
                connection.resume(ending)?;
            }
            if events.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
                connection.receive(&mut buffer, ending)?;
            }
        }
    }
}

/// That of the connection with this number.
pub(super) fn agenda(config: &ClientConfig, number: u64, begin_ns: u64) -> Agenda {
    let gap = config.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(config.connections as f64 / rate));
    let manner = Manner {
        depth: config.depth,
        endless: config.kind.mode() == Mode::Window,
        coalesce: config.coalesce,
        stride: config.connections as u64,
    };
    let pace = Pace::new(begin_ns, gap, config.think, generator(config.seed, 4, number));
    let dialect = config.kind.dialect(config.depth, config.seed, number);
    Agenda::new(dialect, manner, pace, number)
}

/// The next time at which there is something to do though nothing has come.
fn next_ns(connections: &[Connection], limit_ns: u64, ending: bool) -> u64 {
    let rounds = connections.iter().filter_map(Connection::next_round_ns);
    // No round starts in the end.
    let next = if ending { None } else { rounds.min() };
    next.map_or(limit_ns, |next| next.min(limit_ns))
}

/// What can be done on each connection.
fn wait(connections: &[Connection], until_ns: u64) -> Result<Vec<PollFlags>> {
    let mut watched: Vec<PollFd<'_>> = connections
        .iter()
        .map(|connection| {
            let mut events = PollFlags::POLLIN;
            events.set(PollFlags::POLLOUT, connection.wants_to_write());
            PollFd::new(connection.stream.as_fd(), events)
        })
        .collect();
    let left = Nanos(until_ns).since(Nanos(monotonic_ns()));
    match ppoll(&mut watched, Some(TimeSpec::from_duration(left.into())), None) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(Error::os("wait for answers")(errno)),
    }
    let events = watched.iter().map(|fd| fd.revents());
    Ok(events.map(|events| events.unwrap_or(PollFlags::empty())).collect())
}

fn flow(connection: Connection) -> Result<Flow> {
    let address = Error::io("look up the addresses of a connection");
    let ends = || Ok((connection.stream.local_addr()?, connection.stream.peer_addr()?));
    let (source, destination) = ends().map_err(address)?;
    Ok(connection.into_flow(source, destination))
}

fn report(flows: &[Flow]) -> LoadReport {
    let records = || flows.iter().flat_map(|flow| &flow.records);
    let mut latencies: Vec<u64> = records().map(|record| record.done_ns - record.sent_ns).collect();
    latencies.sort_unstable();
    let quantile = |share: f64| {
        let rank = (latencies.len() as f64 * share).ceil() as usize;
        latencies.get(rank.saturating_sub(1)).copied().map(Nanos)
    };
    let first = records().map(|record| record.sent_ns).min().unwrap_or(0);
    let last = records().map(|record| record.done_ns).max().unwrap_or(0);
    LoadReport {
        requests: latencies.len() as u64,
        bytes: records().map(|record| record.bytes).sum(),
        lasted_ns: Nanos(last - first),
        p50_ns: quantile(0.5),
        p95_ns: quantile(0.95),
        capture: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::truth::Record, *};

    #[test]
    fn the_report_is_over_all_connections() {
        let record = |sent_ns, done_ns| Record { id: 0, class: "html", bytes: 10, sent_ns, done_ns, triggers: None };
        let flow =
            |records| Flow { source: ([10, 0, 0, 1], 1).into(), destination: ([10, 0, 0, 2], 80).into(), records };
        let flows = [flow(vec![record(100, 150), record(200, 230)]), flow(vec![record(50, 60)])];
        let report = report(&flows);
        assert_eq!((report.requests, report.bytes), (3, 30));
        assert_eq!(report.lasted_ns, Nanos(180));
        assert_eq!((report.p50_ns, report.p95_ns), (Some(Nanos(30)), Some(Nanos(50))));
        assert_eq!(super::report(&[]).p50_ns, None);
    }
}
