use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Nanos, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::{Net, PORT, machine::Machine};

/// Bytes per write.
const WRITE: usize = 16 << 10;

/// One flow from the sender to the receiver.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    /// The sending pattern.
    pub pattern: Pattern,
    /// SO_SNDBUF of the sender in bytes; `None` keeps the kernel's default.
    pub send_buffer: Option<usize>,
    /// Priority of the sender's packets: a class of its queueing discipline.
    pub priority: Option<u32>,
}

/// The sending pattern of a flow.
#[derive(Debug, Clone, Copy)]
pub enum Pattern {
    /// Sends as fast as possible.
    Bulk,
    /// Answers HTTP requests of the receiver, which sends the next one when the answer is complete and `every` has
    /// passed.
    Requests {
        /// Bytes per answer.
        bytes: usize,
        /// Least time between two requests.
        every: Duration,
    },
}

impl Flow {
    /// The property that differs from the scenario's other flows; empty if none does.
    pub fn about(&self) -> String {
        match (self.send_buffer, self.priority) {
            (Some(bytes), _) => format!("{} KB to send from", bytes >> 10),
            (_, Some(class)) => format!("class 1:{:x}", class & 0xffff),
            _ => String::new(),
        }
    }

    pub(super) fn new(pattern: Pattern) -> Flow {
        Flow { pattern, send_buffer: None, priority: None }
    }
}

/// The latency of a flow's bytes by the application's own clock.
#[derive(Debug, Clone)]
pub struct ApplicationLatency {
    /// The receiver's port.
    pub port: u16,
    /// Number of bytes that were read.
    pub bytes: u64,
    /// Mean time from the end of the call that wrote a byte to the end of the call that read it. `None` if nothing was
    /// read, or the writer's clock is another one.
    pub least_ns: Option<Nanos>,
    /// Mean time from the start of the call that wrote a byte to the end of the call that read it.
    pub most_ns: Option<Nanos>,
}

/// One call that wrote or read bytes of the flow, up to byte `until`.
#[derive(Debug, Clone, Copy)]
struct Call {
    until: u64,
    started: Instant,
    ended: Instant,
}

/// Runs all flows for a time, and returns the latency of each by its application's clock.
pub(super) fn run(net: &Net, flows: &[Flow], time: Duration) -> Result<Vec<ApplicationLatency>> {
    let threads: Vec<_> = flows
        .iter()
        .zip(PORT..)
        .map(|(flow, port)| {
            let ends = connect(net, *flow, port);
            let flow = *flow;
            thread::spawn(move || exchange(flow, port, ends?, time))
        })
        .collect();
    let join = |thread: thread::JoinHandle<Result<ApplicationLatency>>| {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    };
    // Wait for all threads, even if one failed.
    let latencies: Vec<_> = threads.into_iter().map(join).collect();
    latencies.into_iter().collect()
}

/// Receives the bytes of a virtual machine.
pub(super) fn run_in_machine(net: &Net, machine: &Machine) -> Result<ApplicationLatency> {
    let address = SocketAddr::from((net.server(), PORT));
    let io = |what: &str| Error::io(format!("{what} {address}"));
    let listener = net.receiver().enter(|| TcpListener::bind(address))?.map_err(io("listen at"))?;
    let read = receive(machine.accept(&listener)?).map_err(io("read at"))?;
    Ok(ApplicationLatency {
        port: PORT,
        bytes: read.last().map_or(0, |call| call.until),
        least_ns: None,
        most_ns: None,
    })
}

/// Connects sender and receiver, and returns both ends.
fn connect(net: &Net, flow: Flow, port: u16) -> Result<(TcpStream, TcpStream)> {
    let address = SocketAddr::from((net.server(), port));
    let io = |what: &str| Error::io(format!("{what} {address}"));
    let listener = net.receiver().enter(|| TcpListener::bind(address))?.map_err(io("listen at"))?;
    let sender = net.sender().enter(|| TcpStream::connect(address))?.map_err(io("connect to"))?;
    let (receiver, _) = listener.accept().map_err(io("accept at"))?;
    let os = |what: &str| Error::os(format!("set the {what} of a socket"));
    setsockopt(&sender, sockopt::TcpCongestion, &"cubic".into()).map_err(os("congestion control"))?;
    if let Some(bytes) = flow.send_buffer {
        setsockopt(&sender, sockopt::SndBuf, &bytes).map_err(os("send buffer"))?;
    }
    if let Some(class) = flow.priority {
        let class = i32::try_from(class).expect("a class is a small number");
        setsockopt(&sender, sockopt::Priority, &class).map_err(os("priority"))?;
    }
    Ok((sender, receiver))
}

