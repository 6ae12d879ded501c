//! The agent's side: answers the requests of collectors that it was told of.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dwell_engine::{
    abi,
    clock::{Counters, Experiment, MESSAGE_BYTES, Session, Stamper, answer},
};
use dwell_socket::clock::monotonic_ns;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Mode, cannot, descriptor, handle, load_programs,
    place::{self, Places, mode_for},
    socket::{Arrival, StampedSocket},
};
use crate::{
    Error, Interface,
    error::io_error,
    next_hop,
    vantage::{failed, read_percpu},
};

/// How long a program that the stack runs stays after the last request.
const LEASE: Duration = Duration::from_millis(300);

/// How often leases, and the wish to end, are looked at.
const TICK: Duration = Duration::from_millis(200);

/// How long a device that did not take a program is left alone.
const REFUSED: Duration = Duration::from_secs(60);

/// What to answer on.
#[derive(Debug, Clone)]
pub struct ReflectorOptions {
    /// UDP port; 0 for one that is free.
    pub port: u16,
    /// Where XDP may be used; none for wherever a request that is in order comes in.
    pub interfaces: Vec<Interface>,
    /// Sessions that there may be at once.
    pub sessions: u32,
    /// Lies about the clock, for tests and benchmarks.
    pub experiment: Experiment,
}

impl Default for ReflectorOptions {
    fn default() -> ReflectorOptions {
        ReflectorOptions { port: 0, interfaces: Vec::new(), sessions: 256, experiment: Experiment::default() }
    }
}

/// A device that requests came in by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub interface: u32,
    /// Who runs the program there; or why only the socket answers.
    pub mode: Result<Mode, String>,
}

/// Answers in a thread, and in XDP. Dropping it ends both.
#[derive(Debug)]
pub struct Reflector {
    port: u16,
    sessions: MapHandle,
    counters: MapHandle,
    shared: Arc<Shared>,
    responder: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    /// For the socket, which makes its replies in user space.
    keys: Mutex<HashMap<u64, Session>>,
    places: Mutex<HashMap<u32, Result<Mode, String>>>,
}

impl Reflector {
    /// Begins to answer in the network namespace of this thread. XDP programs of
    /// drivers are attached now, where interfaces were named; others with the first
    /// request.
    pub fn attach(options: &ReflectorOptions) -> Result<Reflector, Error> {
        let socket =
            StampedSocket::listening(options.port).map_err(cannot(format!("listen on UDP port {}", options.port)))?;
        let bound = socket.inner().local_addr();
        let port = bound.map_err(cannot("tell the UDP port"))?.port();
        let mut object =
            load_programs(&["reflect", "admit"], &[("sessions", options.sessions)], &options.experiment.to_core(port))?;
        let filter = descriptor(&object, "admit")?;
        socket.filter(&filter).map_err(cannot("filter the socket's packets"))?;
        let shared = Arc::new(Shared::default());
        let counters = handle(&mut object, "counters")?;
        let mut responder = Responder {
            socket,
            experiment: options.experiment,
            allowed: options.interfaces.iter().map(|it| it.index).collect(),
            places: Places::new(descriptor(&object, "reflect")?),
            counters: MapHandle::try_from(&counters).map_err(failed("share", "counters"))?,
            leases: HashMap::new(),
            shared: Arc::clone(&shared),
        };
        for interface in &options.interfaces {
            responder.attach_native(interface.index);
        }
        let responder = thread::Builder::new()
            .name("dwell-clock".into())
            .spawn(move || responder.run())
            .map_err(cannot("start a thread"))?;
        Ok(Reflector { port, sessions: handle(&mut object, "sessions")?, counters, shared, responder: Some(responder) })
    }

    /// Where requests are answered.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Answers the collector at an address from now on. An error where there are as
    /// many sessions as may be, or this one is there: a session is not begun twice, so
    /// that what was sent before is refused.
    pub fn admit(&self, session: &Session, collector: IpAddr) -> Result<(), Error> {
        let value = session.to_core(collector);
        self.sessions
            .update(&session.id.to_ne_bytes(), value.as_bytes(), MapFlags::NO_EXIST)
            .map_err(|error| match io_error(&error).raw_os_error() {
                Some(nix::libc::EEXIST) => io::Error::other("it was admitted before"),
                Some(nix::libc::E2BIG) => io::Error::other("there are too many"),
                _ => io_error(&error),
            })
            .map_err(cannot("admit a session"))?;
        self.keys().insert(session.id, session.clone());
        Ok(())
    }

    /// Answers a session no longer.
    pub fn dismiss(&self, session: u64) {
        // Nothing to do where it was not there.
        let _ = self.sessions.delete(&session.to_ne_bytes());
        self.keys().remove(&session);
    }

    /// What became of requests.
    pub fn counters(&self) -> Result<Counters, Error> {
        read_counters(&self.counters)
    }

