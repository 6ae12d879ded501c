//! Clocks compared between network namespaces, which share one: the truth is 0.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use dwell_engine::{
    clock::{Clock, Counters, Exchange, Experiment, Fit, Key, Session, best, request},
    rtt,
};
use dwell_probes::{
    Hook, Interface,
    clock::{ClockMode, Method, Mode, Prober, Reflector, ReflectorOptions, Round, Station, driver_obstacle},
};
use dwell_socket::clock::monotonic_ns;
use dwell_testbed::{Namespace, harness::eventually, skip::lacks_root};

const AGENT: [&str; 2] = ["10.79.0.2", "fd79::2"];
const COLLECTOR: [&str; 2] = ["10.79.0.1", "fd79::1"];

/// A collector on the left, an agent on the right.
struct Pair {
    left: Namespace,
    right: Namespace,
}

impl Pair {
    fn start(name: &str) -> Pair {
        let pair = Pair {
            left: Namespace::create(&format!("{name}-left")).unwrap(),
            right: Namespace::create(&format!("{name}-right")).unwrap(),
        };
        let there = pair.right.name();
        run(&pair.left, &format!("ip link add left0 type veth peer name right0 netns {there}"));
        for (namespace, device, addresses) in [(&pair.left, "left0", COLLECTOR), (&pair.right, "right0", AGENT)] {
            run(namespace, &format!("ip addr add {}/24 dev {device}", addresses[0]));
            run(namespace, &format!("ip addr add {}/64 dev {device} nodad", addresses[1]));
            run(namespace, &format!("ip link set {device} up"));
        }
        pair
    }

    fn reflector(&self, experiment: Experiment) -> Reflector {
        let options = ReflectorOptions { experiment, ..ReflectorOptions::default() };
        let attach = || Reflector::attach(&options).unwrap();
        self.right.enter(attach).unwrap()
    }

    /// Returns a prober with a session that the reflector admits.
    fn prober(&self, reflector: &Reflector, family: usize) -> Prober {
        let session = session(1 + family as u64);
        reflector.admit(&session, ip(COLLECTOR[family])).unwrap();
        let agent = SocketAddr::new(ip(AGENT[family]), reflector.port());
        let make = || Station::open(4, ClockMode::Generic).prober(session, None, agent).unwrap();
        self.left.enter(make).unwrap()
    }

    fn round(&self, prober: &mut Prober, exchanges: u32) -> Round {
        let round = || prober.round(exchanges).unwrap();
        self.left.enter(round).unwrap()
    }
}

fn run(namespace: &Namespace, command: &str) -> String {
    let mut words = command.split_whitespace();
    let mut command = namespace.command(words.next().unwrap());
    let output = command.args(words).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until IPv6 works: it takes a second to find neighbours at devices that have just come up.
fn wait_for(namespace: &Namespace, agent: &str) {
    run(namespace, &format!("ping -q -c 1 -w 20 {agent}"));
}

/// Ends a thread's loop, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn session(id: u64) -> Session {
    Session { id, key: Key([id as u8; 16]) }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Asserts that each exchange estimates the true offset within half its round trip.
fn holds(round: &Round, truth_ns: i64) {
    for exchange in &round.exchanges {
        let half = exchange.round_trip_ns().unwrap() / 2 + 1;
        let error = exchange.offset_ns() - truth_ns;
        assert!(error.unsigned_abs() <= half, "{error} of {half}: {exchange:?}");
    }
}

#[test]
fn root_clocks_of_two_namespaces_are_one() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-one");
    wait_for(&pair.left, AGENT[1]);
    let reflector = pair.reflector(Experiment::default());
    let mut answered = 0;
    for family in 0..2 {
        let mut prober = pair.prober(&reflector, family);
        for _ in 0..5 {
            let round = pair.round(&mut prober, 20);
            assert_eq!(round.method, Method::Xdp, "{round:?}");
            assert_eq!(round.exchanges.len() + round.lost as usize, 20);
            holds(&round, 0);
            answered += round.exchanges.len() as u64;
        }
        let round = pair.left.enter(|| prober.round_by_socket(20).unwrap());
        let round = round.unwrap();
        assert_eq!((round.method, round.lost), (Method::Socket, 0));
        holds(&round, 0);
    }
    let counters = reflector.counters().unwrap();
    assert!(counters.answered_xdp >= answered, "{counters:?}");
    assert_eq!(counters.refused(), 0, "{counters:?}");
    // A veth gets no program in its driver, and none for longer than it takes.
    assert!(reflector.devices().iter().all(|device| device.mode == Ok(Mode::Generic)));
    eventually("nothing is attached", || {
        [&pair.left, &pair.right].iter().all(|end| !run(end, "ip -d link").contains("xdp"))
    });
}

