//! The link emulator: packets wait in the kernel's netfilter queues until the model of their link releases them.

mod handle;
mod report;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::Read as _,
    net::UdpSocket,
    os::fd::AsFd,
    path::PathBuf,
    process::Command,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime},
};

use handle::Status;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll, ppoll},
    sys::{
        prctl::set_timerslack,
        socket::{setsockopt, sockopt},
        time::{TimeSpec, TimeValLike},
    },
};
use report::Tally;
use serde::{Deserialize, Serialize};

use crate::{
    DropReason, Error, Fate, Link, LinkSpec, Nanos, Result,
    error::run,
    namespace,
    nfqueue::{Packet, Queue, Received, Verdict, kernel_drops},
};

pub use handle::EmulatorHandle;
pub use report::{DirectionReport, Report};

pub(crate) use handle::read_report;

/// How long before a packet is due the emulator stops sleeping and polls the clock. It covers the cost of a wake-up.
const SPIN: Nanos = Nanos::from_micros(50);
/// The longest sleep, and so the longest reaction time to a request to stop.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(50);
/// The maximum number of messages that are read from one queue before the next queue.
const READ_BATCH: usize = 64;
/// The maximum number of verdicts per system call. The last one waits for the others, and all get the time of its end.
const VERDICT_BATCH: usize = 16;

/// The configuration of the emulator. It is JSON if the emulator is a process of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmulatorConfig {
    /// The directions of links.
    pub queues: Vec<QueueConfig>,
    /// The file for progress and the final report, which the starter of the process reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PathBuf>,
    /// Stop when standard input ends, that is, when the process that holds its other end is gone.
    #[serde(default)]
    pub stop_with_stdin: bool,
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueConfig {
    /// The name in the report.
    pub name: String,
    /// The named namespace of the queue; if absent, that of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The number of the NFQUEUE rule.
    pub queue: u16,
    /// The properties of the link.
    #[serde(default)]
    pub link: LinkSpec,
}

/// Reads a configuration from JSON text, or from the file FILE if the text is `@FILE`.
impl FromStr for EmulatorConfig {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let from_file;
        let json = match text.strip_prefix('@') {
            Some(file) => {
                from_file = std::fs::read_to_string(file).map_err(Error::io(format!("read {file}")))?;
                &from_file
            }
            None => text,
        };
        serde_json::from_str(json).map_err(|why| Error::invalid("emulator configuration", why))
    }
}

/// Emulates until SIGTERM or SIGINT, and reports how exactly. This is the whole process `dwell-lab emulate`.
pub fn emulate(config: &EmulatorConfig) -> Result<Report> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Error::io("watch for signals"))?;
    }
    let tell = |status: Status| match &config.status {
        Some(file) => status.write(file),
        None => Ok(()),
    };
    let report = emulate_until(config, &stop, || tell(Status::Running))?;
    tell(Status::Done(report.clone()))?;
    Ok(report)
}

/// Emulates on this thread until `stop` is set. Calls `ready` when packets pass.
fn emulate_until(config: &EmulatorConfig, stop: &AtomicBool, ready: impl FnOnce() -> Result<()>) -> Result<Report> {
    // While a socket asks for time stamps, the kernel stamps every packet as it comes in. So a packet that this
    // process read late is not also released late.
    let stamping = UdpSocket::bind(("127.0.0.1", 0)).map_err(Error::io("open a socket for time stamps"))?;
    setsockopt(&stamping, sockopt::ReceiveTimestampns, &true).map_err(Error::os("switch on time stamps"))?;
    let mut emulator = Emulator::open(config)?;
    let realtime = become_realtime();
    ready()?;
    let mut stdin = config.stop_with_stdin.then(std::io::stdin);
    while !stop.load(Ordering::Relaxed) {
        emulator.give_due_verdicts()?;
        let read = emulator.read()?;
        if !read && !emulator.wait(stdin.as_mut())? {
            break;
        }
    }
    Ok(emulator.finish(realtime))
}

/// Requests real-time scheduling, which keeps wake-ups on time. Without permission, the thread is only less exact.
pub fn become_realtime() -> bool {
    let _ = set_timerslack(1);
    let thread = nix::unistd::gettid().to_string();
    run(Command::new("chrt").args(["--fifo", "--pid", "50", &thread]), "").is_ok()
}

struct Emulator {
    directions: Vec<Direction>,
    held: BinaryHeap<Reverse<Held>>,
    clock: Instant,
    /// The number of packets read so far. It orders packets that are due at the same time by their arrival.
    packets: u64,
}

struct Direction {
    name: String,
    namespace: Option<String>,
    queue: Queue,
    spec: LinkSpec,
    /// The time of the first packet, at which traces and phases start.
    link: Option<Link>,
    last_arrival: Nanos,
    due: Vec<Nanos>,
    tally: Tally,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due: Nanos,
    order: u64,
    direction: usize,
    id: u32,
}

