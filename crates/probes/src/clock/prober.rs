//! The collector's side: asks agents for their time.

use std::{
    io,
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
    Mode, cannot, descriptor, handle, load_programs,
    place::{self, Place, Places, mode_for},
    socket::{StampedSocket, looped},
};
use crate::{
    Error,
    next_hop::{self, Route},
    vantage::failed,
};

/// Between two requests: the next meets other queues.
const GAP: Duration = Duration::from_micros(300);

/// How long a reply is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long an agent whose socket answers may take to attach its program: the
/// kernel may be busy with other devices.
const WAKING: Duration = Duration::from_secs(5);

/// Between two looks for replies.
const LOOK: Duration = Duration::from_micros(500);

const NO_REPLY: &str = "no reply to requests from XDP";

/// The number of the loopback in every network namespace.
const LOOPBACK: u32 = 1;

/// Who took the times of a round's exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// XDP, at both ends.
    Xdp,
    /// Sockets, at one end or both: what queues between socket and device is in the
    /// round trip.
    Socket,
}

/// Some exchanges, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Those that were completed, all by one method.
    pub exchanges: Vec<Exchange>,
    /// Which.
    pub method: Method,
    /// Why it was not XDP.
    pub reason: Option<String>,
    /// Requests without a reply.
    pub lost: u32,
}

/// What all probers of a collector share: the programs. One is enough, and another
/// finds devices taken whose driver runs this one's program. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Station(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Why there are none.
    programs: Result<Programs, String>,
    /// Numbers of probers that are gone, and of the next new one.
    free: Mutex<(Vec<u32>, u32)>,
    most: u32,
}

#[derive(Debug)]
struct Programs {
    depart: Arc<Places>,
    arrive: Arc<Places>,
    probes: MapHandle,
    exchanges: MapHandle,
}

impl Station {
    /// Loads the programs, for at most so many probers at once. Where they cannot be
    /// loaded, probers use sockets.
    pub fn open(probers: u32) -> Station {
        let most = probers.max(1);
        Station(Arc::new(Shared {
            programs: Programs::load(most).map_err(|error| error.to_string()),
            free: Mutex::default(),
            most,
        }))
    }

    /// Asks the agent at an address, in the network namespace of this thread. Where this
    /// host has several, `from` is the one that the agent admits; `None` for what the
    /// route says.
    pub fn prober(&self, session: Session, from: Option<IpAddr>, mut agent: SocketAddr) -> Result<Prober, Error> {
        agent.set_ip(agent.ip().to_canonical());
        let from = from.map(|from| from.to_canonical());
        let socket = StampedSocket::connected(from, agent).map_err(cannot(format!("make a socket to {agent}")))?;
        let looped = looped(agent.is_ipv4()).map(Arc::new).map_err(|error| format!("no loopback: {error}"));
        Ok(Prober { number: self.take_number()?, station: self.clone(), session, agent, socket, looped, sequence: 0 })
    }

    fn programs(&self) -> Result<&Programs, String> {
        self.0.programs.as_ref().map_err(String::clone)
    }

    fn take_number(&self) -> Result<u32, Error> {
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = free.0.pop() {
            return Ok(number);
        }
        if free.1 == self.0.most {
            let error = io::Error::other(format!("there are {} already", self.0.most));
            return Err(cannot("add a prober")(error));
        }
        free.1 += 1;
        Ok(free.1 - 1)
    }
}

impl Programs {
    fn load(most: u32) -> Result<Programs, Error> {
        let mut object = load_programs(
            &["depart", "arrive"],
            &[("probes", most), ("exchanges", most.saturating_mul(abi::DWELL_SYNC_EXCHANGES))],
            &Experiment::default().to_core(0),
        )?;
        Ok(Programs {
            depart: Places::new(descriptor(&object, "depart")?),
            arrive: Places::new(descriptor(&object, "arrive")?),
            probes: handle(&mut object, "probes")?,
            exchanges: handle(&mut object, "exchanges")?,
        })
    }
}

/// Asks one agent. Of a session there is one, once.
#[derive(Debug)]
pub struct Prober {
    station: Station,
    number: u32,
    session: Session,
    agent: SocketAddr,
    socket: StampedSocket,
    looped: Result<Arc<UdpSocket>, String>,
    sequence: u64,
}