/// Only on demand is a driver given a program, which may reset its device.
#[test]
fn root_a_driver_gets_a_program_on_demand_and_never_beside_a_default_route_unless_forced() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-mode");
    let modes = |mode| {
        let options = ReflectorOptions { mode, ..ReflectorOptions::default() };
        let attach = || Reflector::attach(&options).unwrap();
        let reflector = pair.right.enter(attach).unwrap();
        // A veth whose peer has no program loses what its driver's program sends, and so the socket answers.
        let round = pair.round(&mut pair.prober(&reflector, 0), 10);
        holds(&round, 0);
        let devices: Vec<_> = reflector.devices().into_iter().map(|device| device.mode.unwrap()).collect();
        // Another program cannot come while this one is there.
        drop(reflector);
        eventually("nothing is attached", || !run(&pair.right, "ip -d link").contains("xdp"));
        devices
    };
    let obstacle = || pair.right.enter(|| driver_obstacle(ip(COLLECTOR[0]))).unwrap();
    assert_eq!(modes(ClockMode::Socket), []);
    assert_eq!(modes(ClockMode::default()), [Mode::Generic]);
    assert_eq!(modes(ClockMode::Driver), [Mode::Native]);
    assert_eq!(obstacle(), None);
    run(&pair.right, &format!("ip route add default via {}", COLLECTOR[0]));
    assert_eq!(modes(ClockMode::Driver), [Mode::Generic]);
    assert_eq!(obstacle().as_deref(), Some("'right0' carries a default route"));
    assert_eq!(modes(ClockMode::DriverForced), [Mode::Native]);
}

#[test]
fn root_a_way_over_a_router_is_found() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-router");
    let far = Namespace::create("clock-router-far").unwrap();
    let there = far.name();
    run(&pair.right, &format!("ip link add right1 type veth peer name far0 netns {there}"));
    for (namespace, device, last) in [(&pair.right, "right1", 1), (&far, "far0", 2)] {
        run(namespace, &format!("ip addr add 10.80.0.{last}/24 dev {device}"));
        run(namespace, &format!("ip addr add fd80::{last}/64 dev {device} nodad"));
        run(namespace, &format!("ip link set {device} up"));
    }
    run(&pair.right, "sysctl -qw net.ipv4.ip_forward=1");
    run(&pair.right, "sysctl -qw net.ipv6.conf.all.forwarding=1");
    for (namespace, own, other) in [(&pair.left, AGENT, "80"), (&far, ["10.80.0.1", "fd80::1"], "79")] {
        run(namespace, &format!("ip route add 10.{other}.0.0/24 via {}", own[0]));
        run(namespace, &format!("ip route add fd{other}::/64 via {}", own[1]));
    }
    let attach = || Reflector::attach(&ReflectorOptions::default()).unwrap();
    let reflector = far.enter(attach).unwrap();
    for (family, agent) in ["10.80.0.2", "fd80::2"].into_iter().enumerate() {
        let session = session(family as u64);
        reflector.admit(&session, ip(COLLECTOR[family])).unwrap();
        wait_for(&pair.left, agent);
        let agent = SocketAddr::new(ip(agent), reflector.port());
        let round = || Station::open(1, ClockMode::Generic).prober(session, None, agent).unwrap().round(10).unwrap();
        let round = pair.left.enter(round).unwrap();
        assert_eq!(round.method, Method::Xdp, "{round:?}");
        holds(&round, 0);
    }
}

#[test]
fn root_probers_share_the_programs() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-share");
    let reflector = pair.reflector(Experiment::default());
    let agent = SocketAddr::new(ip(AGENT[0]), reflector.port());
    let station = Station::open(8, ClockMode::Generic);
    thread::scope(|scope| {
        for number in 0..8 {
            let session = session(number);
            reflector.admit(&session, ip(COLLECTOR[0])).unwrap();
            let (pair, station) = (&pair, station.clone());
            scope.spawn(move || {
                let make = || station.prober(session, None, agent).unwrap();
                let mut prober = pair.left.enter(make).unwrap();
                for _ in 0..5 {
                    let round = pair.round(&mut prober, 10);
                    assert_eq!(round.method, Method::Xdp, "{round:?}");
                    holds(&round, 0);
                }
            });
        }
    });
    assert_eq!(reflector.counters().unwrap().refused(), 0);
}

