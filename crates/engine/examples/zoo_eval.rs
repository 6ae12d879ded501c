//! Prints the estimates of a one-way capture, a line per epoch.
#![allow(clippy::print_stdout, clippy::unwrap_used)]
use dwell_capture::Reader;
use dwell_engine::{
    observe::Observation,
    response::{Config, Record, Tracker, Watch, estimate},
};
fn main() {
    for file in std::env::args().skip(1) {
        let mut reader = Reader::open(std::path::Path::new(&file)).unwrap();
        let mut tracker = Tracker::new(&Watch::default());
        let config = Config::default();
        let emit = |r: Record| {
            let e = estimate(&config, &r.epoch);
            let mut ep = r.epoch.clone();
            ep.log = [0; 64];
            println!(
                "{{\"flow\":\"{}:{}-{}:{}\",\"start\":{},\"ns\":{},\"conf\":{:.3},\"method\":\"{}\",\"reason\":\"{}\",\"n\":{},\"debug\":\"{}\"}}",
                r.src.address,
                r.src.port,
                r.dst.address,
                r.dst.port,
                r.epoch.start_ns,
                e.response_ns.unwrap_or(0),
                e.confidence,
                e.method.name(),
                e.reason.map_or("", |x| x.name()),
                e.batches,
                format!("{ep:?}").split(", gap_log").next().unwrap().replace('"', "")
            );
        };
        let mut last = 0;
        while let Ok(Some(p)) = reader.next_packet() {
            last = p.time_ns;
            tracker.observe(
                &Observation {
                    time_ns: p.time_ns,
                    interface: p.interface,
                    link: p.link.0,
                    data: p.data,
                    wire_len: p.wire_len,
                },
                emit,
            );
            tracker.sweep(p.time_ns, emit);
        }
        tracker.finish(last, emit);
    }
}
