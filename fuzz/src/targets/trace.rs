//! Traces of the simulator in CSV.

use std::{collections::BTreeSet, path::Path, sync::atomic::AtomicBool};

use dwell_engine::measure::Method;
use dwell_sim::{
    Job, Policy, Scenario, simulate,
    trace::{Flow, Trace, TraceError, read_csv},
};

/// Reads the input as a CSV file. Either the error names a position in the file, or a simulation serves all connections
/// and packets of the trace.
pub fn trace(bytes: &[u8]) -> BTreeSet<Method> {
    match read_csv(bytes, Path::new("fuzzed.csv"), 1e6) {
        Ok(flows) => {
            check(&flows, bytes);
            run(flows);
        }
        Err(TraceError::Line { line, column, .. }) => {
            let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            let at = usize::try_from(line).expect("lines are few") - 1;
            let text = String::from_utf8_lossy(lines[at]);
            assert!((1..=text.chars().count() + 1).contains(&column), "{column}");
        }
        Err(TraceError::Empty { .. }) => {}
        Err(error) => panic!("a slice can be read: {error}"),
    }
    BTreeSet::new()
}

fn check(flows: &[Flow], bytes: &[u8]) {
    assert!(!flows.is_empty());
    assert_eq!(flows[0].start_ns, 0);
    assert!(flows.is_sorted_by_key(|flow| flow.start_ns));
    let clients: BTreeSet<u32> = flows.iter().map(|flow| flow.client).collect();
    assert!(clients.iter().copied().eq(0..clients.len() as u32), "numbers without gaps");
    assert!(flows.iter().all(|flow| (1..=1 << 30).contains(&flow.packets)));
    assert!(flows.iter().all(|flow| flow.bytes <= 1 << 50));
    // Each line is exactly one connection.
    let text = std::str::from_utf8(bytes).expect("what is read is UTF-8");
    let lines = text.lines().enumerate().filter(|(at, line)| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let is_header = *at == 0 && fields == ["start", "client", "packets", "bytes"];
        !line.trim().is_empty() && !line.starts_with('#') && !is_header
    });
    assert_eq!(flows.len(), lines.count());
}

/// Simulates the trace if that does not take long.
fn run(flows: Vec<Flow>) {
    let packets: u64 = flows.iter().map(|flow| u64::from(flow.packets)).sum();
    let is_brief = flows.last().is_some_and(|flow| flow.start_ns < 100_000_000_000);
    if packets > 1000 || !is_brief {
        return;
    }
    let connections = flows.len() as u64;
    let job = Job { policy: Policy::ALL[flows.len() % Policy::ALL.len()], servers: 3, seed: 1, speedup: 1.0 };
    let no_stop = AtomicBool::new(false);
    let outcome = simulate(&Scenario::default(), &Trace::Flows(flows.into()), &job, &no_stop)
        .expect("the parameters are the defaults")
        .expect("nobody stops it");
    assert_eq!(outcome.packets, packets);
    let counted = outcome.short.connections + outcome.long.connections;
    assert_eq!(counted, connections);
}