#[test]
fn root_more_agents_than_xdp_has_room_for_are_asked_by_sockets() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-more");
    let reflector = pair.reflector(Experiment::default());
    let agent = SocketAddr::new(ip(AGENT[0]), reflector.port());
    let station = Station::open(2, ClockMode::Generic);
    let make = |number| {
        reflector.admit(&session(number), ip(COLLECTOR[0])).unwrap();
        pair.left.enter(|| station.prober(session(number), None, agent).unwrap()).unwrap()
    };
    let mut probers: Vec<_> = (0..3).map(make).collect();
    for (prober, method) in probers.iter_mut().zip([Method::Xdp, Method::Xdp, Method::Socket]) {
        let round = pair.round(prober, 10);
        assert_eq!(round.method, method, "{round:?}");
        assert_eq!(round.reason.is_some_and(|reason| reason.contains("2 others")), method == Method::Socket);
        assert_eq!(round.exchanges.len(), 10);
    }
    // One leaves, and its room is the other's with the next round.
    probers.remove(0);
    let round = pair.round(&mut probers[1], 10);
    assert_eq!(round.method, Method::Xdp, "{round:?}");
    holds(&round, 0);
}

#[test]
fn root_an_agent_on_the_same_host_is_asked_by_sockets() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-same");
    let reflector = pair.reflector(Experiment::default());
    reflector.admit(&session(1), ip(AGENT[0])).unwrap();
    let agent = SocketAddr::new(ip(AGENT[0]), reflector.port());
    let round = || Station::open(1, ClockMode::Generic).prober(session(1), None, agent).unwrap().round(5).unwrap();
    let round = pair.right.enter(round).unwrap();
    assert_eq!(round.method, Method::Socket);
    assert!(round.reason.as_ref().unwrap().contains("of this host"), "{round:?}");
    assert_eq!(round.exchanges.len(), 5);
    holds(&round, 0);
}

#[test]
fn root_offset_and_drift_that_are_put_in_are_found() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-drift");
    let experiment = Experiment { since_ns: monotonic_ns(), offset_ns: -3_700_000_000, drift_ppb: 80_000 };
    let reflector = pair.reflector(experiment);
    let mut prober = pair.prober(&reflector, 0);
    let mut clock = Clock::default();
    for number in 0..8 {
        let round = pair.round(&mut prober, 20);
        assert_eq!(round.method, Method::Xdp, "{round:?}");
        let fit = clock.add(&round.exchanges);
        assert_eq!(fit == Fit::First, number == 0, "{fit:?}");
        assert_eq!(fit == Fit::Agrees, number > 0, "{fit:?}");
        // The time between a round and the next is measured by what came before.
        let now_ns = monotonic_ns();
        let converted = clock.convert(experiment.claimed(now_ns)).unwrap();
        let error = converted.ns.abs_diff(now_ns);
        assert!(error <= converted.bound_ns, "{error} of {converted:?}");
        thread::sleep(Duration::from_millis(200));
    }
    let drift = clock.drift().unwrap();
    assert!((drift.ppb - 80_000.0).abs() <= drift.bound_ppb, "{drift:?}");
    assert!(drift.bound_ppb < 80_000.0, "{drift:?}");
}

/// Checks how many of its requests are refused, by reason.
fn refused(reflector: &Reflector, wanted: Counters) {
    eventually(&format!("{wanted:?}"), || {
        let counters = reflector.counters().unwrap();
        Counters { answered_xdp: 0, answered_socket: 0, ..counters } == wanted
    });
}

