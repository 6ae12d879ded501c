//! `dwell why` on real connections whose trouble is known: over loopback, without privilege.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use dwell_testbed::{Namespace, skip::lacks_program};
use nix::{libc, setsockopt_impl, sockopt_impl, sys::socket::setsockopt};
use serde_json::Value;

use crate::{
    records::objects,
    support::{self, Cgroup, DWELL, Run, dwell, eventually, skipped, start},
    top::Terminal,
};

fn why(arguments: &[&str]) -> (Run, Option<Value>) {
    let run = dwell(&[&["why", "--format", "jsonl"], arguments].concat());
    let verdict = objects(&run.stdout).pop();
    (run, verdict)
}

/// A verdict on the connections of this listener, while `traffic` runs.
fn verdict(listener: &TcpListener) -> Value {
    let target = format!(":{}", listener.local_addr().unwrap().port());
    let (run, verdict) = why(&[&target, "--duration", "2s"]);
    let verdict = verdict.unwrap_or_else(|| panic!("{run}"));
    let parts = verdict["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| part["share"].as_f64().unwrap()).sum();
    assert!(parts.is_empty() || (sum - 1.0).abs() < 1e-4, "the parts add up: {verdict}");
    verdict
}

/// Checks the cause that is named. Other work on this machine may be the cause for once, so a look may be repeated.
fn names(listener: &TcpListener, cause: &str) -> Value {
    let mut found = verdict(listener);
    for _ in 0..4 {
        if found["cause"] == cause {
            break;
        }
        found = verdict(listener);
    }
    assert_eq!(found["cause"], cause, "{found}");
    found
}

fn pair() -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    (listener, client, server)
}