    /// By which devices requests that were in order came to the socket, and what was
    /// tried there.
    pub fn places(&self) -> Vec<Place> {
        let places = self.shared.places.lock();
        let places = places.unwrap_or_else(PoisonError::into_inner);
        let mut places: Vec<_> =
            places.iter().map(|(interface, mode)| Place { interface: *interface, mode: mode.clone() }).collect();
        places.sort_by_key(|place| place.interface);
        places
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Session>> {
        let keys = self.shared.keys.lock();
        keys.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(responder) = self.responder.take() {
            // It has nothing to tell.
            let _ = responder.join();
        }
    }
}

/// The thread that answers what XDP has not.
struct Responder {
    socket: StampedSocket,
    experiment: Experiment,
    /// Interfaces for XDP; any where empty.
    allowed: Vec<u32>,
    places: Arc<Places>,
    counters: MapHandle,
    leases: HashMap<u32, Lease>,
    shared: Arc<Shared>,
}

/// Of a device: a program there, or the wish for none for a while.
struct Lease {
    place: Option<place::Place>,
    until: Instant,
}

impl Responder {
    fn run(&mut self) {
        let mut answered = 0;
        let mut looked = Instant::now();
        let mut buffer = [0; MESSAGE_BYTES];
        while !self.shared.ends.load(Ordering::Relaxed) {
            match self.socket.receive(&mut buffer, TICK) {
                Ok(Some(arrival)) if arrival.bytes == MESSAGE_BYTES => {
                    self.respond(&buffer, &arrival);
                }
                Ok(_) => {}
                // Nobody is there to be told; it may be better in a while.
                Err(_) => thread::sleep(TICK),
            }
            if looked.elapsed() >= TICK {
                looked = Instant::now();
                self.renew(&mut answered);
            }
        }
    }

    /// The filter has seen that the request is in order.
    fn respond(&mut self, request: &[u8; MESSAGE_BYTES], arrival: &Arrival) {
        let interface = arrival.to.map(|(_, interface)| interface);
        let promising = interface.is_some_and(|interface| self.may_attach(interface));
        if let Some((earliest, _)) = arrival.between_ns {
            let stamper = match promising {
                true => Stamper::SocketYet,
                false => Stamper::Socket,
            };
            self.answer(request, arrival, stamper, earliest);
        }
        if let Some(interface) = interface.filter(|_| promising) {
            self.lease(interface);
        }
    }

    fn answer(&self, request: &[u8; MESSAGE_BYTES], arrival: &Arrival, stamper: Stamper, earliest_ns: u64) {
        let id = abi::dwell_sync::read_from_bytes(request).map(|request| request.session);
        let session = {
            let keys = self.shared.keys.lock();
            let keys = keys.unwrap_or_else(PoisonError::into_inner);
            id.ok().and_then(|id| keys.get(&id).cloned())
        };
        let Some(session) = session else {
            return;
        };
        let arrived = self.experiment.claimed(earliest_ns);
        let departs = self.experiment.claimed(monotonic_ns());
        let reply = answer(&session, request, stamper, arrived, departs);
        // A reply that cannot be sent is a reply lost.
        let _ = self.socket.reply(&reply, arrival);
    }

    /// True if the next request may find a program at the device.
    fn may_attach(&self, interface: u32) -> bool {
        if !self.allowed.is_empty() && !self.allowed.contains(&interface) {
            return false;
        }
        match self.leases.get(&interface) {
            None => next_hop::device(interface).is_ok(),
            Some(lease) => lease.place.is_some(),
        }
    }

    fn lease(&mut self, interface: u32) {
        if let Some(lease) = self.leases.get_mut(&interface) {
            lease.until = Instant::now() + LEASE;
            return;
        }
        let Ok(device) = next_hop::device(interface) else {
            return;
        };
        let mode = mode_for(interface, &device);
        let lease = match self.places.hold(interface, mode) {
            Ok(place) => {
                self.told(interface, Ok(place.mode()));
                Lease {
                    place: Some(place),
                    // To attach may have taken longer than a lease.
                    until: Instant::now() + LEASE,
                }
            }
            Err(error) => {
                self.told(interface, Err(place::refusal(interface, &error)));
                Lease { place: None, until: Instant::now() + REFUSED }
            }
        };
        self.leases.insert(interface, lease);
    }

    fn attach_native(&mut self, interface: u32) {
        let device = next_hop::device(interface);
        if device.is_ok_and(|device| mode_for(interface, &device) == Mode::Native) {
            self.lease(interface);
        }
    }

    /// Programs that were used lately stay; so do those of drivers.
    fn renew(&mut self, answered: &mut u64) {
        let now = Instant::now();
        let until_now = read_counters(&self.counters).map_or(0, |counters| counters.answered_xdp);
        let used = until_now != *answered;
        *answered = until_now;
        self.leases.retain(|_, lease| {
            let mode = lease.place.as_ref().map(place::Place::mode);
            if mode.is_some() && used {
                lease.until = now + LEASE;
            }
            mode == Some(Mode::Native) || lease.until > now
        });
    }

    fn told(&self, interface: u32, mode: Result<Mode, String>) {
        let places = self.shared.places.lock();
        let mut places = places.unwrap_or_else(PoisonError::into_inner);
        places.insert(interface, mode);
    }
}

fn read_counters(map: &MapHandle) -> Result<Counters, Error> {
    let cpus = read_percpu(map, "counters", 0)?;
    let cpus: Vec<_> = cpus
        .iter()
        .filter_map(|bytes| abi::dwell_sync_counters::read_from_prefix(bytes).ok())
        .map(|(counters, _)| counters)
        .collect();
    Ok(Counters::sum(cpus.iter()))
}