#[test]
fn root_strangers_are_refused_and_the_rest_goes_on() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-strange");
    wait_for(&pair.left, AGENT[1]);
    run(&pair.left, "ip addr add 10.79.0.3/24 dev left0");
    let reflector = pair.reflector(Experiment::default());
    let mut prober = pair.prober(&reflector, 0);
    assert!(reflector.admit(&session(1), ip(COLLECTOR[0])).is_err());

    let agent = SocketAddr::new(ip(AGENT[0]), reflector.port());
    let socket = |from: &str| {
        let bind = || UdpSocket::bind((from, 0)).unwrap();
        let socket = pair.left.enter(bind).unwrap();
        socket.connect(agent).unwrap();
        socket
    };
    let (own, other) = (socket(COLLECTOR[0]), socket("10.79.0.3"));
    let awake = socket(COLLECTOR[0]);
    let known = session(1);
    let wrong_key = Session { key: Key([0xaa; 16]), ..known.clone() };
    // At the agent's socket, and while the program is at its device.
    let mut wanted = Counters::default();
    let mut sequence = 1_000_000;
    for _ in 0..2 {
        sequence += 1;
        let good = request(&known, sequence);
        own.send(&good).unwrap();
        own.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut reply = [0; 64];
        let bytes = own.recv(&mut reply).unwrap();
        assert_eq!(bytes, good.len(), "a reply is no larger");
        assert_eq!(reply[8..24], good[8..24], "it is not that to a stranger");
        own.send(&good).unwrap();
        wanted.replayed += 1;
        own.send(&request(&wrong_key, 9_000_000)).unwrap();
        wanted.forged += 1;
        own.send(&request(&session(77), 1)).unwrap();
        wanted.unknown += 1;
        other.send(&request(&known, 9_000_000)).unwrap();
        wanted.stranger += 1;
        for strange in [&good[..47], &[&good[..], &[0]].concat(), b"", &[0xff; 48]] {
            own.send(strange).unwrap();
            wanted.malformed += 1;
        }
        refused(&reflector, wanted);
        eventually("the program is at the device", || {
            sequence += 1;
            awake.send(&request(&known, sequence)).unwrap();
            run(&pair.right, "ip -d link").contains("xdp")
        });
    }
    for socket in [&own, &other] {
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 64]).is_err(), "a stranger is not answered");
        socket.set_nonblocking(false).unwrap();
    }

    // The sequences above are not the prober's to use.
    let round = pair.round(&mut prober, 10);
    assert!(round.exchanges.is_empty(), "{round:?}");
    let mut prober = pair.prober(&reflector, 1);
    let stop = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let ends = Ends(&stop);
        let flood = scope.spawn(|| {
            let forged = request(&wrong_key, 9_000_000);
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                sent += u64::from(own.send(&forged).is_ok());
                sent += u64::from(other.send(&[0xff; 48]).is_ok());
            }
            sent
        });
        for _ in 0..3 {
            let round = pair.round(&mut prober, 20);
            assert_eq!(round.method, Method::Xdp, "{round:?}");
            holds(&round, 0);
        }
        drop(ends);
        flood.join().unwrap()
    });
    let refused = reflector.counters().unwrap().refused();
    // Queues may have dropped some before they were looked at.
    assert!(refused > 1_000 && refused <= sent + 100, "{refused} of {sent}");
}

/// Keeps some 300 ms of packets in a queue of 10 Mbit/s, while `body` runs.
fn while_queued<T>(pair: &Pair, body: impl FnOnce() -> T) -> T {
    const BYTES_PER_SECOND: f64 = 10e6 / 8.0;
    run(&pair.left, "tc qdisc add dev left0 root tbf rate 10mbit burst 10kb limit 1mb");
    let bind = || UdpSocket::bind((COLLECTOR[0], 0)).unwrap();
    let socket = pair.left.enter(bind).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&stop);
        scope.spawn(|| {
            let (begun, mut sent) = (Instant::now(), 0.0);
            while !stop.load(Ordering::Relaxed) {
                let due = (begun.elapsed().as_secs_f64() + 0.3) * BYTES_PER_SECOND;
                while sent < due {
                    socket.send_to(&[0; 1000], (AGENT[0], 9)).unwrap();
                    sent += 1042.0;
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        thread::sleep(Duration::from_millis(20));
        body()
    })
}

fn least_round_trip_ns(round: &Round) -> u64 {
    best(&round.exchanges).and_then(Exchange::round_trip_ns).unwrap()
}

#[test]
fn root_what_queues_at_the_sender_is_passed_by() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-queue");
    let reflector = pair.reflector(Experiment::default());
    let mut prober = pair.prober(&reflector, 0);
    let (by_xdp, by_socket) = while_queued(&pair, || {
        let by_xdp = pair.round(&mut prober, 50);
        let by_socket = || prober.round_by_socket(5).unwrap();
        (by_xdp, pair.left.enter(by_socket).unwrap())
    });
    assert_eq!(by_xdp.method, Method::Xdp, "{by_xdp:?}");
    holds(&by_xdp, 0);
    holds(&by_socket, 0);
    // All that was queued, less what the sender was late; the other waits for nothing but the machine.
    let (xdp, socket) = (least_round_trip_ns(&by_xdp), least_round_trip_ns(&by_socket));
    assert!(socket > 10_000_000, "{socket}");
    assert!(xdp < socket / 4, "{xdp} and {socket}");
}

