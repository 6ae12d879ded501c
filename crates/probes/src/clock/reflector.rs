//! The agent's side: answers the requests of admitted collectors.

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
use dwell_socket::{
    clock::monotonic_ns,
    privilege::{self, Capability},
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Mode, cannot, descriptor,
    devices::{self, ClockMode, SharedProgram},
    handle, load_programs,
    socket::{Arrival, StampedSocket},
};
use crate::{
    Error, Interface,
    error::io_error,
    next_hop,
    vantage::{failed, read_cpus},
};

/// How long a program that the network stack runs stays attached after the last request.
const IDLE: Duration = Duration::from_millis(300);

/// The time between two checks of idle programs and of the request to stop.
const TICK: Duration = Duration::from_millis(200);

/// How long a device that refused a program is left alone.
const REFUSED: Duration = Duration::from_secs(60);

/// Where to answer, and for how many sessions.
#[derive(Debug, Clone)]
pub struct ReflectorOptions {
    /// The UDP port; 0 for a free one.
    pub port: u16,
    /// The interfaces whose XDP may be used; if empty, any by which a valid request arrives.
    pub interfaces: Vec<Interface>,
    /// What may take timestamps at these interfaces.
    pub mode: ClockMode,
    /// The most sessions at a time.
    pub sessions: u32,
    /// Deviations of the reported clock, for tests and benchmarks.
    pub experiment: Experiment,
}

impl Default for ReflectorOptions {
    fn default() -> ReflectorOptions {
        ReflectorOptions {
            port: 0,
            interfaces: Vec::new(),
            mode: ClockMode::default(),
            sessions: 256,
            experiment: Experiment::default(),
        }
    }
}

/// A device by which requests have arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReflectingDevice {
    /// The index of its interface.
    pub interface: u32,
    /// What runs the program there, or why only the socket answers.
    pub mode: Result<Mode, String>,
}

/// Answers requests in a thread and at XDP. Dropping it ends both.
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
    is_stopped: AtomicBool,
    /// The admitted sessions, for the socket, whose replies are made in user space.
    keys: Mutex<HashMap<u64, Session>>,
    devices: Mutex<HashMap<u32, Result<Mode, String>>>,
}

impl Reflector {
    /// Starts to answer in the network namespace of this thread. XDP programs that drivers run are attached at once to
    /// the named interfaces, others with the first request.
    pub fn attach(options: &ReflectorOptions) -> Result<Reflector, Error> {
        let socket =
            StampedSocket::listening(options.port).map_err(cannot(format!("listen on UDP port {}", options.port)))?;
        let bound = socket.inner().local_addr();
        let port = bound.map_err(cannot("find the UDP port"))?.port();
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
            mode: options.mode,
            program: SharedProgram::new(descriptor(&object, "reflect")?),
            counters: MapHandle::try_from(&counters).map_err(failed("share", "counters"))?,
            attached: HashMap::new(),
            shared: Arc::clone(&shared),
        };
        for interface in &options.interfaces {
            responder.attach_native(interface.index);
        }
        let responder = thread::Builder::new()
            .name("dwell-clock".into())
            .spawn(move || {
                // What attaches a program to a device needs.
                let _ = privilege::keep(&[Capability::Bpf, Capability::NetAdmin]);
                responder.run();
            })
            .map_err(cannot("start a thread"))?;
        Ok(Reflector { port, sessions: handle(&mut object, "sessions")?, counters, shared, responder: Some(responder) })
    }

    /// The UDP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Answers the collector at an address from now on. Fails if there are too many sessions, or if this one was admitted
    /// before: a session is not admitted twice, so that replayed requests are refused.
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

    /// Stops answering a session.
    pub fn dismiss(&self, session: u64) {
        // Nothing to do if it is unknown.
        let _ = self.sessions.delete(&session.to_ne_bytes());
        self.keys().remove(&session);
    }

    /// Counts of answered and refused requests.
    pub fn counters(&self) -> Result<Counters, Error> {
        read_counters(&self.counters)
    }

    /// The devices by which valid requests have come to the socket, and what was attached there.
    pub fn devices(&self) -> Vec<ReflectingDevice> {
        let devices = self.shared.devices.lock();
        let devices = devices.unwrap_or_else(PoisonError::into_inner);
        let device =
            |(interface, mode): (&u32, &Result<_, _>)| ReflectingDevice { interface: *interface, mode: mode.clone() };
        let mut devices: Vec<_> = devices.iter().map(device).collect();
        devices.sort_by_key(|device| device.interface);
        devices
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Session>> {
        let keys = self.shared.keys.lock();
        keys.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        if let Some(responder) = self.responder.take() {
            // The thread has no result.
            let _ = responder.join();
        }
    }
}