#[test]
fn a_service_that_works_long_is_slow() {
    let (listener, mut client, mut server) = pair();
    thread::spawn(move || {
        let mut request = [0; 100];
        while server.read_exact(&mut request).is_ok() {
            thread::sleep(Duration::from_millis(50));
            if server.write_all(&request).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        let mut answer = [0; 100];
        while client.write_all(&answer).is_ok() && client.read_exact(&mut answer).is_ok() {}
    });
    let verdict = names(&listener, "slow-service");
    assert!(!verdict["remedies"].as_array().unwrap().is_empty());
}

#[test]
fn the_process_and_the_peer_have_names_unless_they_are_not_wanted() {
    let (listener, mut client, mut server) = pair();
    thread::spawn(move || {
        while server.read_exact(&mut [0; 100]).is_ok() && server.write_all(&[1; 100]).is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    thread::spawn(move || while client.write_all(&[0; 100]).is_ok() && client.read_exact(&mut [0; 100]).is_ok() {});
    let target = format!("localhost:{}", listener.local_addr().unwrap().port());
    let own = fs::read_to_string("/proc/self/comm").unwrap();
    let (run, verdict) = why(&[&target, "--duration", "1s"]);
    let about = &verdict.unwrap_or_else(|| panic!("{run}"))["about"];
    assert_eq!((&about["pid"], &about["process"]), (&std::process::id().into(), &own.trim_end().into()), "{about}");
    assert_eq!((&about["peer"], &about["peer_name"]), (&"127.0.0.1".into(), &"localhost".into()), "{about}");
    let (run, verdict) = why(&[&target, "--duration", "1s", "-n"]);
    let about = &verdict.unwrap_or_else(|| panic!("{run}"))["about"];
    assert_eq!(about["pid"], std::process::id(), "{about}");
    assert!(["process", "unit", "peer_name"].iter().all(|name| about[name].is_null()), "{about}");
    let text = dwell(&["why", &target, "--duration", "1s"]);
    assert!(text.stdout.contains(&format!(" of process {} ({}", std::process::id(), own.trim_end())), "{text}");
    assert!(text.stdout.contains(" with 127.0.0.1 (localhost)"), "{text}");
}

#[test]
fn a_reader_that_sleeps_is_slow() {
    let (listener, mut client, mut server) = pair();
    thread::spawn(move || while client.write_all(&[0; 65536]).is_ok() {});
    thread::spawn(move || {
        while server.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
            thread::sleep(Duration::from_millis(5));
        }
    });
    names(&listener, "slow-reader");
}

/// As `setcap` gives them to the file of dwell.
#[test]
fn root_bytes_are_stamped_with_the_three_capabilities_alone() {
    if skipped() || lacks_program("setpriv") {
        return;
    }
    let (listener, mut client, mut server) = pair();
    thread::spawn(move || while client.write_all(&[0; 65536]).is_ok() {});
    thread::spawn(move || {
        while server.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let target = format!(":{}", listener.local_addr().unwrap().port());
    let capabilities = "-all,+bpf,+net_admin,+perfmon";
    let ambient = format!("--ambient-caps={capabilities}");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    command.args([&format!("--inh-caps={capabilities}"), &ambient]);
    // Others may have no access to the folder of the tests.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("dwell");
    fs::copy(DWELL, &copy).unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    command.arg(copy).args(["why", "--format", "jsonl", &target, "--duration", "3s"]).current_dir("/");
    let run = support::run(&mut command, b"");
    let verdict = objects(&run.stdout).pop().unwrap_or_else(|| panic!("{run}"));
    let unseen = verdict["unseen"].to_string();
    assert!(!unseen.contains("layers of this host"), "{unseen}");
}

#[test]
fn an_application_that_pauses_is_slow() {
    let (listener, mut client, mut server) = pair();
    thread::spawn(move || {
        while client.write_all(&[0; 10_000]).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    thread::spawn(move || while server.read(&mut [0; 65536]).is_ok_and(|bytes| bytes > 0) {});
    names(&listener, "slow-application");
}

sockopt_impl!(MaxPacingRate, SetOnly, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64);

#[test]
fn a_program_that_limits_the_rate_of_its_socket_is_told() {
    let (listener, mut client, mut server) = pair();
    setsockopt(&client, MaxPacingRate, &2_000_000).unwrap();
    thread::spawn(move || while client.write_all(&[0; 65536]).is_ok() {});
    thread::spawn(move || while server.read(&mut [0; 65536]).is_ok_and(|bytes| bytes > 0) {});
    let verdict = names(&listener, "pacing");
    assert_eq!(verdict["facts"][1]["bytes"], 2_000_000, "{verdict}");
    let wait_ns = verdict["facts"][2]["ns"].as_u64();
    assert!(wait_ns > Some(5_000_000), "{verdict}");
}

#[test]
fn a_run_fails_by_the_causes_that_are_named_and_without_a_verdict() {
    let (listener, client, mut server) = pair();
    let target = format!(":{}", listener.local_addr().unwrap().port());
    let failing = |causes| why(&[&target, "--duration", "2s", "--fail-if", causes]).0;
    let run = failing("slow");
    assert_eq!(run.status, Some(1), "{run}");
    assert!(run.stderr.contains("there is no verdict, so this run has failed"), "{run}");
    let run = failing("slow,slowly");
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("one of") && run.stderr.contains("slow-application"), "{run}");
    let mut writer = client.try_clone().unwrap();
    thread::spawn(move || {
        while writer.write_all(&[0; 10_000]).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    thread::spawn(move || while server.read(&mut [0; 65536]).is_ok_and(|bytes| bytes > 0) {});
    names(&listener, "slow-application");
    // Other work may be the cause for once.
    let fails = |causes, said: &str, status| {
        eventually(causes, || {
            let run = failing(causes);
            run.status == Some(status) && run.stderr.contains(said)
        });
    };
    fails("slow", "the verdict has slow, so this run has failed", 1);
    fails("loss,slow-application", "the verdict has slow-application, so this run has failed", 1);
    fails("nagle,slow-names", "the verdict has none of nagle, slow-names", 0);
    drop(client);
}

#[test]
fn a_connection_without_traffic_is_idle_and_nothing_is_guessed() {
    let (listener, _client, _server) = pair();
    let target = format!(":{}", listener.local_addr().unwrap().port());
    let (run, verdict) = why(&[&target, "--duration", "1s"]);
    assert_eq!(run.status, Some(4), "{run}");
    let verdict = verdict.unwrap();
    assert_eq!((&verdict["outcome"], &verdict["cause"]), (&"no-traffic".into(), &Value::Null));
    assert_eq!(verdict["connections"], 2);
}

#[test]
fn a_program_is_looked_at_until_it_ends_and_its_output_is_its_own() {
    let run = dwell(&["why", "--format", "jsonl", "--", "sh", "-c", "echo its output; sleep 0.2"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(4), "its output\n"), "{run}");
    assert_eq!(objects(&run.stderr).pop().unwrap()["outcome"], "no-traffic", "{run}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("verdict.jsonl");
    let run = dwell(&["why", "--format", "jsonl", "--write", file.to_str().unwrap(), "--", "true"]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(4), ""), "{run}");
    assert_eq!(objects(&fs::read_to_string(file).unwrap()).pop().unwrap()["outcome"], "no-traffic");
}

#[test]
fn of_several_connections_the_worst_is_named_with_its_part() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut clients = Vec::new();
    for service_ms in [5, 300, 5] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        clients.push(client.local_addr().unwrap());
        thread::spawn(move || {
            while server.read_exact(&mut [0; 100]).is_ok() {
                thread::sleep(Duration::from_millis(service_ms));
                if server.write_all(&[1; 100]).is_err() {
                    return;
                }
            }
        });
        thread::spawn(move || {
            while client.write_all(&[0; 100]).is_ok() && client.read_exact(&mut [0; 100]).is_ok() {
                thread::sleep(Duration::from_millis(30));
            }
        });
    }
    let (address, port) = (listener.local_addr().unwrap(), clients[1].port());
    // Other work may be why the service is slow, and for once another connection may be the worst.
    eventually("the worst is named", || {
        let worst = &verdict(&listener)["worst"];
        worst["flow"]["dport"] == port && worst["part"] == "service" && worst["share"].as_f64() > Some(0.5)
    });
    let told = format!("of that, on the worst connection {address} → {} (service)", clients[1]);
    let target = format!(":{}", address.port());
    eventually("text names it too", || dwell(&["why", &target, "--duration", "2s"]).stdout.contains(&told));
}

#[test]
fn in_a_terminal_the_bar_and_the_lines_are_as_wide_as_it_is() {
    if lacks_program("tmux") {
        return;
    }
    let capture = format!("{}/../../tests/captures/line.pcap.gz", env!("CARGO_MANIFEST_DIR"));
    let plain = dwell(&["why", "-r", &capture]);
    let bar = |text: &str| {
        let is_bar = |line: &&str| line.starts_with("  ") && line.trim().chars().all(|mark| "█▒▓░".contains(mark));
        text.lines().filter(is_bar).map(|line| line.trim().chars().count()).find(|width| *width > 0)
    };
    assert_eq!(bar(&plain.stdout), Some(60), "{plain}");
    let terminal = Terminal::start(40, 200, &format!("{DWELL} why -r {capture}"));
    let screen = terminal.shows("status=");
    assert_eq!(bar(&screen), Some(38), "{screen}");
    // The last word of a line that was broken is whole, and so is the first one of the next.
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let told: Vec<String> = words(&screen);
    let evidence = plain.stdout.split_once("Evidence").unwrap().1.split_once("What to do").unwrap().0;
    for word in words(evidence).iter().filter(|word| word.chars().count() < 20) {
        assert!(told.contains(word), "{word}: {screen}");
    }
}

/// A server on port 7100 that takes 50 ms for each answer, and its client, both in one process.
const SERVICE: &str = "\
import socket, threading, time
listener = socket.create_server(('127.0.0.1', 7100))
def ask():
    client = socket.create_connection(('127.0.0.1', 7100))
    while client.sendall(b'x' * 100) is None and client.recv(100):
        pass
threading.Thread(target=ask, daemon=True).start()
server, _ = listener.accept()
while server.recv(100):
    time.sleep(0.05)
    server.sendall(b'y' * 100)
";

/// A process in a network namespace and a cgroup of its own, which is killed in the end.
pub struct Service {
    process: Child,
    pub cgroup: PathBuf,
    pub namespace: Namespace,
    _parent: Cgroup,
}

impl Service {
    /// `folder` is the name of the cgroup below one of the test's.
    pub fn start(test: &str, folder: &str) -> Option<Service> {
        let parent = Cgroup::new(test)?;
        let cgroup = parent.0.join(folder);
        fs::create_dir(&cgroup).unwrap();
        let namespace = Namespace::create(test).unwrap();
        let script = format!("echo $$ > '{}/cgroup.procs'; exec python3 -c \"$1\"", cgroup.display());
        let mut command = namespace.command("sh");
        command.args(["-c", &script, "sh", SERVICE]).stdout(Stdio::null());
        let process = command.spawn().unwrap();
        let service = Service { process, cgroup, namespace, _parent: parent };
        eventually("the service listens", || {
            let table = fs::read_to_string(format!("/proc/{}/net/tcp", service.process.id())).unwrap_or_default();
            table.matches(":1BBC").count() >= 3
        });
        Some(service)
    }

    /// Asks why it is slow, several times if other work was the cause for once.
    fn names(&self, target: &str, cause: &str) {
        let mut last = None;
        for _ in 0..5 {
            let (run, verdict) = why(&[target, "--duration", "2s"]);
            if verdict.as_ref().is_some_and(|verdict| verdict["cause"] == cause) {
                return;
            }
            last = Some(run);
        }
        panic!("{target} is not {cause}: {}", last.unwrap());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for _ in 0..100 {
            if fs::remove_dir(&self.cgroup).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn root_processes_units_cgroups_and_containers_are_looked_at_in_their_namespace() {
    if skipped() {
        return;
    }
    let id = format!("{:032x}{}", std::process::id(), "d".repeat(32));
    let Some(container) = Service::start("why-container", &format!("docker-{id}.scope")) else {
        return;
    };
    container.names(&container.process.id().to_string(), "slow-service");
    container.names(&id, "slow-service");
    container.names(&id[..40], "slow-service");
    container.names(container.cgroup.to_str().unwrap(), "slow-service");
    let (run, verdict) = why(&[":7100", "--duration", "100ms"]);
    let elsewhere = verdict.unwrap_or_else(|| panic!("{run}"))["unseen"].to_string();
    assert!(elsewhere.contains("connections of it are in that of process"), "{elsewhere}");
    let there = format!("`sudo nsenter -t {} -n dwell why :7100`", container.process.id());
    assert!(elsewhere.contains(&there), "{elsewhere}");
    drop(container);
    let unit = format!("dwell-test-{}.service", std::process::id());
    let service = Service::start("why-unit", &unit).unwrap();
    service.names(&unit, "slow-service");
    let (run, verdict) = why(&[&unit, "--duration", "1s"]);
    let remedies = verdict.unwrap_or_else(|| panic!("{run}"))["remedies"].to_string();
    assert!(remedies.contains("nsenter") || run.status == Some(4), "{remedies}");
}

#[test]
fn root_a_target_that_ends_meanwhile_has_a_verdict_on_what_was_seen() {
    if skipped() {
        return;
    }
    let Some(mut service) = Service::start("why-ends", "ends.service") else {
        return;
    };
    let target = service.process.id().to_string();
    let mut watch = Command::new(DWELL);
    let watching = start(watch.args(["why", &target, "--duration", "60s"]));
    thread::sleep(Duration::from_millis(1_500));
    service.process.kill().unwrap();
    service.process.wait().unwrap();
    let ended = watching.end();
    assert!(ended.stdout.contains("which then ended"), "{ended}");
}

#[test]
fn of_a_target_without_connections_it_says_where_to_look() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!(":{}", listener.local_addr().unwrap().port());
    let told = |target: &str| {
        let (run, verdict) = why(&[target, "--duration", "100ms"]);
        let verdict = verdict.unwrap_or_else(|| panic!("{run}"));
        assert_eq!((run.status, &verdict["outcome"]), (Some(4), &"no-traffic".into()), "{run}");
        verdict["unseen"].to_string()
    };
    let found = told(&target);
    let own = format!("connections to process {}, which listens at port {}", std::process::id(), &target[1..]);
    assert!(found.contains(&own) && found.contains("`dwell top` shows"), "{found}");
    // Nobody listens at the port for discarding bytes, and no system gives it to clients.
    let found = told(":9");
    assert!(found.contains("that listens at port 9") && found.contains("`sudo ss -tlnp`"), "{found}");
    // What listens here is not that of another host.
    let found = told("192.0.2.1:1");
    assert!(!found.contains("which listens") && found.contains("`dwell top` shows"), "{found}");
}

#[test]
fn of_a_capture_of_quic_it_says_so_and_which_verb_measures_that() {
    let capture = |name: &str| format!("{}/../../tests/captures/{name}", env!("CARGO_MANIFEST_DIR"));
    let quic = capture("quic-slow-handshake.pcap.gz");
    let (run, verdict) = why(&["-r", &quic]);
    let verdict = verdict.unwrap_or_else(|| panic!("{run}"));
    assert_eq!((run.status, &verdict["outcome"]), (Some(4), &"no-traffic".into()), "{run}");
    assert!(verdict["sentence"].as_str().unwrap().contains("packets of UDP, QUIC's among them"), "{verdict}");
    assert!(verdict["unseen"].to_string().contains(&format!("`dwell rtt -r {quic} --summary`")), "{verdict}");
    let (run, verdict) = why(&["-r", &quic, ":444"]);
    let verdict = verdict.unwrap_or_else(|| panic!("{run}"));
    assert_eq!(verdict["sentence"], "No TCP connection of the target was seen.", "{verdict}");
    assert!(verdict["unseen"].to_string().contains(&format!("`dwell top -r {quic} --once`")), "{verdict}");
    // Where there are connections too, nobody is told that there are none.
    let (_, verdict) = why(&["-r", &capture("line.pcap.gz")]);
    assert!(!verdict.unwrap()["sentence"].as_str().unwrap().contains("UDP"));
}

#[test]
fn with_the_format_none_the_exit_status_and_files_alone_tell_the_verdict() {
    let capture = format!("{}/../../tests/captures/line.pcap.gz", env!("CARGO_MANIFEST_DIR"));
    let (printed, verdict) = why(&["-r", &capture, "--fail-if", "slow"]);
    let silent = dwell(&["why", "-r", &capture, "--fail-if", "slow", "--format", "none"]);
    assert_eq!((silent.status, silent.stdout.as_str()), (printed.status, ""), "{silent}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("why.jsonl");
    dwell(&["why", "-r", &capture, "--format", "none", "-w", file.to_str().unwrap()]);
    let written = objects(&fs::read_to_string(&file).unwrap()).pop().unwrap();
    assert_eq!(written["sentence"], verdict.unwrap()["sentence"]);
}

#[test]
fn of_a_target_with_udp_alone_the_drops_are_told_and_nothing_is_guessed() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = format!(":{}", socket.local_addr().unwrap().port());
    let (run, verdict) = why(&[&target, "--duration", "1s"]);
    assert_eq!(run.status, Some(4), "{run}");
    let verdict = verdict.unwrap();
    assert!(verdict["sentence"].as_str().unwrap().contains("UDP"), "{verdict}");
    assert_eq!(verdict["facts"][1]["count"], 0, "{verdict}");
    // Nobody reads, and the receive buffer is soon full.
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        while client.send_to(&[0; 1000], address).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let (run, verdict) = why(&[&target, "--duration", "3s"]);
    let verdict = verdict.unwrap();
    assert_eq!((run.status, &verdict["cause"]), (Some(0), &"datagram-drops".into()), "{run}");
    assert!(verdict["facts"][1]["count"].as_u64() > Some(10), "{verdict}");
}

#[test]
fn a_target_that_is_not_one_is_refused_with_what_to_write() {
    for (target, wanted) in [
        ("4194304", "there is no process"),
        ("no-such-unit-of-dwell.service", "systemctl status"),
        (":http", "65535"),
        ("/no/such/cgroup", "/proc/PID/cgroup"),
        ("no-such-container-or-host.invalid", "no container or pod has this name"),
    ] {
        let run = dwell(&["why", target]);
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(wanted), "{run}");
    }
    let run = dwell(&["why"]);
    assert_eq!(run.status, Some(2), "{run}");
}

#[test]
fn the_text_has_the_sentence_first_and_says_how_sure_it_is() {
    let (listener, _client, _server) = pair();
    let target = format!(":{}", listener.local_addr().unwrap().port());
    let run = dwell(&["why", &target, "--duration", "1s"]);
    assert!(run.stdout.starts_with("The connections of the target were idle"), "{run}");
    assert!(run.stdout.contains("\nCertainty\n  none: 2 connections"), "{run}");
}