/// Attaches another program at XDP of a device.
fn take(device: &str) -> dwell_probes::rtt::Probe {
    let mut other = rtt::Config::default();
    other.filter.clauses.clear();
    let mut probe = dwell_probes::rtt::Probe::load(&dwell_probes::rtt::Options {
        ingress: Hook::Xdp,
        ..dwell_probes::rtt::Options::new(other)
    })
    .unwrap();
    // The reflector's program stays for a while after the last request.
    let interface = Interface::find(device).unwrap();
    let is_attached = (0..50).any(|_| {
        probe.attach(&interface).is_ok() || {
            thread::sleep(Duration::from_millis(100));
            false
        }
    });
    assert!(is_attached, "{device} is still occupied");
    probe
}

#[test]
fn root_an_agent_whose_device_is_taken_leaves_the_room_of_xdp_to_others() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-room");
    let reflector = pair.reflector(Experiment::default());
    let agent = SocketAddr::new(ip(AGENT[0]), reflector.port());
    let station = Station::open(1, ClockMode::Generic);
    let [mut one, mut other] = [1, 2].map(|number| {
        reflector.admit(&session(number), ip(COLLECTOR[0])).unwrap();
        pair.left.enter(|| station.prober(session(number), None, agent).unwrap()).unwrap()
    });
    pair.left
        .enter(|| {
            let _other = take("left0");
            assert_eq!(one.round(5).unwrap().reason.unwrap(), "another XDP program occupies 'left0'");
        })
        .unwrap();
    let round = pair.round(&mut other, 10);
    assert_eq!(round.method, Method::Xdp, "{round:?}");
    holds(&round, 0);
}

#[test]
fn root_sockets_do_where_another_xdp_program_is() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-taken");
    let reflector = pair.reflector(Experiment::default());
    let mut prober = pair.prober(&reflector, 0);
    let other = pair.left.enter(|| {
        let other = take("left0");
        let round = prober.round(5).unwrap();
        assert_eq!(round.method, Method::Socket);
        assert_eq!(round.reason.unwrap(), "another XDP program occupies 'left0'");
        assert_eq!(round.exchanges.len(), 5);
        drop(other);
    });
    other.unwrap();
    pair.right
        .enter(|| {
            let _other = take("right0");
            let round = pair.round(&mut prober, 5);
            assert_eq!(round.method, Method::Socket, "{round:?}");
            assert_eq!(round.exchanges.len(), 5);
            holds(&round, 0);
            let devices = reflector.devices();
            let mode = Err("another XDP program occupies 'right0'".to_owned());
            assert_eq!(devices[0].mode, mode);
        })
        .unwrap();
}

#[test]
fn root_sockets_do_without_a_loopback() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-lo");
    let reflector = pair.reflector(Experiment::default());
    let mut prober = pair.prober(&reflector, 0);
    run(&pair.left, "ip link set lo down");
    let round = pair.round(&mut prober, 5);
    assert_eq!(round.method, Method::Socket, "{round:?}");
    assert!(round.reason.is_some(), "{round:?}");
    assert_eq!(round.exchanges.len(), 5);
    holds(&round, 0);
}

#[test]
fn root_an_agent_that_is_gone_is_no_error() {
    if lacks_root() {
        return;
    }
    let pair = Pair::start("clock-gone");
    let reflector = pair.reflector(Experiment::default());
    let mut prober = pair.prober(&reflector, 0);
    assert!(!pair.round(&mut prober, 5).exchanges.is_empty());
    reflector.dismiss(1);
    let round = pair.round(&mut prober, 5);
    assert_eq!((round.exchanges.len(), round.lost), (0, 1));
    assert!(reflector.counters().unwrap().unknown > 0);
    drop(reflector);
    assert!(pair.round(&mut prober, 5).exchanges.is_empty());
}
