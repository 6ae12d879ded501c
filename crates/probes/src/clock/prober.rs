//! The collector's side: requests the time of agents.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use dwell_engine::{
    abi,
    balance::Mac,
    clock::{Exchange, Experiment, MESSAGE_BYTES, Reply, Session, Stamper, read_reply, request},
};
use dwell_socket::clock::monotonic_ns;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Mode, cannot, descriptor,
    devices::{self, ClockMode, Lease, SharedProgram},
    handle, load_programs,
    socket::{StampedSocket, looped},
};
use crate::{
    Error,
    next_hop::{self, Route},
    vantage::failed,
};

/// The time between two requests, so that the next one meets other queues.
const GAP: Duration = Duration::from_micros(300);

/// How long to wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long an agent whose socket answers may take to attach its program: the kernel may be busy with other devices.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two polls for replies.
const POLL: Duration = Duration::from_micros(500);

const NO_REPLY: &str = "no reply to requests from XDP";

/// The index of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;

/// What took the timestamps of a round's exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// XDP at both ends.
    Xdp,
    /// Sockets at one end or both: the round trip includes the time in queues between socket and device.
    Socket,
}

/// A series of exchanges with an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The completed exchanges, all by one method.
    pub exchanges: Vec<Exchange>,
    /// The method.
    pub method: Method,
    /// Why the method is not XDP, if it is not.
    pub reason: Option<String>,
    /// The number of requests without a reply.
    pub lost: u32,
}

/// The programs that all probers of a collector share. There should be one per host: a second one finds devices occupied
/// whose driver runs the program of the first. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Station(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The programs, or why they could not be loaded.
    programs: Result<Programs, String>,
    mode: ClockMode,
    /// The numbers that dropped probers have freed, and the next new one.
    free: Mutex<(Vec<u32>, u32)>,
    /// The number of probers that XDP has room for.
    max_probers: u32,
}

#[derive(Debug)]
struct Programs {
    depart: Arc<SharedProgram>,
    arrive: Arc<SharedProgram>,
    probes: MapHandle,
    exchanges: MapHandle,
}

impl Station {
    /// Loads the programs for `max_probers` probers at a time, to stamp packets as `mode` says. Further probers use sockets
    /// until another one is dropped; where the programs cannot be loaded, all do.
    pub fn open(max_probers: u32, mode: ClockMode) -> Station {
        let max_probers = max_probers.max(1);
        Station(Arc::new(Shared {
            programs: match mode {
                ClockMode::Socket => Err("only sockets are wanted".into()),
                _ => Programs::load(max_probers).map_err(|error| error.to_string()),
            },
            mode,
            free: Mutex::default(),
            max_probers,
        }))
    }

    /// Creates a prober of the agent at an address, in the network namespace of this thread. `from` is the address of
    /// this host that the agent admits; `None` for the one that the route prefers.
    pub fn prober(&self, session: Session, from: Option<IpAddr>, mut agent: SocketAddr) -> Result<Prober, Error> {
        agent.set_ip(agent.ip().to_canonical());
        let from = from.map(|from| from.to_canonical());
        let socket = StampedSocket::connected(from, agent).map_err(cannot(format!("open a socket to {agent}")))?;
        let looped = looped(agent.is_ipv4()).map(Arc::new).map_err(|error| format!("no loopback: {error}"));
        Ok(Prober { number: None, station: self.clone(), session, agent, socket, looped, sequence: 0 })
    }

    fn programs(&self) -> Result<&Programs, String> {
        self.0.programs.as_ref().map_err(String::clone)
    }

    /// Reserves a place in the maps of XDP, if there is one.
    fn reserve_number(&self) -> Option<u32> {
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.pop().or_else(|| {
            (free.1 < self.0.max_probers).then(|| {
                free.1 += 1;
                free.1 - 1
            })
        })
    }
}

impl Programs {
    fn load(max_probers: u32) -> Result<Programs, Error> {
        let mut object = load_programs(
            &["depart", "arrive"],
            &[("probes", max_probers), ("exchanges", max_probers.saturating_mul(abi::DWELL_SYNC_EXCHANGES))],
            &Experiment::default().to_core(0),
        )?;
        Ok(Programs {
            depart: SharedProgram::new(descriptor(&object, "depart")?),
            arrive: SharedProgram::new(descriptor(&object, "arrive")?),
            probes: handle(&mut object, "probes")?,
            exchanges: handle(&mut object, "exchanges")?,
        })
    }
}

/// Compares the clock of one agent. A session must not be used for a second prober.
#[derive(Debug)]
pub struct Prober {
    station: Station,
    /// The place in the maps of XDP, from the first round on in which there is one.
    number: Option<u32>,
    session: Session,
    agent: SocketAddr,
    socket: StampedSocket,
    looped: Result<Arc<UdpSocket>, String>,
    sequence: u64,
}

/// What a round by XDP needs: the programs stay attached as long as it lives.
struct Prepared {
    /// The first of the exchanges in the map that are this prober's.
    first: u32,
    looped: Arc<UdpSocket>,
    _leases: [Lease; 2],
}