/// The thread that answers requests that XDP has not answered.
struct Responder {
    socket: StampedSocket,
    experiment: Experiment,
    /// The interfaces whose XDP may be used; any if empty.
    allowed: Vec<u32>,
    mode: ClockMode,
    program: Arc<SharedProgram>,
    counters: MapHandle,
    /// By interface.
    attached: HashMap<u32, Attachment>,
    shared: Arc<Shared>,
}

/// The state of a device: a program is attached there until it is idle, or was refused and is not tried for a while.
struct Attachment {
    lease: Option<devices::Lease>,
    until: Instant,
}

impl Responder {
    fn run(&mut self) {
        let mut answered = 0;
        let mut last_check = Instant::now();
        let mut buffer = [0; MESSAGE_BYTES];
        while !self.shared.is_stopped.load(Ordering::Relaxed) {
            match self.socket.receive(&mut buffer, TICK) {
                Ok(Some(arrival)) if arrival.bytes == MESSAGE_BYTES => {
                    self.respond(&buffer, &arrival);
                }
                Ok(_) => {}
                // The cause may be gone in a while.
                Err(_) => thread::sleep(TICK),
            }
            if last_check.elapsed() >= TICK {
                last_check = Instant::now();
                self.detach_idle(&mut answered);
            }
        }
    }

    /// Answers a request, which the socket's filter has found valid.
    fn respond(&mut self, request: &[u8; MESSAGE_BYTES], arrival: &Arrival) {
        let interface = arrival.to.map(|(_, interface)| interface);
        let is_attachable = interface.is_some_and(|interface| self.may_attach(interface));
        if let Some((earliest, _)) = arrival.between_ns {
            let stamper = match is_attachable {
                true => Stamper::SocketYet,
                false => Stamper::Socket,
            };
            self.answer(request, arrival, stamper, earliest);
        }
        if let Some(interface) = interface.filter(|_| is_attachable) {
            self.attach(interface);
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
        // A reply that cannot be sent counts as lost.
        let _ = self.socket.reply(&reply, arrival);
    }

    /// Whether the next request may find a program at the device.
    fn may_attach(&self, interface: u32) -> bool {
        let is_excluded = !self.allowed.is_empty() && !self.allowed.contains(&interface);
        if is_excluded || self.mode == ClockMode::Socket {
            return false;
        }
        match self.attached.get(&interface) {
            None => next_hop::device(interface).is_ok(),
            Some(attachment) => attachment.lease.is_some(),
        }
    }

    /// Attaches the program to a device, or keeps it there for longer.
    fn attach(&mut self, interface: u32) {
        if let Some(attachment) = self.attached.get_mut(&interface) {
            attachment.until = Instant::now() + IDLE;
            return;
        }
        let Ok(device) = next_hop::device(interface) else {
            return;
        };
        let Ok(mode) = self.mode.at(interface, &device) else {
            return;
        };
        let leased = self.program.lease(interface, mode);
        // Attaching may have taken longer than IDLE.
        let now = Instant::now();
        let attachment = match leased {
            Ok(lease) => {
                self.record(interface, Ok(lease.mode()));
                Attachment { lease: Some(lease), until: now + IDLE }
            }
            Err(error) => {
                self.record(interface, Err(devices::refusal(interface, &error)));
                Attachment { lease: None, until: now + REFUSED }
            }
        };
        self.attached.insert(interface, attachment);
    }

    fn attach_native(&mut self, interface: u32) {
        let device = next_hop::device(interface);
        if device.is_ok_and(|device| self.mode.at(interface, &device) == Ok(Mode::Native)) {
            self.attach(interface);
        }
    }

    /// Detaches programs that were idle for a while, unless the driver runs them. `answered` is the number of requests
    /// that XDP had answered at the last call.
    fn detach_idle(&mut self, answered: &mut u64) {
        let now = Instant::now();
        let answered_now = read_counters(&self.counters).map_or(0, |counters| counters.answered_xdp);
        let is_used = answered_now != *answered;
        *answered = answered_now;
        self.attached.retain(|_, attachment| {
            let mode = attachment.lease.as_ref().map(devices::Lease::mode);
            if mode.is_some() && is_used {
                attachment.until = now + IDLE;
            }
            mode == Some(Mode::Native) || attachment.until > now
        });
    }

    fn record(&self, interface: u32, mode: Result<Mode, String>) {
        let devices = self.shared.devices.lock();
        let mut devices = devices.unwrap_or_else(PoisonError::into_inner);
        devices.insert(interface, mode);
    }
}

fn read_counters(map: &MapHandle) -> Result<Counters, Error> {
    let cpus: Vec<abi::dwell_sync_counters> = read_cpus(map, "counters", 0)?;
    Ok(Counters::sum(cpus.iter()))
}
