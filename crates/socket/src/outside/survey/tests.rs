use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use dwell_engine::roles::Role;
use nix::sys::socket::Backlog;

use super::*;

#[test]
fn a_look_keeps_to_its_budget_with_the_time_that_sleeping_takes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    thread::spawn(move || {
        while server.read_exact(&mut [0; 100]).is_ok() && server.write_all(&[1; 100]).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    thread::spawn(move || while client.write_all(&[0; 100]).is_ok() && client.read_exact(&mut [0; 100]).is_ok() {});
    let mut survey = Survey::start(Selection::Ends { addresses: Vec::new(), port: Some(port) }, false).unwrap();
    let (start_ns, start_used_ns) = (monotonic_ns(), thread_cpu_ns());
    let mut dearest_ns = 0;
    while monotonic_ns() - start_ns < 3_000_000_000 {
        let before_ns = thread_cpu_ns();
        let due_ns = survey.poll().unwrap();
        dearest_ns = dearest_ns.max(thread_cpu_ns() - before_ns);
        thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
    }
    let (used_ns, elapsed_ns) = (thread_cpu_ns() - start_used_ns, monotonic_ns() - start_ns);
    let budgets = [POLLS, DISCOVERY, LOOKS, ENDS, DATAGRAMS, SEARCHES].map(|(_, share)| share);
    let budget: f64 = budgets.iter().sum();
    // Looks at sockets of UDP use theirs only where names are asked for.
    assert!(budget - DATAGRAMS.1 < 0.02, "{budget}");
    // The last run of each task is paid by the time after it.
    let unpaid_ns = (budgets.len() as u64 * dearest_ns) as f64;
    let allowed_ns = budget * 1.2 * elapsed_ns as f64 + unpaid_ns;
    assert!(used_ns as f64 <= allowed_ns, "{used_ns} ns in {elapsed_ns}, the dearest {dearest_ns}");
    let evidence = survey.evidence("");
    assert_eq!(evidence.connections, 2);
    assert!(evidence.search_interval_ns > 0.0 && evidence.look_interval_ns > 0.0);
}

/// Polls of all of them are further apart than the answers take.
#[test]
fn a_service_that_is_slow_on_many_connections_is_found_by_a_panel_of_them() {
    const CONNECTIONS: usize = 2 * FEW;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for _ in 0..CONNECTIONS {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        thread::spawn(move || {
            while server.read_exact(&mut [0; 100]).is_ok() {
                thread::sleep(Duration::from_millis(150));
                if server.write_all(&[1; 100]).is_err() {
                    return;
                }
            }
        });
        thread::spawn(move || {
            while client.write_all(&[0; 100]).is_ok() && client.read_exact(&mut [0; 100]).is_ok() {
                thread::sleep(Duration::from_millis(75));
            }
        });
    }
    let look = |seconds: u64| {
        let mut survey = Survey::start(Selection::Ends { addresses: Vec::new(), port: Some(port) }, false).unwrap();
        let start_ns = monotonic_ns();
        while monotonic_ns() - start_ns < seconds * 1_000_000_000 {
            let due_ns = survey.poll().unwrap();
            thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
        }
        survey.evidence("")
    };
    // A busy host polls the panel late, and few times. A wait is cut at each end of what is seen of a connection.
    let is_of_panel = |it: &Evidence| it.unseen.iter().any(|unseen| unseen.what.contains("of them were polled"));
    let is_enough = |it: &Evidence| is_of_panel(it) && it.sums.service.count >= 100;
    let evidence = [8, 30, 120].into_iter().map(look).find(is_enough).unwrap();
    let verdict = decide(&evidence);
    let Outcome::Slow(cause) = verdict.outcome else { panic!("{verdict:?}") };
    // Its threads are those of a process that may wait for a processor.
    assert!(["slow-service", "slow-answer", "starved"].contains(&cause.name()), "{verdict:?}");
    // Those of the panel are a few of them, which the verdict says.
    assert_eq!((evidence.connections, evidence.accepted), (2 * CONNECTIONS as u64, CONNECTIONS as u64));
    let service_ms = evidence.sums.service.mean_ns().unwrap() / 1e6;
    // It takes 150 ms, and longer where the host is busy.
    assert!(service_ms >= 140.0, "{service_ms}");
}

/// A listener whose queue of new connections is full drops SYNs.
#[test]
fn a_connection_that_is_still_being_opened_at_the_end_has_taken_no_longer_than_the_look() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    nix::sys::socket::listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let _queued = TcpStream::connect(address).unwrap();
    thread::spawn(move || TcpStream::connect_timeout(&address, Duration::from_secs(60)));
    let selected = Selection::Ends { addresses: Vec::new(), port: Some(address.port()) };
    let mut survey = Survey::start(selected, false).unwrap();
    let start_ns = monotonic_ns();
    while !survey.namespaces.values().any(Connections::is_opening) {
        assert!(monotonic_ns() - start_ns < 60_000_000_000, "no connection is being opened");
        let due_ns = survey.poll().unwrap();
        thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
    }
    let evidence = survey.evidence("");
    let waits = evidence.unopened.first().map_or(evidence.sums.set_ups, |unopened| unopened.waits);
    assert_eq!(waits.count, 1);
    assert!(waits.longest_ns <= evidence.observed_ns, "{waits:?}");
}

#[test]
fn the_end_of_a_process_is_noticed_also_while_looks_at_others_are_put_off() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let mut survey = Survey::start(Selection::Process(child.id()), false).unwrap();
    survey.pace(Task::Looks).record(monotonic_ns(), u64::MAX);
    child.kill().unwrap();
    child.wait().unwrap();
    let ended_ns = monotonic_ns();
    while !survey.has_ended() && monotonic_ns() - ended_ns < 5_000_000_000 {
        let due_ns = survey.poll().unwrap();
        thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
    }
    assert!(survey.has_ended());
}

/// The process through which it is entered may end at the wrong moment.
#[test]
fn a_namespace_that_was_entered_in_the_end_is_not_told_as_unseen() {
    let own = namespace::number_of("thread-self").unwrap();
    let mut survey = Survey::start(Selection::Process(std::process::id()), false).unwrap();
    survey.namespaces.clear();
    survey.inaccessible.insert(own, 1);
    survey.find_namespaces().unwrap();
    assert!(survey.namespaces.contains_key(&own));
    assert_eq!(survey.inaccessible.len(), 0, "{:?}", survey.inaccessible);
}

/// As a process that is stopped leaves it.
#[test]
fn a_connection_that_nobody_has_accepted_is_of_the_process_that_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(&[0; 100]).unwrap();
    let selection = Selection::Ends { addresses: Vec::new(), port: Some(port) };
    let mut survey = Survey::start(selection, false).unwrap();
    let end_ns = monotonic_ns() + 1_000_000_000;
    while monotonic_ns() < end_ns {
        let due_ns = survey.poll().unwrap();
        thread::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
    }
    let evidence = survey.evidence("");
    let of_server = evidence.groups.iter().find(|group| group.key.role == Role::Server);
    assert_eq!(of_server.and_then(|group| group.key.pid), Some(std::process::id()), "{:?}", evidence.groups);
}
