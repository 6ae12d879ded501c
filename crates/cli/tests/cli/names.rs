//! Names of flows, held against what `ss` and `dig` say in the same network namespace.

use std::{collections::BTreeMap, thread, time::Duration};

use dwell_testbed::skip::{lacks_program, skip};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    records::{number, object, of_type},
    support::{
        Cgroup, DWELL, Pair, Process, Run, dwell, eventually, has_kernel_pids, has_owners_noted, ip, skipped, spawn,
        tool, watch,
    },
};

/// Answers whatever comes in, on any number of connections.
const SERVER: &str = r#"
import resource, selectors, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
all = selectors.DefaultSelector()
def receive(one):
    try:
        return one.recv(100)
    except ConnectionResetError:
        return b""
listener = socket.create_server((sys.argv[1], 8080), backlog=4096)
all.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in all.select():
        if key.fileobj is listener:
            all.register(listener.accept()[0], selectors.EVENT_READ)
        elif data := receive(key.fileobj):
            key.fileobj.sendall(data)
        else:
            all.unregister(key.fileobj)
            key.fileobj.close()
"#;

/// Opens so many connections, and asks on each until it is killed; with 0, on new ones that are closed after one answer.
const CLIENT: &str = r#"
import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
connect = lambda: socket.create_connection((sys.argv[1], 8080))
number = int(sys.argv[2])
for _ in range(0 if number else 30):
    with connect() as one:
        one.sendall(b"x" * 50)
        one.recv(100)
all = [connect() for _ in range(number)]
while all:
    for one in all:
        one.sendall(b"x" * 50)
    for one in all:
        one.recv(100)
    time.sleep(0.1)
"#;

/// Asks once, from a port that the next one can have at once.
const ONCE: &str = r#"
import socket, struct, sys
with socket.create_connection((sys.argv[1], 8080), source_address=("", 20000)) as one:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.sendall(b"x" * 50)
    one.recv(100)
"#;

struct Traffic {
    pair: Pair,
    _server: Process,
}

impl Traffic {
    /// A server on the right, or on the left. `None` where the test is skipped.
    fn start(name: &str, serves_left: bool) -> Option<Traffic> {
        if skipped() || lacks_program("python3") {
            return None;
        }
        let pair = Pair::start(name);
        for host in [&pair.left, &pair.right] {
            ip(host, "link set lo up\n");
        }
        let (host, address) = match serves_left {
            true => (&pair.left, "10.78.0.1"),
            false => (&pair.right, "10.78.0.2"),
        };
        let server = spawn(host, "python3", &["-c", SERVER, address]);
        eventually("a server", || tool(host, "ss", &["-tln"]).contains(":8080"));
        Some(Traffic { pair, _server: server })
    }

    fn client(&self, connections: usize) -> Process {
        spawn(&self.pair.left, "python3", &["-c", CLIENT, "10.78.0.2", &connections.to_string()])
    }

    /// Waits until so many connections are there. Returns the process of each by its port, as `ss` has it.
    fn owners(&self, connections: usize) -> BTreeMap<u64, (u64, String)> {
        let mut owners = BTreeMap::new();
        eventually("connections", || {
            owners = tool(&self.pair.left, "ss", &["-tnp"]).lines().filter_map(owner).collect();
            owners.len() >= connections
        });
        owners
    }
}

/// Reads a line of `ss -tnp`: the port of an end on the left, and the process.
fn owner(line: &str) -> Option<(u64, (u64, String))> {
    let port = line.split_once("10.78.0.1:")?.1.split(' ').next()?.parse().ok()?;
    let (name, rest) = line.split_once("((\"")?.1.split_once('"')?;
    let pid = rest.split_once("pid=")?.1.split(',').next()?.parse().ok()?;
    Some((port, (pid, name.to_owned())))
}

/// The port and the names of the end of a flow that is on the left; `None` of other flows and those without names.
fn left(object: &Value) -> Option<(u64, &Value)> {
    let flow = &object["flow"];
    let (address, port) = if flow["src"] == "10.78.0.1" { ("src", "sport") } else { ("dst", "dport") };
    Some((flow[port].as_u64()?, flow["names"].get(address)?))
}

fn end(mut process: Process) {
    if !process.has_ended() {
        process.signal(Signal::SIGKILL);
    }
    process.end();
}