impl Prober {
    /// Makes up to 256 exchanges, 300 µs apart. Where the agent does not answer, it takes some seconds and returns none.
    pub fn round(&mut self, exchanges: u32) -> Result<Round, Error> {
        let exchanges = exchanges.clamp(1, abi::DWELL_SYNC_EXCHANGES);
        let reason = match self.prepare_xdp() {
            Ok(prepared) => match self.round_by_xdp(&prepared, exchanges)? {
                Ok(round) => return Ok(round),
                Err(reason) => reason,
            },
            Err(reason) => {
                self.give_back();
                reason
            }
        };
        let mut round = self.round_by_socket(exchanges)?;
        round.reason = Some(reason);
        Ok(round)
    }

    /// Makes a round like [`Prober::round`], but with a socket at this end, for comparison.
    pub fn round_by_socket(&mut self, exchanges: u32) -> Result<Round, Error> {
        let mut round = Round { exchanges: Vec::new(), method: Method::Socket, reason: None, lost: 0 };
        for number in 0..exchanges.max(1) {
            match self.exchange_by_socket()? {
                Some(exchange) => round.exchanges.push(exchange),
                None => round.lost += 1,
            }
            // Do not wait again for an agent that is not there.
            if number == 0 && round.lost > 0 {
                break;
            }
            thread::sleep(GAP);
        }
        Ok(round)
    }

    /// Leaves its place in the maps of XDP to another prober, if it has one.
    fn give_back(&mut self) {
        let shared = &self.station.0;
        if let (Ok(programs), Some(_)) = (&shared.programs, self.number) {
            // There is no entry if the map was full.
            let _ = programs.probes.delete(&self.session.id.to_ne_bytes());
        }
        let free = shared.free.lock();
        free.unwrap_or_else(PoisonError::into_inner).0.extend(self.number.take());
    }

    fn next_request(&mut self) -> [u8; MESSAGE_BYTES] {
        self.sequence += 1;
        request(&self.session, self.sequence)
    }

    fn exchange_by_socket(&mut self) -> Result<Option<Exchange>, Error> {
        let message = self.next_request();
        let t1_ns = monotonic_ns();
        // The first call may report that an earlier packet found no receiver.
        if self.socket.inner().send(&message).is_err() {
            let _ = self.socket.inner().send(&message);
        }
        let start = Instant::now();
        while let Some(left) = TIMEOUT.checked_sub(start.elapsed()) {
            let mut buffer = [0; MESSAGE_BYTES + 1];
            let Ok(Some(arrival)) = self.socket.receive(&mut buffer, left) else {
                continue;
            };
            let reply = read_reply(&self.session, &buffer[..arrival.bytes]);
            let reply = reply.filter(|reply| reply.sequence == self.sequence);
            if let (Some(Reply { arrival_ns, departure_ns, .. }), Some((_, latest))) = (reply, arrival.between_ns) {
                return Ok(Some(Exchange { t1_ns, t2_ns: arrival_ns, t3_ns: departure_ns, t4_ns: latest }));
            }
        }
        Ok(None)
    }

    /// Attaches the programs that send requests and receive replies, or returns why this is not possible.
    fn prepare_xdp(&mut self) -> Result<Prepared, String> {
        let agent = self.agent.ip();
        let looped = Arc::clone(self.looped.as_ref().map_err(String::clone)?);
        let own = self.socket.inner().local_addr();
        let own = own.map_err(|error| format!("no address to reach {agent} from: {error}"))?;
        let loop_port = looped.local_addr().map_or(0, |address| address.port());
        let found = next_hop::route_and_device(agent, Some(own.ip()));
        let (route, device) = found.map_err(|error| format!("no route to {agent}: {error}"))?;
        let device = device.map_err(|error| error.to_string())?;
        let dst_mac = self.resolve(&route)?;
        self.number = self.number.or_else(|| self.station.reserve_number());
        let number = self.number.ok_or_else(|| {
            format!("XDP has no room left: the clocks of {} others are compared", self.station.0.max_probers)
        })?;
        let first = number * abi::DWELL_SYNC_EXCHANGES;
        let programs = self.station.programs()?;
        let probe = abi::dwell_sync_probe {
            interface: route.interface,
            first,
            src_port: own.port(),
            dst_port: self.agent.port(),
            loop_port,
            src_mac: device.mac,
            dst_mac,
            ..self.session.to_probe(own.ip(), agent)
        };
        programs
            .probes
            .update(&self.session.id.to_ne_bytes(), probe.as_bytes(), MapFlags::ANY)
            .map_err(|error| format!("the map of probers is full: {error}"))?;
        let lease = |program: &Arc<SharedProgram>, interface, mode| {
            program.lease(interface, mode).map_err(|error| devices::refusal(interface, &error))
        };
        let mode = self.station.0.mode.at(route.interface, &device)?;
        let arrive = lease(&programs.arrive, route.interface, mode)?;
        let depart = lease(&programs.depart, LOOPBACK, Mode::Generic)?;
        Ok(Prepared { first, looped, _leases: [arrive, depart] })
    }

