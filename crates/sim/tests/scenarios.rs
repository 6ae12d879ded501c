//! Scenarios from files.

#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::{fs, path::Path, sync::atomic::AtomicBool};

use dwell_sim::{
    Policy, Scenario, Server, TraceConfig, study,
    trace::{Trace, TraceError},
};

fn read(folder: &Path, text: &str) -> Result<Scenario, String> {
    let file = folder.join("scenario.toml");
    fs::write(&file, text).unwrap();
    Scenario::read(&file).map_err(|error| error.to_string())
}

#[test]
fn defaults_are_those_of_the_paper() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(read(folder.path(), "").unwrap(), Scenario::default());
    let scenario =
        read(folder.path(), "servers = [4, 8]\npolicies = [\"latency\"]\n[trace]\nkind = \"synthetic\"\nclients = 7\n")
            .unwrap();
    assert_eq!((scenario.servers.as_slice(), scenario.policies.as_slice()), (&[4, 8][..], &[Policy::Latency][..]));
    let TraceConfig::Synthetic { clients, connections, .. } = scenario.trace else {
        panic!("{scenario:?}");
    };
    assert_eq!((clients, connections, scenario.short), (7, 100_629, 5));
}

#[test]
fn the_example_shows_the_defaults() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sim.toml");
    let scenario = Scenario::read(&file).unwrap();
    // The example documents the keys by their defaults.
    assert_eq!(scenario.zero_rtt, Scenario::default().zero_rtt);
    assert_eq!(scenario.server, Scenario::default().server);
    assert_eq!(scenario.network, Scenario::default().network);
}

#[test]
fn errors_name_the_key_and_its_range() {
    let folder = tempfile::tempdir().unwrap();
    for (text, expected) in [
        ("servers = [0]", "the scenario's servers is [0]; it may be numbers of 1 to 1024, and each once"),
        ("servers = [1025]", "the scenario's servers is [1025]; it may be numbers of 1 to 1024, and each once"),
        ("runs = 0", "the scenario's runs is 0; it may be 1 to 10000"),
        ("policies = []", "the scenario's policies is []; it may be one at least, and each once"),
        (
            "policies = [\"maglev\", \"latency\", \"maglev\"]",
            "the scenario's policies is [Maglev, Latency, Maglev]; it may be one at least, and each once",
        ),
        ("servers = [4, 4]", "the scenario's servers is [4, 4]; it may be numbers of 1 to 1024, and each once"),
        ("interval = 1", "invalid type: integer `1`, expected a time in quotes, as in \"5ms\""),
        ("[server]\nservice = [0, 5]", "invalid type: integer `0`, expected a time in quotes, as in \"5ms\""),
        ("[server]\nservice = [\"0\", \"5\"]", "write a number and a unit, as in 100ms, 1s or 2m"),
        ("policies = [\"fair\"]", "unknown variant `fair`"),
        ("seed = 1\nspeed = 1", "line 2, column 1"),
        (
            "[network]\none_way = [\"5ms\", \"1ms\"]",
            "the scenario's network.one_way is [5ms, 1ms]; it may be two times, the lesser first, up to 1m",
        ),
        ("[server]\ntickets = 9", "the scenario's server.tickets is 9; it may be 0 to 8"),
        ("[zero_rtt]\nheavy_most = 33", "the scenario's zero_rtt.heavy_most is 33; it may be 1 to 32"),
        (
            "[zero_rtt]\nheavy_interval = 2000000000",
            "the scenario's zero_rtt.heavy_interval is 2000000000; it may be 16 to 2^30",
        ),
        ("[zero_rtt]\nheavy_interval = 3", "the scenario's zero_rtt.heavy_interval is 3; it may be 16 to 2^30"),
        (
            "[zero_rtt]\nload_lifetime = \"500ms\"",
            "the scenario's zero_rtt.load_lifetime is 500ms; it may be 0, or 1s to 24h",
        ),
        (
            "[network]\none_way = [\"1m\", \"1m\"]\n[zero_rtt]\nalpha = 60.0",
            "the scenario's zero_rtt.alpha is 60.0; it may be 0 to 1000, and times the mean round trip up to 1h",
        ),
        ("[zero_rtt]\npercentile = nan", "the scenario's zero_rtt.percentile is NaN; it may be 0 to 1"),
        ("[trace]\nkind = \"synthetic\"\nlongest = 0", "the scenario's trace.longest is 0; it may be 1 to 2^20"),
        ("[trace]\nkind = \"capture\"\npath = \"x\"\nport = 0", "the scenario's trace.port is 0; it may be 1 to 65535"),
        ("[trace]\nkind = \"csv\"", "missing field `path`"),
    ] {
        let error = read(folder.path(), text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_trace_of_flows_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("flows.csv"), "start,client,packets,bytes\n0,a,2,100\n1.5,b,1,50\n2,a,1,50\n")
        .unwrap();
    let text = "servers = [4]\npolicies = [\"session-affinity\"]\ninterval = \"500ms\"\n[trace]\nkind = \"csv\"\npath = \"flows.csv\"\n";
    let scenario = read(folder.path(), text).unwrap();
    let trace = Trace::load(&scenario).unwrap();
    let summaries = study::run(&scenario, &trace, &AtomicBool::new(false), &()).unwrap();
    let all = summaries[0].all();
    assert_eq!((all.connections, all.possible, all.used), (3, 1, 1));
    let slow = Scenario { server: Server { byte_ns: 1e6, ..Server::default() }, ..scenario.clone() };
    fs::write(folder.path().join("flows.csv"), "0,a,2,100\n1,b,1,1000000000000000\n").unwrap();
    let error = Trace::load(&slow).unwrap_err().to_string();
    assert!(
        error.contains("1000000000000000 bytes in 1 packet, so that a packet takes 1000000000000 s more"),
        "{error}"
    );
    fs::write(folder.path().join("flows.csv"), "0,a,2,100\n1,b,?,1\n").unwrap();
    let error = Trace::load(&scenario).unwrap_err();
    assert!(matches!(error, TraceError::Line { line: 2, column: 5, .. }), "{error}");
}