/// The programs are where a round needs them, while this is.
struct Held {
    looped: Arc<UdpSocket>,
    _places: [Place; 2],
}

impl Prober {
    /// Up to 256 exchanges, 300 µs apart. It takes as long as they do, and some
    /// seconds where the agent does not answer; then there are none.
    pub fn round(&mut self, exchanges: u32) -> Result<Round, Error> {
        let exchanges = exchanges.clamp(1, abi::DWELL_SYNC_EXCHANGES);
        let reason = match self.hold() {
            Ok(held) => match self.round_by_xdp(&held, exchanges)? {
                Ok(round) => return Ok(round),
                Err(reason) => reason,
            },
            Err(reason) => reason,
        };
        let mut round = self.round_by_socket(exchanges)?;
        round.reason = Some(reason);
        Ok(round)
    }

    /// As [`Prober::round`], by sockets at both ends or this one: for comparison.
    pub fn round_by_socket(&mut self, exchanges: u32) -> Result<Round, Error> {
        let mut round = Round { exchanges: Vec::new(), method: Method::Socket, reason: None, lost: 0 };
        for number in 0..exchanges.max(1) {
            match self.ask_by_socket()? {
                Some(exchange) => round.exchanges.push(exchange),
                None => round.lost += 1,
            }
            // An agent that is not there is not waited for again and again.
            if number == 0 && round.lost > 0 {
                break;
            }
            thread::sleep(GAP);
        }
        Ok(round)
    }

    fn next_request(&mut self) -> [u8; MESSAGE_BYTES] {
        self.sequence += 1;
        request(&self.session, self.sequence)
    }