#[test]
fn root_processes_are_those_that_ss_shows_and_hosts_have_the_name_that_dig_was_given() {
    let Some(traffic) = Traffic::start("names", false).filter(|_| !lacks_program("dnsmasq") && !lacks_program("dig"))
    else {
        return;
    };
    let pair = &traffic.pair;
    let arguments = "--keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces \
                     --except-interface=lo --user=root --pid-file= --listen-address=10.78.0.2 \
                     --cname=www.example,db.example --host-record=db.example,10.78.0.2";
    let resolver = spawn(&pair.right, "dnsmasq", &arguments.split_whitespace().collect::<Vec<_>>());
    eventually("a resolver", || tool(&pair.right, "ss", &["-uln"]).contains(":53"));
    let file = tempfile::tempdir().unwrap();
    let capture = file.path().join("names.pcap");
    let capture = capture.to_str().unwrap();
    let tcpdump = spawn(&pair.left, "tcpdump", &["-i", "left0", "-U", "-w", capture]);
    let live = watch(&pair.left, &["-i", "left0", "--format", "jsonl"]);
    let table = watch(&pair.left, &["-i", "left0", "--summary"]);
    let numbers = watch(&pair.left, &["-i", "left0", "--format", "jsonl", "--no-names"]);
    eventually("owners are noted", || [&live, &table].iter().all(|dwell| has_owners_noted(dwell.id())));
    assert!(!has_kernel_pids() || !has_owners_noted(numbers.id()));
    eventually("a capture", || std::fs::metadata(capture).is_ok_and(|file| file.len() > 0));

    let dug = tool(&pair.left, "dig", &["+short", "@10.78.0.2", "www.example"]);
    assert_eq!(dug, "db.example.\n10.78.0.2\n");
    let client = traffic.client(4);
    let owners = traffic.owners(4);
    thread::sleep(Duration::from_secs(3));
    end(client);

    let run = live.interrupt();
    let (samples, status) = (of_type(&run.stdout, "rtt.sample"), of_type(&run.stdout, "rtt.status"));
    for (port, (pid, name)) in &owners {
        let names: Vec<_> = samples.iter().filter_map(left).filter(|(own, _)| own == port).collect();
        assert!(names.len() >= 5, "{port} in {run}");
        // Without the kernel's notes, sockets are looked up after their first packets.
        let is_known = |names: &Value| has_kernel_pids() || !names["pid"].is_null();
        let known: Vec<_> = names.into_iter().filter(|(_, names)| is_known(names)).collect();
        assert!(!known.is_empty(), "{port} in {run}");
        for (_, names) in known {
            assert_eq!((names["pid"].as_u64(), names["process"].as_str()), (Some(*pid), Some(name.as_str())));
        }
    }
    let hosts = |samples: &[Value]| {
        let to_server = samples.iter().filter(|sample| sample["flow"]["dst"] == "10.78.0.2");
        to_server.map(|sample| sample["flow"]["names"]["dst"]["host"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(hosts(&samples).last(), Some(&"www.example".into()), "{run}");
    assert_eq!(number(status.last().unwrap(), "dns_answers"), 1);

    let run = table.interrupt();
    for (port, (pid, name)) in &owners {
        let line = format!("10.78.0.1:{port} → 10.78.0.2:8080");
        let line = run.stdout.lines().find(|text| text.contains(&line)).unwrap_or_else(|| panic!("{port}: {run}"));
        assert!(line.ends_with(&format!("  ({name} {pid} → www.example)")), "{run}");
    }
    let run = numbers.interrupt();
    assert!(!run.stdout.contains("\"names\"") && !run.stdout.contains("name_lookups"), "{run}");

    tcpdump.interrupt();
    end(resolver);
    // Of a capture only what it has itself: the addresses could be this host's.
    let run = dwell(&["rtt", "-r", capture, "--format", "jsonl"]);
    let samples = of_type(&run.stdout, "rtt.sample");
    assert_eq!(hosts(&samples).last(), Some(&"www.example".into()), "{run}");
    assert!(
        samples.iter().filter_map(left).all(|(_, names)| names["pid"].is_null() && names["host"].is_null()),
        "{run}"
    );
    let [named, bare] =
        [&["rtt", "-r", capture][..], &["rtt", "-r", capture, "-n"]].map(|arguments| dwell(arguments).stdout);
    let notes = ["  (→ www.example)", "  (www.example →)", "  [DNS www.example]"];
    assert!(notes.iter().fold(named.clone(), |text, note| text.replace(note, "")) == bare, "{named}");
    assert!(named.contains("10.78.0.2:8080  (→ www.example)\n"), "{named}");
}

#[test]
fn root_connections_that_are_over_at_once_have_the_process_that_connected_them_or_listens() {
    let Some((traffic, cgroup)) = Traffic::start("over", true).zip(Cgroup::new("names")) else {
        return;
    };
    if !has_kernel_pids() {
        return skip("owners are noted in the initial PID namespace alone");
    }
    let pair = &traffic.pair;
    let unit = cgroup.0.join("short.service");
    std::fs::create_dir(&unit).unwrap();
    let [accepts, connects] = [(&pair.left, "left0"), (&pair.right, "right0")]
        .map(|(host, interface)| watch(host, &["-i", interface, "--summary", "--format", "jsonl"]));
    eventually("owners are noted", || has_owners_noted(connects.id()));
    // The sockets that listen are looked up at the start.
    thread::sleep(Duration::from_secs(1));
    let script = format!("echo $$ > '{}/cgroup.procs' && exec python3 -c \"$1\" 10.78.0.1 0", unit.display());
    let client = spawn(&pair.right, "sh", &["-c", &script, "sh", CLIENT]);
    let client_pid = client.id();
    let run = client.end();
    assert_eq!(run.status, Some(0), "{run}");
    let listening = tool(&pair.left, "ss", &["-tlnp"]);
    let server = listening.lines().find_map(owner).unwrap().1.1;

    let run = accepts.interrupt();
    let flows = of_type(&run.stdout, "rtt.summary");
    let flows: Vec<_> = flows.iter().filter_map(left).filter(|(port, _)| *port == 8080).collect();
    assert!(flows.len() >= 30, "{run}");
    assert!(flows.iter().all(|(_, names)| names["process"] == server.as_str()), "{run}");

    let run = connects.interrupt();
    let flows = of_type(&run.stdout, "rtt.summary");
    assert!(flows.len() >= 30, "{run}");
    for flow in flows.iter().map(|summary| &summary["flow"]) {
        let names = &flow["names"][if flow["src"] == "10.78.0.2" { "src" } else { "dst" }];
        let found = (names["pid"].as_u64(), names["process"].as_str(), names["unit"].as_str());
        assert_eq!(found, (Some(client_pid.into()), Some("python3"), Some("short.service")), "{run}");
    }
    assert!(number(of_type(&run.stdout, "rtt.status").last().unwrap(), "name_sockets_noted") > 0, "{run}");
    std::fs::remove_dir(unit).unwrap();

    let again = watch(&pair.right, &["-i", "right0", "--format", "jsonl"]);
    eventually("owners are noted", || has_owners_noted(again.id()));
    let clients = [(); 2].map(|()| {
        let client = spawn(&pair.right, "python3", &["-c", ONCE, "10.78.0.1"]);
        let pid = client.id();
        let run = client.end();
        assert_eq!(run.status, Some(0), "{run}");
        // The socket is looked up, and gone.
        thread::sleep(Duration::from_secs(1));
        pid
    });
    let run = again.interrupt();
    let samples = of_type(&run.stdout, "rtt.sample");
    let flow = &samples.last().unwrap()["flow"];
    let names = &flow["names"][if flow["src"] == "10.78.0.2" { "src" } else { "dst" }];
    assert_eq!(names["pid"].as_u64(), Some(clients[1].into()), "{clients:?}: {run}");
}

#[test]
fn root_thousands_of_sockets_are_named_and_those_that_are_not_are_counted() {
    const SOCKETS: usize = 5_000;
    let Some(traffic) = Traffic::start("thousands", false) else {
        return;
    };
    let live = watch(&traffic.pair.left, &["-i", "left0", "--summary", "--format", "jsonl"]);
    let client = traffic.client(SOCKETS);
    let owners = traffic.owners(SOCKETS);
    thread::sleep(Duration::from_secs(6));
    let run = live.interrupt();
    end(client);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let lines: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let to_server: Vec<_> = lines.iter().filter(|line| line["flow"]["dport"] == 8080).collect();
    let named: Vec<_> = to_server.iter().filter_map(|flow| left(flow)).collect();
    for (port, names) in &named {
        let (pid, name) = &owners[port];
        assert_eq!((names["pid"].as_u64(), names["process"].as_str()), (Some(*pid), Some(name.as_str())));
    }
    let counters = &lines.last().unwrap()["counters"];
    let count = |name: &str| counters[name].as_u64().unwrap_or(0) as usize;
    let unnamed = to_server.len() - named.len();
    assert!(
        unnamed <= count("name_sockets_gone") + count("name_sockets_omitted"),
        "{unnamed} without names: {counters}"
    );
    assert!(named.len() > SOCKETS / 2, "{} of {}: {counters}", named.len(), to_server.len());
}

#[test]
fn root_every_verb_that_shows_flows_names_them_unless_it_is_told_not_to() {
    let Some(traffic) = Traffic::start("verbs", false) else {
        return;
    };
    let client = traffic.client(2);
    let owners = traffic.owners(2);
    let (pid, name) = owners.values().next().unwrap();
    let own = pid.to_string();
    let verbs: [(&str, Vec<&str>); 4] = [
        ("rtt.sample", vec!["rtt", "-i", "left0", "--rate-limit", "100ms"]),
        ("response.epoch", vec!["response", "-i", "left0"]),
        ("stack.segment", vec!["stack", "--port", "8080", "--flows", "--sample-bytes", "64"]),
        ("run.socket", vec!["run", "--pid", &own]),
    ];
    let start = |arguments: &[&str], options: &[&str]| {
        spawn(&traffic.pair.left, DWELL, &[arguments, &["--duration", "5s"], options].concat())
    };
    let runs = verbs.map(|(kind, arguments)| {
        let started = [&["--format", "jsonl"][..], &[], &["-n"]].map(|options| start(&arguments, options));
        (kind, started)
    });
    for (kind, started) in runs {
        let [objects, text, bare] = started.map(Process::end);
        // Those of `dwell run` are on standard error.
        let printed = |run: &Run| format!("{}{}", run.stdout, run.stderr);
        let flows: Vec<_> = printed(&objects).lines().filter(|line| line.contains(kind)).map(object).collect();
        let named: Vec<_> = flows.iter().filter_map(left).collect();
        assert!(!named.is_empty(), "{kind}: {objects}");
        for flow in flows.iter().map(|object| &object["flow"]).filter(|flow| flow["proto"] == "TCP") {
            let client = if flow["src"] == "10.78.0.1" { "src" } else { "dst" };
            assert_eq!(flow["client"], client, "{kind}: {objects}");
        }
        for (port, names) in named {
            let (pid, name) = &owners[&port];
            assert_eq!((names["pid"].as_u64(), names["process"].as_str()), (Some(*pid), Some(name.as_str())), "{kind}");
        }
        assert!(printed(&text).contains(&format!("({name} {pid} →)")), "{kind}: {text}");
        assert!(!printed(&bare).contains(&format!("{name} {pid}")), "{kind}: {bare}");
    }
    end(client);
}

#[test]
fn networks_of_addresses_come_from_a_file_and_an_error_names_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let table = write("table.tsv", "10.78.0.2\t10.78.0.3\t64496\tCH\tEXAMPLE-NET Example\n");
    let bad = write("bad.tsv", "10.78.0.2\t10.78.0.3\t64496\tCH\tExample\n10.78.0.9\tx\t1\tCH\tExample\n");
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/requests.pcap.gz");
    let run = |arguments: &[&str]| dwell(&[arguments, &["-r", capture]].concat());

    let text = run(&["rtt", "--as-file", &table]);
    assert!(text.stdout.contains(":8080  (→ AS64496 EXAMPLE-NET Example CH)  [GET /slow]\n"), "{text}");
    let samples = of_type(&run(&["rtt", "--as-file", &table, "--format", "jsonl"]).stdout, "rtt.sample");
    let to_server = samples.iter().find(|sample| sample["flow"]["dst"] == "10.78.0.2").unwrap();
    let network = serde_json::json!({"asn": 64496, "as_name": "EXAMPLE-NET Example", "country": "CH"});
    assert_eq!(to_server["flow"]["names"]["dst"]["network"], network);
    assert!(to_server["flow"]["names"]["src"]["network"].is_null());
    let response = run(&["response", "--as-file", &table]);
    assert!(response.stdout.contains("(→ AS64496 EXAMPLE-NET Example CH)"), "{response}");
    let peers = run(&["top", "--once", "--view", "peers", "--as-file", &table]);
    assert!(peers.stdout.contains("10.78.0.2  AS64496 EXAMPLE-NET Example CH "), "{peers}");
    let peers = run(&["top", "--once", "--view", "peers", "--as-file", &table, "--format", "jsonl"]);
    let rows = of_type(&peers.stdout, "top.row");
    assert!(rows.iter().any(|row| row["peer"] == "10.78.0.2" && row["peer_network"] == network), "{peers}");

    let run = run(&["rtt", "--as-file", &bad]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    assert!(
        run.stderr.contains(&format!("--as-file {bad}: line 2: 'x' is not an IP address; a line is START, END,")),
        "{run}"
    );
}
