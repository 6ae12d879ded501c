//! quic-spin over many connections: genuine spin bits are measured, random ones are not.

use dwell_engine::{
    measure::{Method, Sample},
    rtt::{Config, Counter},
};

use crate::{
    quic_path::{Connection, Dice, Path, Spin, Traffic, seen},
    wire::{Frame, Run, Side, run, small},
};

const TRAFFICS: [Traffic; 6] = [
    Traffic::Requests { packets: 1, think_us: 100 },
    Traffic::Requests { packets: 1, think_us: 30_000 },
    Traffic::Requests { packets: 12, think_us: 5_000 },
    Traffic::Download { gap_us: 1_400 },
    Traffic::Upload { gap_us: 1_400 },
    Traffic::Call { gap_us: 20_000 },
];

/// A vantage point in the middle, next to the client, and next to the server.
const PATHS: [(u64, u64); 3] = [(10_000, 2_500), (50, 12_000), (12_000, 50)];

const CLOSE: Path = Path { to_client_us: 2_500, to_server_us: 2_500, late_one_in: 0 };
const GENUINE: Connection = Connection {
    client: Spin::Genuine,
    server: Spin::Genuine,
    traffic: Traffic::Requests { packets: 4, think_us: 100 },
    path: CLOSE,
    duration_ms: 3_000,
};

/// Runs each kind of traffic on each path, `times` each.
fn runs(client: Spin, server: Spin, late_one_in: u64, times: u64) -> Vec<(Connection, Run)> {
    let mut runs = Vec::new();
    for traffic in TRAFFICS {
        for (to_client_us, to_server_us) in PATHS {
            for _ in 0..times {
                let connection = Connection {
                    client,
                    server,
                    traffic,
                    path: Path { to_client_us, to_server_us, late_one_in },
                    duration_ms: 2_500,
                };
                let mut dice = Dice(runs.len() as u64);
                runs.push((connection, run(&small(), seen(&connection, &mut dice))));
            }
        }
    }
    runs
}

fn loops(run: &Run) -> impl Iterator<Item = &Sample> {
    let spin = |sample: &&Sample| sample.method == Method::QuicSpinLoop;
    run.samples.iter().filter(spin)
}

fn halves(run: &Run, to: Side) -> impl Iterator<Item = &Sample> {
    let port = if to == Side::Server { 443 } else { 50_000 };
    let spin = move |sample: &&Sample| sample.method == Method::QuicSpin && sample.dst.port == port;
    run.samples.iter().filter(spin)
}

/// Returns the number of connections with a spin sample.
fn measured(runs: &[(Connection, Run)]) -> usize {
    runs.iter().filter(|(_, run)| loops(run).next().is_some() || halves(run, Side::Client).next().is_some()).count()
}

/// Returns the number of loops that must be measured. In a call next to one of the hosts there is about one packet per
/// loop, which may never be distinguishable from chance.
fn enough(connection: &Connection) -> usize {
    match connection.traffic {
        Traffic::Call { .. } => 0,
        _ => 20,
    }
}

#[test]
fn genuine_spin_is_measured_whatever_the_traffic_and_never_too_short() {
    for (connection, run) in runs(Spin::Genuine, Spin::Genuine, 0, 3) {
        let Path { to_client_us, to_server_us, .. } = connection.path;
        // The clock of a loop starts anew with the jitter of 20 µs in each direction.
        let jitter_ns = 40_000;
        let least = |us: u64| (2 * us * 1000).saturating_sub(jitter_ns);
        assert!(loops(&run).count() >= enough(&connection));
        let all = |samples: Vec<&Sample>, least_ns: u64| {
            assert!(samples.iter().all(|sample| sample.rtt_ns >= least_ns));
            samples.iter().map(|sample| sample.rtt_ns).min()
        };
        let (to_client, to_server) = (least(to_client_us), least(to_server_us));
        all(halves(&run, Side::Client).collect(), to_client);
        let server = all(halves(&run, Side::Server).collect(), to_server);
        all(loops(&run).collect(), least(to_client_us + to_server_us));
        // If the server answers at once, the minimum is that of the path.
        if matches!(connection.traffic, Traffic::Requests { packets: 1, .. }) {
            assert!(server.unwrap() < 2 * to_server_us * 1000 + 200_000);
        }
    }
}

