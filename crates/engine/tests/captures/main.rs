//! Captures from elsewhere against what other programs measured in them.
mod support;

use dwell_engine::measure::Method;
use std::collections::BTreeMap;
use support::*;

#[test]
fn explore() {
    for i in 1..=14 {
        let c = capture(&format!("A{i:02}")).unwrap();
        println!("== A{i:02}");
        for methods in [
            vec![Method::TcpTimestamp],
            vec![Method::TcpSeq],
            vec![Method::Icmp, Method::Icmpv6, Method::Dns],
            vec![Method::QuicSpin],
            vec![Method::QuicSpinLoop],
            vec![Method::QuicHandshake],
        ] {
            let r = replay(&only(&methods), &packets(&c.path));
            let mut by: BTreeMap<String, Vec<_>> = BTreeMap::new();
            for s in &r.samples {
                by.entry(format!("{} {} {}", s.method, s.src, s.dst))
                    .or_default()
                    .push(s);
            }
            if by.len() > 12 {
                println!(
                    "{methods:?} {} keys, all {}",
                    by.len(),
                    Stats::of(r.samples.iter())
                );
            } else {
                for (k, v) in &by {
                    println!("{k}: {}", Stats::of(v.iter().copied()));
                }
            }
            if methods[0] == Method::QuicSpin || methods[0] == Method::QuicSpinLoop {
                for s in &r.samples {
                    println!("   {} {} {}", s.time_ns, s.dst, s.rtt_ns as f64 / 1e6);
                }
                println!("{:?}", r.counters);
            }
        }
    }
}