fn exchange(
    flow: Flow,
    port: u16,
    (sender, receiver): (TcpStream, TcpStream),
    time: Duration,
) -> Result<ApplicationLatency> {
    let end = Instant::now() + time;
    let answers = match flow.pattern {
        Pattern::Bulk => None,
        Pattern::Requests { bytes, every } => Some((bytes, every)),
    };
    let client = thread::spawn(move || match answers {
        None => receive(receiver),
        Some((bytes, every)) => request(receiver, bytes, every, end),
    });
    let wrote = match answers {
        None => send(&sender, end),
        Some((bytes, _)) => answer(&sender, bytes),
    };
    // The receiver reads what is left, and then the end.
    drop(sender);
    let read = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let io = |what: &str| Error::io(format!("{what} on port {port}"));
    Ok(latency(port, &wrote.map_err(io("write"))?, &read.map_err(io("read"))?))
}

fn send(mut sender: &TcpStream, end: Instant) -> std::io::Result<Vec<Call>> {
    let mut calls = Calls::default();
    while Instant::now() < end {
        calls.record(|| sender.write(&[1; WRITE]))?;
    }
    Ok(calls.0)
}

/// A server of HTTP/1.1 that knows one answer.
fn answer(mut sender: &TcpStream, bytes: usize) -> std::io::Result<Vec<Call>> {
    let mut calls = Calls::default();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    let mut request = [0; 512];
    while sender.read(&mut request)? > 0 {
        let mut left = head.len() + bytes;
        calls.record(|| sender.write(head.as_bytes()))?;
        left -= head.len();
        while left > 0 {
            left -= calls.record(|| sender.write(&[1; WRITE][..left.min(WRITE)]))?;
        }
    }
    Ok(calls.0)
}

fn request(mut socket: TcpStream, bytes: usize, every: Duration, end: Instant) -> std::io::Result<Vec<Call>> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").len();
    let mut calls = Calls::default();
    while Instant::now() < end {
        let started = Instant::now();
        socket.write_all(b"GET /file HTTP/1.1\r\nHost: sender\r\n\r\n")?;
        let mut left = head + bytes;
        let mut buffer = [0; WRITE];
        while left > 0 {
            let got = calls.record(|| socket.read(&mut buffer[..left.min(WRITE)]))?;
            if got == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            left -= got;
        }
        thread::sleep(every.saturating_sub(started.elapsed()).min(end.saturating_duration_since(Instant::now())));
    }
    socket.shutdown(std::net::Shutdown::Write)?;
    Ok(calls.0)
}

fn receive(mut socket: TcpStream) -> std::io::Result<Vec<Call>> {
    let mut calls = Calls::default();
    let mut buffer = [0; WRITE];
    while calls.record(|| socket.read(&mut buffer))? > 0 {}
    Ok(calls.0)
}

#[derive(Default)]
struct Calls(Vec<Call>);

impl Calls {
    fn record(&mut self, call: impl FnOnce() -> std::io::Result<usize>) -> std::io::Result<usize> {
        let started = Instant::now();
        let bytes = call()?;
        let before = self.0.last().map_or(0, |call| call.until);
        if bytes > 0 {
            self.0.push(Call { until: before + bytes as u64, started, ended: Instant::now() });
        }
        Ok(bytes)
    }
}

/// The mean latencies, weighted by the bytes that each pair of calls wrote and read.
fn latency(port: u16, wrote: &[Call], read: &[Call]) -> ApplicationLatency {
    let (mut least, mut most, mut bytes) = (0_u128, 0_u128, 0_u64);
    let mut writes = wrote.iter().peekable();
    for call in read {
        while let Some(write) = writes.peek() {
            let until = write.until.min(call.until);
            let count = until - bytes;
            let took = |from: Instant| call.ended.saturating_duration_since(from).as_nanos();
            least += took(write.ended) * u128::from(count);
            most += took(write.started) * u128::from(count);
            bytes = until;
            if write.until > call.until {
                break;
            }
            writes.next();
        }
    }
    let mean = |sum: u128| {
        let mean = sum.checked_div(u128::from(bytes))?;
        u64::try_from(mean).ok().map(Nanos)
    };
    ApplicationLatency { port, bytes, least_ns: mean(least), most_ns: mean(most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_weighted_by_the_calls_that_wrote_and_read_them() {
        let start = Instant::now();
        let call = |until, started, ended| Call {
            until,
            started: start + Duration::from_millis(started),
            ended: start + Duration::from_millis(ended),
        };
        // 10 bytes written from 0 to 1 ms, 10 more from 5 to 6; read at 11 (15 of them) and at 21.
        let wrote = [call(10, 0, 1), call(20, 5, 6)];
        let read = [call(15, 10, 11), call(20, 20, 21)];
        let latency = latency(7, &wrote, &read);
        assert_eq!(latency.bytes, 20);
        // (10 × 10 + 5 × 5 + 5 × 15) / 20, and a millisecond more
        assert_eq!(latency.least_ns, Some(Nanos::from_millis(10)));
        assert_eq!(latency.most_ns, Some(Nanos::from_millis(11)));
    }
}
