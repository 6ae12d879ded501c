//! What building a Maglev table costs: milliseconds a table of 65,537 entries, by
//! how many backends it has; best and median of a hundred.
#![allow(clippy::print_stdout)]

use std::{hint::black_box, time::Instant};

use dwell_engine::steer::maglev::{DEFAULT_SIZE, Member, table};

fn main() {
    for count in [2, 4, 10, 100, 1000, 10_000] {
        for (kind, spread) in [("equal", 0.0), ("unequal", 0.9)] {
            let members: Vec<Member> = (0..count)
                .map(|n| Member { id: n * 7919, weight: 1.0 - spread * (n as f64 / count as f64), real: n as u32 + 1 })
                .collect();
            let mut times: Vec<f64> = (0..100)
                .map(|_| {
                    let start = Instant::now();
                    black_box(table(DEFAULT_SIZE, black_box(&members)));
                    start.elapsed().as_secs_f64() * 1e3
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!("{count:6} {kind:8} best {:.3} median {:.3} ms", times[0], times[50]);
        }
    }
}