#[test]
fn a_slow_handshake_hides_no_edge() {
    for path in [Path { to_client_us: 500, to_server_us: 4_500, late_one_in: 0 }, CLOSE] {
        let connection = Connection { path, ..GENUINE };
        let frames = seen(&connection, &mut Dice(1));
        let alone = run(&Config { methods: vec![Method::QuicSpin], ..small() }, frames.clone()).samples;
        assert!(alone.len() > 400, "{}", alone.len());
        for slower_ms in [0, 10, 90, 190, 490, 990, 10_000] {
            let mut frames = frames.clone();
            for frame in &mut frames[1..] {
                frame.time_ns += slower_ms * 1_000_000;
            }
            let run = run(&small(), frames);
            let with = run.samples.iter().filter(|sample| sample.method == Method::QuicSpin);
            let rtts = |sample: &Sample| (sample.dst, sample.rtt_ns);
            let same = with.map(rtts).eq(alone.iter().map(rtts));
            assert!(same, "handshake slower by {slower_ms} ms: {} samples", run.samples.len());
        }
    }
}

#[test]
fn a_path_that_becomes_much_shorter_is_not_silenced() {
    for (long_us, packets) in [(50_000, 1), (50_000, 12), (200_000, 1), (200_000, 12)] {
        let traffic = Traffic::Requests { packets, think_us: 100 };
        let long = Path { to_client_us: long_us, to_server_us: long_us, late_one_in: 0 };
        let before = Connection { traffic, path: long, duration_ms: 6_000, ..GENUINE };
        let mut frames = seen(&before, &mut Dice(1));
        let change_ns = frames.last().unwrap().time_ns + 1_000_000;
        let after = seen(&Connection { traffic, path: CLOSE, duration_ms: 3_000, ..GENUINE }, &mut Dice(2));
        let start_ns = after[3].time_ns;
        frames.extend(
            after.into_iter().skip(3).map(|frame| Frame { time_ns: frame.time_ns - start_ns + change_ns, ..frame }),
        );
        let run = run(&small(), frames);
        let after: Vec<_> = run.samples.iter().filter(|sample| sample.time_ns > change_ns).collect();
        assert!(after.len() > 500, "{long_us} µs, {packets} packets: {} samples", after.len());
        // No round trip is shorter than the way, but for the jitter.
        let least_ns = 2 * CLOSE.to_client_us * 1000 - 40_000;
        assert_eq!(after.iter().filter(|sample| sample.rtt_ns < least_ns).count(), 0);
    }
}

#[test]
fn late_packets_are_rejected_and_counted() {
    let (mut early, mut given, mut short) = (0, 0, 0);
    for (connection, run) in runs(Spin::Genuine, Spin::Genuine, 8, 5) {
        let path = connection.path;
        let least_ns = 2 * (path.to_client_us + path.to_server_us) * 1000 * 8 / 10;
        early += run.count(Counter::SpinEarly);
        given += loops(&run).count();
        short += loops(&run).filter(|sample| sample.rtt_ns < least_ns).count();
        assert!(loops(&run).count() >= enough(&connection) / 2);
    }
    assert!(early > 50, "{early}");
    assert!(short * 1000 <= given, "{short} of {given}");
}

#[test]
fn a_constant_on_either_side_gives_nothing() {
    let others = [Spin::Genuine, Spin::Random, Spin::Constant(true)];
    for constant in [Spin::Constant(false), Spin::Constant(true)] {
        for other in others {
            assert_eq!(measured(&runs(constant, other, 30, 2)), 0);
            assert_eq!(measured(&runs(other, constant, 30, 2)), 0);
        }
    }
}

#[test]
fn chance_on_both_sides_gives_nothing() {
    assert_eq!(measured(&runs(Spin::Random, Spin::Random, 0, 25)), 0);
}

#[test]
fn chance_on_one_side_gives_a_sample_in_at_most_one_connection_of_a_hundred() {
    for (client, server) in [(Spin::Random, Spin::Genuine), (Spin::Genuine, Spin::Random)] {
        let runs = runs(client, server, 0, 25);
        let (measured, of) = (measured(&runs), runs.len());
        assert!(measured * 100 <= of, "{client:?} {server:?}: {measured} of {of}");
        let samples: usize = runs.iter().map(|(_, run)| loops(run).count()).sum();
        assert!(samples * 10 <= of, "{client:?} {server:?}: {samples} loops");
    }
}