impl Emulator {
    fn open(config: &EmulatorConfig) -> Result<Self> {
        let clock = Instant::now();
        let open = |config: &QueueConfig| -> Result<Direction> {
            let queue = match &config.namespace {
                Some(name) => namespace::enter(name, || Queue::open(config.queue))??,
                None => Queue::open(config.queue)?,
            };
            Ok(Direction {
                name: config.name.clone(),
                namespace: config.namespace.clone(),
                queue,
                spec: config.link.clone(),
                link: None,
                last_arrival: Nanos::ZERO,
                due: Vec::new(),
                tally: Tally::default(),
            })
        };
        let directions = config.queues.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { directions, held: BinaryHeap::new(), clock, packets: 0 })
    }

    fn now(&self) -> Nanos {
        self.clock.elapsed().into()
    }

    fn give_due_verdicts(&mut self) -> Result<()> {
        loop {
            let now = self.now();
            let mut given = 0;
            while given < VERDICT_BATCH && self.held.peek().is_some_and(|Reverse(held)| held.due <= now) {
                let Some(Reverse(held)) = self.held.pop() else {
                    break;
                };
                let direction = &mut self.directions[held.direction];
                direction.queue.push_verdict(held.id, Verdict::Accept);
                direction.due.push(held.due);
                given += 1;
            }
            if given == 0 {
                return Ok(());
            }
            for direction in &mut self.directions {
                if !direction.due.is_empty() {
                    direction.queue.flush()?;
                    let done = Nanos::from(self.clock.elapsed());
                    direction.due.drain(..).for_each(|due| direction.tally.delivered(done.since(due)));
                }
            }
        }
    }

    /// Reads the packets that have arrived and decides when they leave. False if none had arrived.
    fn read(&mut self) -> Result<bool> {
        let mut any = false;
        for index in 0..self.directions.len() {
            for _ in 0..READ_BATCH {
                match self.directions[index].queue.receive()? {
                    Received::Packet(packet) => self.decide(index, packet),
                    Received::Nothing => break,
                    Received::Overrun => {}
                    Received::Refused => self.directions[index].tally.refused += 1,
                }
                any = true;
            }
            self.directions[index].queue.flush()?;
        }
        Ok(any)
    }

    fn decide(&mut self, index: usize, packet: Packet) {
        // The age first: what happens between the two clocks' readings makes a packet late, and not early.
        let age = packet.arrival.and_then(|arrival| SystemTime::now().duration_since(arrival).ok());
        let now = self.now();
        let direction = &mut self.directions[index];
        direction.tally.offered(packet.bytes, age.is_some());
        // Stamps are rounded down to a microsecond; a packet must never be early. An age past a second is a step of
        // the wall clock.
        let age = age.map(Nanos::from).filter(|age| age.0 < 1_000_000_000).unwrap_or_default();
        let arrival = now.since(age.since(Nanos::from_micros(1))).max(direction.last_arrival);
        direction.last_arrival = arrival;
        let link = direction.link.get_or_insert_with(|| Link::new(direction.spec.clone(), arrival));
        match link.offer(arrival, packet.bytes) {
            Fate::Deliver(due) => {
                self.packets += 1;
                self.held.push(Reverse(Held { due, order: self.packets, direction: index, id: packet.id }));
            }
            Fate::Drop(reason) => {
                match reason {
                    DropReason::Loss => direction.tally.lost += 1,
                    DropReason::QueueFull => direction.tally.queue_full += 1,
                }
                direction.queue.push_verdict(packet.id, Verdict::Drop);
            }
        }
    }

    /// Sleeps until shortly before the next packet is due, or until a packet arrives. False if standard input has
    /// ended.
    fn wait(&mut self, stdin: Option<&mut std::io::Stdin>) -> Result<bool> {
        let pause = match self.held.peek() {
            Some(Reverse(held)) => held.due.since(self.now() + SPIN).min(LONGEST_SLEEP),
            None => LONGEST_SLEEP,
        };
        if pause == Nanos::ZERO {
            return Ok(true);
        }
        let mut watched: Vec<PollFd> =
            self.directions.iter().map(|direction| PollFd::new(direction.queue.as_fd(), PollFlags::POLLIN)).collect();
        let pause = TimeSpec::nanoseconds(i64::try_from(pause.0).expect("it is at most 50 ms"));
        match ppoll(&mut watched, Some(pause), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::os("wait for packets")(errno)),
        }
        Ok(!stdin.is_some_and(has_ended))
    }

    fn finish(self, realtime: bool) -> Report {
        let mut waiting = vec![0; self.directions.len()];
        for Reverse(held) in &self.held {
            waiting[held.direction] += 1;
        }
        let directions = self.directions.into_iter().zip(waiting).map(|(direction, waiting)| {
            let number = direction.queue.number();
            let dropped = match &direction.namespace {
                Some(name) => namespace::enter(name, || kernel_drops(number)).ok().flatten(),
                None => kernel_drops(number),
            };
            (direction.name, direction.tally, dropped, waiting)
        });
        Report::new(realtime, directions.collect())
    }
}

fn has_ended(stdin: &mut std::io::Stdin) -> bool {
    let mut watched = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let some = poll(&mut watched, PollTimeout::ZERO).is_ok_and(|count| count > 0);
    some && !matches!(stdin.read(&mut [0; 64]), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BitsPerSecond, Probability, QueueLimit, Trace};

    #[test]
    fn a_configuration_survives_its_json() {
        let link = LinkSpec {
            delay_ns: Nanos::from_millis(10),
            rate_bits_per_second: BitsPerSecond::new(1_000_000),
            queue: Some(QueueLimit::Packets(85)),
            loss: Probability::new(0.25).unwrap(),
            trace: Some(Trace::parse("1\n2\n").unwrap()),
            seed: u64::MAX,
            ..LinkSpec::default()
        };
        let queue = QueueConfig { name: "client out".to_owned(), namespace: None, queue: 3, link };
        let config = EmulatorConfig { queues: vec![queue], ..EmulatorConfig::default() };
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(json.parse::<EmulatorConfig>().unwrap(), config);
    }

    #[test]
    fn a_misspelt_key_is_an_error_that_names_it() {
        let error = r#"{"queues":[{"name":"x","queue":0,"link":{"delay":5}}]}"#.parse::<EmulatorConfig>().unwrap_err();
        assert!(error.to_string().contains("delay"), "{error}");
    }
}