    fn ask_by_socket(&mut self) -> Result<Option<Exchange>, Error> {
        let message = self.next_request();
        let t1_ns = monotonic_ns();
        // The answer to an earlier packet may have been that nobody is there.
        if self.socket.inner().send(&message).is_err() {
            let _ = self.socket.inner().send(&message);
        }
        let asked = Instant::now();
        while let Some(patience) = PATIENCE.checked_sub(asked.elapsed()) {
            let mut buffer = [0; MESSAGE_BYTES + 1];
            let Ok(Some(arrival)) = self.socket.receive(&mut buffer, patience) else {
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

    /// Sees to it that requests can go out by XDP, and replies are taken; or says
    /// why they cannot.
    fn hold(&mut self) -> Result<Held, String> {
        let agent = self.agent.ip();
        let looped = Arc::clone(self.looped.as_ref().map_err(String::clone)?);
        let own = self.socket.inner().local_addr();
        let own = own.map_err(|error| format!("no address to reach {agent} from: {error}"))?;
        let loop_port = looped.local_addr().map_or(0, |address| address.port());
        let route =
            next_hop::route(agent, Some(own.ip())).map_err(|error| format!("no way out to {agent}: {error}"))?;
        let device = next_hop::device(route.interface).map_err(|error| error.to_string())?;
        let dst_mac = self.resolve(&route)?;
        let probe = abi::dwell_sync_probe {
            interface: route.interface,
            first: self.number * abi::DWELL_SYNC_EXCHANGES,
            src_port: own.port(),
            dst_port: self.agent.port(),
            loop_port,
            src_mac: device.mac,
            dst_mac,
            ..self.session.to_probe(own.ip(), agent)
        };
        let programs = self.station.programs()?;
        programs
            .probes
            .update(&self.session.id.to_ne_bytes(), probe.as_bytes(), MapFlags::ANY)
            .map_err(|error| format!("the map of probers is full: {error}"))?;
        let hold = |places: &Arc<Places>, interface, mode| {
            let place = places.hold(interface, mode);
            place.map_err(|error| place::refusal(interface, &error))
        };
        let mode = mode_for(route.interface, &device);
        let arrive = hold(&programs.arrive, route.interface, mode)?;
        let depart = hold(&programs.depart, LOOPBACK, Mode::Generic)?;
        Ok(Held { looped, _places: [arrive, depart] })
    }

    /// The next hop's Ethernet address, which the kernel finds out when it has to
    /// send something there.
    fn resolve(&mut self, route: &Route) -> Result<Mac, String> {
        let begun = Instant::now();
        let mut asked = false;
        loop {
            let known = next_hop::neighbour(route).map_err(|error| format!("no neighbour {}: {error}", route.next))?;
            if let Some(mac) = known {
                return Ok(mac);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{} does not tell its Ethernet address", route.next));
            }
            if !asked {
                let message = self.next_request();
                // Its answer is of no use, so neither is its failure.
                let _ = self.socket.inner().send(&message);
                asked = true;
            }
            thread::sleep(LOOK);
        }
    }

    /// Exchanges from XDP; or why there were none.
    fn round_by_xdp(&mut self, held: &Held, exchanges: u32) -> Result<Result<Round, String>, Error> {
        let awake = match self.wake(held)? {
            Ok(awake) => awake,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut asked = Vec::new();
        for _ in 0..exchanges {
            match self.ask(held) {
                Ok(sequence) => asked.push(sequence),
                Err(reason) => return Ok(Err(reason)),
            }
            thread::sleep(GAP);
        }
        let patience = (4 * awake).clamp(Duration::from_millis(20), PATIENCE);
        let begun = Instant::now();
        let mut done = self.completed(&asked)?;
        while done.len() < asked.len() && begun.elapsed() < patience {
            thread::sleep(LOOK);
            done = self.completed(&asked)?;
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

    /// Asks until the agent's XDP answers, or is known not to: it may attach its
    /// program only now. How long an exchange takes; or why none was completed.
    fn wake(&mut self, held: &Held) -> Result<Result<Duration, String>, Error> {
        let begun = Instant::now();
        let (mut pause, mut next) = (Duration::from_millis(1), begun);
        let mut asked = Vec::new();
        let mut longest = None;
        while begun.elapsed() < longest.map_or(PATIENCE, |_| WAKING) {
            if Instant::now() >= next {
                match self.ask(held) {
                    Ok(sequence) => asked.push(sequence),
                    Err(reason) => return Ok(Err(reason)),
                }
                next += pause;
                pause = (2 * pause).min(Duration::from_millis(100));
            }
            thread::sleep(LOOK);
            let done = self.completed(&asked)?;
            let took = |(exchange, _): &(Exchange, Stamper)| exchange.t4_ns.saturating_sub(exchange.t1_ns);
            longest = done.iter().map(took).max().map(Duration::from_nanos);
            if done.iter().any(|(_, stamper)| *stamper != Stamper::SocketYet) {
                break;
            }
        }
        Ok(longest.ok_or_else(|| NO_REPLY.to_owned()))
    }

    /// The request's sequence.
    fn ask(&mut self, held: &Held) -> Result<u64, String> {
        let message = self.next_request();
        match held.looped.send(&message) {
            Ok(_) => Ok(self.sequence),
            Err(error) => Err(format!("the loopback does not send: {error}")),
        }
    }

    fn completed(&self, asked: &[u64]) -> Result<Vec<(Exchange, Stamper)>, Error> {
        let Ok(programs) = self.station.programs() else {
            return Ok(Vec::new());
        };
        let first = self.number * abi::DWELL_SYNC_EXCHANGES;
        let mut completed = Vec::new();
        for sequence in asked {
            let index = first + (*sequence % u64::from(abi::DWELL_SYNC_EXCHANGES)) as u32;
            let bytes =
                programs.exchanges.lookup(&index.to_ne_bytes(), MapFlags::ANY).map_err(failed("read", "exchanges"))?;
            let found = bytes
                .and_then(|bytes| abi::dwell_sync_exchange::read_from_bytes(&bytes).ok())
                .filter(|found| found.sequence == *sequence && found.t4_ns != 0);
            if let Some(found) = found
                && let Some(stamper) = Stamper::from_core(found.stamper)
            {
                let exchange =
                    Exchange { t1_ns: found.t1_ns, t2_ns: found.t2_ns, t3_ns: found.t3_ns, t4_ns: found.t4_ns };
                completed.push((exchange, stamper));
            }
        }
        Ok(completed)
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        let shared = &self.station.0;
        if let Ok(programs) = &shared.programs {
            // It is not there where no round went by XDP.
            let _ = programs.probes.delete(&self.session.id.to_ne_bytes());
        }
        let free = shared.free.lock();
        free.unwrap_or_else(PoisonError::into_inner).0.push(self.number);
    }
}
