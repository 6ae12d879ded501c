//! quic-spin over many connections.

use dwell_engine::{
    measure::{Method, Sample},
    rtt::Config,
};

use crate::{
    quic_path::{Connection, Dice, Path, Spin, Traffic, seen},
    wire::{START_NS, run, small},
};

const TRAFFICS: [Traffic; 6] = [
    Traffic::Requests { packets: 1, think_us: 100 },
    Traffic::Requests { packets: 1, think_us: 30_000 },
    Traffic::Requests { packets: 12, think_us: 5_000 },
    Traffic::Download { gap_us: 700 },
    Traffic::Upload { gap_us: 700 },
    Traffic::Call { gap_us: 20_000 },
];
const WAYS_US: [(u64, u64); 3] = [(10_000, 2_500), (50, 12_000), (12_000, 50)];

#[test]
fn explore() {
    for (client, server) in [(Spin::Genuine, Spin::Genuine), (Spin::Random, Spin::Random), (Spin::Random, Spin::Genuine), (Spin::Genuine, Spin::Random), (Spin::Random, Spin::Constant(false)), (Spin::Genuine, Spin::Constant(true)), (Spin::Constant(false), Spin::Random)] {
        for traffic in TRAFFICS {
            for (to_client_us, to_server_us) in WAYS_US {
              for late_one_in in [0, 30] {
                let n = 300;
                let (mut hit, mut samples, mut edges, mut wrong) = (0, 0, 0, 0);
                for seed in 0..n {
                    let mut dice = Dice(seed);
                    let connection = Connection { client, server, traffic, path: Path { to_client_us, to_server_us, late_one_in }, duration_ms: 2000 };
                    let frames = seen(&connection, &mut dice);
                    let config = Config { methods: vec![Method::QuicSpin, Method::QuicSpinLoop, Method::QuicHandshake], ..small() };
                    let run = run(&config, frames.clone());
                    let spins: Vec<&Sample> = run.samples.iter().filter(|s| s.method == Method::QuicSpinLoop).collect();
                    hit += u64::from(!spins.is_empty());
                    samples += spins.len();
                    edges += frames.len();
                    let least = 2 * (to_client_us + to_server_us) * 1000;
                    wrong += spins.iter().filter(|s| s.rtt_ns < least * 8 / 10).count();
                }
                let _ = START_NS;
                println!("{client:?}/{server:?} {traffic:?} {to_client_us}+{to_server_us} late {late_one_in}: {hit}/{n} conns, {} loops each, {} packets each, {wrong} too short", samples as f64 / n as f64, edges as u64 / n);
              }
            }
        }
    }
}