    /// Resolves the next hop's Ethernet address, which the kernel finds out when it has to send something there.
    fn resolve(&mut self, route: &Route) -> Result<Mac, String> {
        let start = Instant::now();
        let mut is_sent = false;
        loop {
            let known = next_hop::neighbour(route).map_err(|error| format!("no neighbour {}: {error}", route.next))?;
            if let Some(mac) = known {
                return Ok(mac);
            }
            if start.elapsed() > TIMEOUT {
                return Err(format!("the Ethernet address of {} is unknown", route.next));
            }
            if !is_sent {
                let message = self.next_request();
                // The message only makes the kernel resolve the address, so its failure does not matter.
                let _ = self.socket.inner().send(&message);
                is_sent = true;
            }
            thread::sleep(POLL);
        }
    }

    /// Makes a round by XDP, or returns why no exchange was completed.
    fn round_by_xdp(&mut self, prepared: &Prepared, exchanges: u32) -> Result<Result<Round, String>, Error> {
        let round_trip = match self.wait_for_agent(prepared)? {
            Ok(round_trip) => round_trip,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut requests = Vec::new();
        for _ in 0..exchanges {
            match self.send_request(prepared) {
                Ok(sequence) => requests.push(sequence),
                Err(reason) => return Ok(Err(reason)),
            }
            thread::sleep(GAP);
        }
        let timeout = (4 * round_trip).clamp(Duration::from_millis(20), TIMEOUT);
        let start = Instant::now();
        let mut done = self.completed(prepared, &requests)?;
        while done.len() < requests.len() && start.elapsed() < timeout {
            thread::sleep(POLL);
            done = self.completed(prepared, &requests)?;
        }
        if done.is_empty() {
            return Ok(Err(NO_REPLY.into()));
        }
        let by_xdp = |(_, stamper): &(Exchange, Stamper)| *stamper == Stamper::Xdp;
        let method = match done.iter().any(by_xdp) {
            true => Method::Xdp,
            false => Method::Socket,
        };
        let of_method = done.iter().filter(|it| by_xdp(it) == (method == Method::Xdp));
        Ok(Ok(Round {
            exchanges: of_method.map(|(exchange, _)| *exchange).collect(),
            method,
            reason: (method == Method::Socket).then(|| "XDP did not answer at the agent".into()),
            lost: exchanges - done.len() as u32,
        }))
    }

    /// Sends requests until the agent's XDP answers, or is known not to: the agent may attach its program only now.
    /// Returns how long an exchange takes, or why none was completed.
    fn wait_for_agent(&mut self, prepared: &Prepared) -> Result<Result<Duration, String>, Error> {
        let start = Instant::now();
        let (mut pause, mut next) = (Duration::from_millis(1), start);
        let mut requests = Vec::new();
        let mut longest = None;
        while start.elapsed() < longest.map_or(TIMEOUT, |_| ATTACH_TIMEOUT) {
            if Instant::now() >= next {
                match self.send_request(prepared) {
                    Ok(sequence) => requests.push(sequence),
                    Err(reason) => return Ok(Err(reason)),
                }
                next += pause;
                pause = (2 * pause).min(Duration::from_millis(100));
            }
            thread::sleep(POLL);
            let done = self.completed(prepared, &requests)?;
            let round_trip = |(exchange, _): &(Exchange, Stamper)| exchange.t4_ns.saturating_sub(exchange.t1_ns);
            longest = done.iter().map(round_trip).max().map(Duration::from_nanos);
            if done.iter().any(|(_, stamper)| *stamper != Stamper::SocketYet) {
                break;
            }
        }
        Ok(longest.ok_or_else(|| NO_REPLY.to_owned()))
    }

    /// Sends a request from XDP, and returns its sequence number.
    fn send_request(&mut self, prepared: &Prepared) -> Result<u64, String> {
        let message = self.next_request();
        match prepared.looped.send(&message) {
            Ok(_) => Ok(self.sequence),
            Err(error) => Err(format!("loopback does not send: {error}")),
        }
    }

    /// The completed exchanges among the requests of these sequence numbers.
    fn completed(&self, prepared: &Prepared, requests: &[u64]) -> Result<Vec<(Exchange, Stamper)>, Error> {
        let Ok(programs) = self.station.programs() else {
            return Ok(Vec::new());
        };
        let mut completed = Vec::new();
        for sequence in requests {
            let index = prepared.first + (*sequence % u64::from(abi::DWELL_SYNC_EXCHANGES)) as u32;
            let bytes =
                programs.exchanges.lookup(&index.to_ne_bytes(), MapFlags::ANY).map_err(failed("read", "exchanges"))?;
            let core = bytes
                .and_then(|bytes| abi::dwell_sync_exchange::read_from_bytes(&bytes).ok())
                .filter(|core| core.sequence == *sequence && core.t4_ns != 0);
            if let Some(core) = core
                && let Some(stamper) = Stamper::from_core(core.stamper)
            {
                let exchange = Exchange { t1_ns: core.t1_ns, t2_ns: core.t2_ns, t3_ns: core.t3_ns, t4_ns: core.t4_ns };
                completed.push((exchange, stamper));
            }
        }
        Ok(completed)
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.give_back();
    }
}
