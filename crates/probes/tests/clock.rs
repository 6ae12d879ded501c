//! Clocks compared between network namespaces, which share one: the truth is 0.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, SocketAddr};

use dwell_engine::clock::{Key, Session};
use dwell_lab::Namespace;
use dwell_probes::clock::{Method, Reflector, ReflectorOptions, Round, Station};
use nix::unistd::Uid;

const AGENT: [&str; 2] = ["10.79.0.2", "fd79::2"];
const COLLECTOR: [&str; 2] = ["10.79.0.1", "fd79::1"];

fn skipped() -> bool {
    let skipped = !Uid::effective().is_root();
    if skipped {
        eprintln!("skipped: it needs root");
    }
    skipped
}

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
        run(
            &pair.left,
            &format!("ip link add left0 type veth peer name right0 netns {there}"),
        );
        for (namespace, device, addresses) in [
            (&pair.left, "left0", COLLECTOR),
            (&pair.right, "right0", AGENT),
        ] {
            run(
                namespace,
                &format!("ip addr add {}/24 dev {device}", addresses[0]),
            );
            run(
                namespace,
                &format!("ip addr add {}/64 dev {device} nodad", addresses[1]),
            );
            run(namespace, &format!("ip link set {device} up"));
        }
        pair
    }

    fn reflector(&self, options: &ReflectorOptions) -> Reflector {
        let attach = || Reflector::attach(options).unwrap();
        self.right.enter(attach).unwrap()
    }
}

fn run(namespace: &Namespace, command: &str) {
    let mut words = command.split_whitespace();
    let mut command = namespace.command(words.next().unwrap());
    let output = command.args(words).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn session(id: u64) -> Session {
    Session {
        id,
        key: Key([id as u8; 16]),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The truth is within half the round trip of what each exchange says.
fn holds(round: &Round, truth_ns: i64) {
    for exchange in &round.exchanges {
        let half = exchange.round_trip_ns().unwrap() / 2 + 1;
        let error = exchange.offset_ns() - truth_ns;
        assert!(
            error.unsigned_abs() <= half,
            "{error} of {half}: {exchange:?}"
        );
    }
}

#[test]
fn root_clocks_of_two_namespaces_are_one() {
    if skipped() {
        return;
    }
    let pair = Pair::start("clock-one");
    let reflector = pair.reflector(&ReflectorOptions::default());
    for family in 0..2 {
        let session = session(1 + family as u64);
        reflector.admit(&session, ip(COLLECTOR[family])).unwrap();
        let agent = SocketAddr::new(ip(AGENT[family]), reflector.port());
        let round = pair
            .left
            .enter(|| {
                let mut prober = Station::open(4).prober(session, agent).unwrap();
                prober.round(20).unwrap()
            })
            .unwrap();
        assert_eq!(round.method, Method::Xdp, "{round:?}");
        assert_eq!(round.exchanges.len() + round.lost as usize, 20);
        assert!(round.exchanges.len() > 10, "{round:?}");
        holds(&round, 0);
    }
    let counters = reflector.counters().unwrap();
    assert!(counters.answered_xdp >= 20, "{counters:?}");
    assert_eq!(counters.refused(), 0, "{counters:?}");
}
