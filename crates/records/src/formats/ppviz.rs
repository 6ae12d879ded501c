//! The line format of pping that its viewer ppviz reads.
//!
//! Its authority is `ppLine()` in pollere/ppviz `web/ppviz.js`: a line is split
//! at single spaces, must have four or seven fields, and is
//!
//! ```text
//! time rtt min [FBytes DBytes PBytes] flow
//! 1623420121.483727575 0.005298909 0.005298909 10.11.1.1:5201+10.11.1.2:59532
//! ```
//!
//! | field | meaning (pollere/pping `pping.cpp`, `-m`) | here |
//! |---|---|---|
//! | time | Unix seconds at which the answer passed | nanoseconds, as ePPing writes |
//! | rtt | seconds from the packet to its answer | `rtt_ns` |
//! | min | the flow's least so far, seconds | `min_rtt_ns` |
//! | FBytes, DBytes | bytes towards the answering host that had passed up to the stamped packet, and up to the one stamped before | not known: a flow's bytes are counted over both directions |
//! | PBytes | bytes of the answering host since its last line | not known |
//! | flow | `src:port+dst:port` of the packet that brought the answer | `dst` + `src` of the sample |
//!
//! The three byte counts are left out together, as ePPing (xdp-project/bpf-examples
//! `pping/pping.c`, `--format ppviz`) does and ppviz allows. In place of ports,
//! ICMP has its identifier on both sides; that too is ePPing's way. IPv6
//! addresses have no brackets.
//!
//! A line has no room for the method. Whole loops of spin bits
//! (`quic-spin-loop`) would be drawn as if the way to one host took so long, so
//! they are left out.

use std::io::Write;

use dwell_engine::measure::{Endpoint, Method};

use super::Format;
use crate::{Record, Source};

/// See the module's head in the source: time, round trip, least so far, flow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ppviz;

impl Format for Ppviz {
    fn write(&mut self, record: &Record<'_>, source: &Source, out: &mut Vec<u8>) {
        let Record::Sample(sample) = record else {
            return;
        };
        if sample.method == Method::QuicSpinLoop {
            return;
        }
        let time = source.clock.unix_ns(sample.time_ns);
        if time < 0 {
            out.push(b'-');
        }
        seconds(time.unsigned_abs(), out);
        out.push(b' ');
        seconds(sample.rtt_ns.into(), out);
        out.push(b' ');
        seconds(sample.min_rtt_ns.into(), out);
        out.push(b' ');
        end(&sample.dst, out);
        out.push(b'+');
        end(&sample.src, out);
        out.push(b'\n');
    }
}

fn seconds(ns: u128, out: &mut Vec<u8>) {
    let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
    write!(out, "{whole}.{part:09}").expect("a Vec takes all");
}

fn end(end: &Endpoint, out: &mut Vec<u8>) {
    write!(out, "{}:{}", end.address, end.port).expect("a Vec takes all");
}

#[cfg(test)]
mod tests {
    use dwell_engine::measure::Sample;

    use super::{super::samples, *};
    use crate::Clock;

    #[test]
    fn lines_are_epping_s() {
        let mut out = Vec::new();
        for sample in samples::all() {
            Ppviz.write(&Record::Sample(&sample), &samples::source(), &mut out);
        }
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @"
        1795237800.123456789 0.001234567 0.001100000 198.51.100.7:443+192.0.2.1:44321
        1795237801.000000000 0.000456000 0.000456000 2001:db8:0:1::443:443+2001:db8::1:50000
        1795237802.000000001 0.000000789 0.000000000 203.0.113.255:17+192.0.2.1:17
        1795241399.999999999 12.345678901 0.000999999 fe80::2:65535+fe80::1:65535
        1795237800.123456789 0.001234567 0.001100000 198.51.100.7:443+192.0.2.1:44321
        ");
    }

    #[test]
    fn ppviz_takes_each_line_apart() {
        for sample in samples::all() {
            let mut out = Vec::new();
            Ppviz.write(&Record::Sample(&sample), &samples::source(), &mut out);
            if sample.method == Method::QuicSpinLoop {
                assert!(out.is_empty());
                continue;
            }
            let line = String::from_utf8(out).unwrap();
            let fields: Vec<_> = line.strip_suffix('\n').unwrap().split(' ').collect();
            assert_eq!(fields.len(), 4);
            let rtt: f64 = fields[1].parse().unwrap();
            assert!((rtt * 1e9 - sample.rtt_ns as f64).abs() < 1.0);
            // The side that was measured comes first.
            let (measured, other) = fields[3].split_once('+').unwrap();
            assert!(measured.starts_with(&sample.dst.address.to_string()));
            assert!(other.ends_with(&format!(":{}", sample.src.port)));
        }
    }

    #[test]
    fn times_before_1970_keep_their_sign() {
        let source = Source { clock: Clock::with_offset(-1_500_000_000), ..Source::default() };
        let mut out = Vec::new();
        let sample = Sample { time_ns: 0, ..samples::tcp4() };
        Ppviz.write(&Record::Sample(&sample), &source, &mut out);
        assert!(out.starts_with(b"-1.500000000 0.001234567 "));
    }
}
