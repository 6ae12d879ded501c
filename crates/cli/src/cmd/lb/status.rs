//! `dwell lb status`.

use std::{collections::BTreeMap, fmt::Write, mem, path::Path, time::Duration};

use dwell_balancer::{
    api::{BackendStatus, Client, HeartbeatStatus, PlaneStatus, Request, SharedStatus, Status, VipStatus},
    config::WhenStale,
    control::last_heartbeat,
    plan::Phase,
};
use dwell_engine::{balance::VipKey, histogram::Figure};
use dwell_records::{Latency, LatencyObject, Verdict, counted};

use super::{SocketArgs, object, print};
use crate::{
    args::Format,
    exit::{Exit, Failure},
    fail_if::{self, Conditions, Subject, Vocabulary},
    log::log,
};

/// Show VIPs and backends, their weights, and the reasons
///
/// Latencies are means of the last interval, with their 99th percentile where single responses are known. `fresh` is the number of requests in it divided by the number of
/// connections that were active at its end. Unknown values are shown as -.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb status
  dwell lb status --fail-if 'p99>50ms'
  dwell lb status --format jsonl | jq '.vips[].backends[] | {name, share, mean_ns: .latency.mean_ns}'")]
pub struct Args {
    #[command(flatten)]
    socket: SocketArgs,

    /// Output format: text, or jsonl, which is one object with more details
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Fail (exit status 1) if this holds for a backend in the last interval, or cannot be judged because none had a response:
    /// FIGURE>TIME, as in 'p99>50ms' or 'mean>=10ms or count<100'; FIGURE is count, mean, p50, p90 or p99; may be given several
    /// times
    #[arg(long, value_name = "CONDITION", value_parser = conditions)]
    fail_if: Vec<Conditions>,
}

/// The figures that a balancer has of a backend's responses.
const FIGURES: [Figure; 5] = [Figure::Count, Figure::Mean, Figure::P50, Figure::P90, Figure::P99];

fn conditions(text: &str) -> Result<Conditions, String> {
    fail_if::parse(text, &Vocabulary { kind: "figure", names: Vec::new(), figures: &FIGURES })
}

/// How long a balancer may take to answer before it counts as silent.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let socket = &args.socket.path;
    let client = Client::connect(socket).and_then(|client| client.with_timeout(PATIENCE));
    let answer = client.and_then(|mut client| client.request(&Request::Status {}));
    let mut status: Status = match answer {
        Ok(status) => status,
        Err(error) => {
            report_silence(socket, args.format)?;
            return Err(error.into());
        }
    };
    status.fail_if = judge(&args.fail_if, &status);
    match args.format {
        Format::Jsonl => {
            let time = mem::take(&mut status.time);
            print(object(Some(&time), &status))?;
        }
        Format::Text => print(text(&status, None))?,
    }
    if let Some(verdict) = &status.fail_if {
        fail_if::announce(verdict, ("response", "responses"));
    }
    Ok(fail_if::exit(status.fail_if.as_ref(), Exit::Done))
}

/// Compares the responses of each backend of a VIP with conditions; `None` without conditions.
fn judge(conditions: &[Conditions], status: &Status) -> Option<Verdict> {
    let of_vip = |vip: &VipStatus| vip.backends.iter().map(|backend| subject(&vip.name, backend)).collect::<Vec<_>>();
    fail_if::judge(conditions, |_| status.vips.iter().flat_map(of_vip).collect())
}

fn subject(vip: &str, backend: &BackendStatus) -> Subject {
    let known = |latency: &LatencyObject| {
        let LatencyObject { count, mean_ns, p50_ns, p90_ns, p99_ns, .. } = *latency;
        FIGURES.into_iter().zip([count, mean_ns, p50_ns, p90_ns, p99_ns])
    };
    let figures = backend.latency.iter().flat_map(known).filter_map(|(figure, value)| Some((figure, value?)));
    Subject { of: Some(format!("{vip}/{}", backend.name)), figures: figures.collect() }
}

/// Reports what a control plane that does not answer has left behind: the data plane goes on without it, if it is attached.
fn report_silence(socket: &Path, format: Format) -> Result<(), Failure> {
    let Some(heartbeat) = last_heartbeat(socket) else {
        return Ok(());
    };
    if format == Format::Jsonl {
        print(object(Some(&dwell_records::now()), &heartbeat))?;
    }
    match heartbeat.is_attached {
        Some(false) => log(
            "nothing is balanced: what is pinned is attached to no interface, as after its interface has gone; start \
             `dwell lb run` once that is back",
        ),
        _ => log(format_args!("the data plane continues without its control plane: {}", describe(&heartbeat))),
    }
    Ok(())
}

/// Describes the age of a data plane, and what follows from it.
fn describe(heartbeat: &HeartbeatStatus) -> String {
    let (age, limit) = (duration(heartbeat.age_ns), duration(heartbeat.stale_after_ns));
    let does = match heartbeat.when_stale {
        WhenStale::Keep => "keeps the last weights",
        WhenStale::Equal => "gives equal weights to the backends that were usable",
    };
    match heartbeat.is_stale {
        true => format!("renewed {age} ago, which is more than {limit}, so that it {does}"),
        false => format!("renewed {age} ago; after more than {limit} it {does}"),
    }
}

/// A request that waits for longer is worth a line: 1 s.
const LONG_NS: u64 = 1_000_000_000;

/// A server of QUIC that no connection ID names for longer is worth a line: 1 min.
const MUTE_NS: u64 = 60_000_000_000;

/// Formats a status as a table. With an earlier status, it shows rates instead of totals.
pub fn text(status: &Status, before: Option<&Status>) -> String {
    let mut text = String::new();
    let plane = &status.plane;
    let work = status.interval_work_ns.map_or("-".into(), duration);
    let _ = writeln!(
        text,
        "{} on {}: {} of {} connections; the work of an interval of {} takes {work}",
        status.config,
        status.interface,
        plane.connections,
        plane.capacity,
        duration(status.interval_ns)
    );
    if let Some(heartbeat) = &plane.heartbeat {
        let _ = writeln!(text, "data plane: {}", describe(heartbeat));
    }
    if let Some(shared) = &status.shared {
        let others = shared.others().unwrap_or("no other".to_owned());
        let leader = match &shared.leader {
            Some(leader) if *leader == shared.name => "leads".to_owned(),
            Some(leader) => format!("follows {leader}"),
            None => "no leader".to_owned(),
        };
        let set = shared.set.map_or("no set of weights yet".to_owned(), |number| format!("set {number} of weights"));
        let _ = match shared.problem {
            Some(_) => writeln!(text, "{}: THE STORE IS AWAY, {set}", shared.name),
            None => writeln!(text, "{} with {others}: {leader}, {set}", shared.name),
        };
    }
    // Their connections are counted nowhere but there.
    let others = status.shared.as_ref().and_then(SharedStatus::others).unwrap_or_default();
    for vip in &status.vips {
        let was = before.and_then(|before| before.vips.iter().find(|was| was.name == vip.name));
        write_vip(&mut text, vip, was, status.interval_ns, &others);
    }
    if !status.leaving.is_empty() {
        let has_second_chance = status.vips.iter().any(|vip| vip.second_chance);
        let _ = writeln!(text, "\nleaving, waiting for their last connections:");
        for backend in &status.leaving {
            let placed = placed(backend, has_second_chance, &others);
            let _ = writeln!(text, "  {} {}: {placed}", backend.name, backend.address);
        }
    }
    let was = before.map(|before| &before.plane);
    let counts = |of: fn(&PlaneStatus) -> &BTreeMap<String, u64>| counts(of(plane), was.map(of), status.interval_ns);
    let packets = counts(|plane| &plane.packets);
    let per_second = if was.is_some() { "/s" } else { "" };
    let _ = writeln!(text, "\npackets{per_second}: {}", if packets.is_empty() { "none" } else { &packets });
    for (name, events) in
        [("connection table", counts(|plane| &plane.table)), ("connection IDs", counts(|plane| &plane.connection_ids))]
    {
        if !events.is_empty() {
            let _ = writeln!(text, "{name}{per_second}: {events}");
        }
    }
    for device in &plane.devices {
        let refused = device.refused_tx.unwrap_or(0) + device.refused_redirect.unwrap_or(0);
        if refused > 0 {
            let _ = writeln!(text, "refused by {}: {}", device.name, counted(refused, "packet", "packets"));
        }
    }
    for warning in &status.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// Lists what has been counted by name, if anything: totals, or with earlier ones what was added per second.
fn counts(now: &BTreeMap<String, u64>, was: Option<&BTreeMap<String, u64>>, interval_ns: u64) -> String {
    let counted = now.iter().filter_map(|(name, count)| {
        let count = match was {
            Some(was) => rate(*count, was.get(name).copied().unwrap_or(0), interval_ns),
            None => count.to_string(),
        };
        (count != "0").then(|| format!("{name} {count}"))
    });
    counted.collect::<Vec<_>>().join(", ")
}

/// Returns how much was added per second.
fn rate(now: u64, then: u64, interval_ns: u64) -> String {
    format!("{:.0}", now.saturating_sub(then) as f64 * 1e9 / interval_ns as f64)
}

fn write_vip(text: &mut String, vip: &VipStatus, was: Option<&VipStatus>, interval_ns: u64, others: &str) {
    let key = VipKey { address: vip.address, protocol: vip.proto, port: vip.port };
    let sample = vip.measured.filter(|part| *part > 0.0 && *part < 1.0);
    let measured = sample.map_or(String::new(), |part| format!(", 1/{:.0} of connections measured", 1.0 / part));
    let _ = writeln!(
        text,
        "\n{}  {key}, policy {}, by {}{measured}{}",
        vip.name,
        vip.policy,
        vip.forward,
        if vip.all_down { "  ALL DOWN: all are kept" } else { "" }
    );
    if let Some(heavy) = &vip.heavy {
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        let captured = heavy.captured.map_or("-".into(), percent);
        let _ = writeln!(
            text,
            "  heavy: {} per server, with {captured} of its packets ({} wanted)",
            counted(heavy.connections.into(), "connection", "connections"),
            percent(heavy.wanted)
        );
    }
    let unit = if was.is_some() { "/s" } else { "" };
    let _ = writeln!(
        text,
        "  {:<16} {:<9} {:>7} {:>8} {:>10} {:>10} {:>6} {:>7} {:>10} {:>11}  why",
        "backend",
        "state",
        "share",
        "weight",
        "latency",
        "p99",
        "fresh",
        "active",
        format!("conns{unit}"),
        format!("packets{unit}")
    );
    for backend in &vip.backends {
        let was = was.and_then(|was| was.backends.iter().find(|was| was.real == backend.real));
        let latency = backend.latency.as_ref();
        let latency = |of: fn(&LatencyObject) -> Option<u64>| latency.and_then(of).map_or("-".into(), duration);
        let count = |now: u64, then: Option<u64>| match then {
            Some(then) => rate(now, then, interval_ns),
            None => now.to_string(),
        };
        let _ = writeln!(
            text,
            "  {:<16} {:<9} {:>6.1}% {:>8.3} {:>10} {:>10} {:>6} {:>7} {:>10} {:>11}  {}",
            backend.name,
            backend.state(),
            100.0 * backend.share,
            backend.weight,
            latency(|latency| latency.mean_ns),
            latency(|latency| latency.p99_ns),
            backend.freshness.map_or("-".into(), |fresh| format!("{fresh:.1}")),
            backend.active,
            count(backend.connections, was.map(|was| was.connections)),
            count(backend.packets, was.map(|was| was.packets)),
            backend.why()
        );
        if backend.phase == Phase::Draining {
            let _ = writeln!(text, "    {}", placed(backend, vip.second_chance, others));
        }
        if let Some(oldest_ns) = backend.pending.oldest_ns.filter(|ns| *ns >= LONG_NS) {
            let requests = counted(backend.pending.requests, "request waits", "requests wait");
            let strays = match backend.pending.strays {
                0 => String::new(),
                strays => format!("; {strays} of them count for nothing, as later ones are answered"),
            };
            let _ =
                writeln!(text, "    {requests} for an answer, the oldest for {} or more{strays}", duration(oldest_ns));
        }
        if let Some(load) = &backend.load {
            let wait = load.wait_ns.map_or("an unknown wait".into(), |wait| format!("a {} wait", duration(wait)));
            let _ = writeln!(text, "    reported {wait} {} ago", duration(load.age_ns));
        }
        if let Some(age_ns) = backend.named_age_ns.filter(|ns| *ns >= MUTE_NS) {
            let _ = writeln!(text, "    no connection ID has named it for {}", duration(age_ns));
        }
        if let Some(successor) = &backend.successor {
            let _ = writeln!(text, "    clients with its tokens go to {successor}");
        }
    }
}

/// Says how many connections would break without a backend that gets no new ones, as far as that is known. `others` are the
/// names of other balancers.
fn placed(backend: &BackendStatus, has_second_chance: bool, others: &str) -> String {
    let known = match backend.tracked.map(|tracked| counted(tracked, "connection is", "connections are")) {
        Some(tracked) => format!("{tracked} still placed there, {} of them active", backend.active),
        None => format!("how many connections are placed there is not known; {} are active", backend.active),
    };
    let known = match others {
        "" => known,
        others => format!("{known}, by this balancer alone: ask {others} too"),
    };
    match (backend.server_id.is_some(), has_second_chance) {
        (true, _) => {
            format!(
                "{known}; those that are routed by their IDs are not counted: remove it, and wait for its lb.left event"
            )
        }
        (_, true) => {
            format!("{known}; those that began elsewhere are not counted: run `ss -tn state established` there")
        }
        _ => known,
    }
}

fn duration(ns: u64) -> String {
    Latency(ns).to_string().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use dwell_balancer::api::PendingStatus;
    use dwell_records::Cost;

    use super::*;

    fn empty() -> Status {
        Status {
            time: String::new(),
            version: String::new(),
            interface: "eth0".into(),
            config: "lb.toml".into(),
            loaded: String::new(),
            interval_ns: 1_000_000_000,
            interval_work_ns: None,
            plane: PlaneStatus::default(),
            vips: Vec::new(),
            leaving: Vec::new(),
            warnings: Vec::new(),
            shared: None,
            cost: Cost::default(),
            fail_if: None,
        }
    }

    /// As a balancer answers that does not count the connections that are placed at a backend.
    fn backend(name: &str) -> BackendStatus {
        let answer = serde_json::json!({
            "name": name, "address": "10.0.0.1", "real": 1, "phase": "draining", "health": "up", "health_problem": null,
            "check_ns": null, "configured": 1.0, "weight": 1.0, "share": 0.0, "reason": "drained", "explanation": "",
            "latency": null, "freshness": null, "active": 7, "connections": 9, "packets": 100, "bytes": 6400, "problem": null,
        });
        serde_json::from_value(answer).unwrap()
    }

    fn vip(backends: &[BackendStatus]) -> VipStatus {
        let vip = serde_json::json!({
            "name": "web", "address": "192.0.2.1", "proto": "tcp", "port": 80, "policy": "maglev", "forward": "ipip",
            "table_size": 7, "packets": 0, "bytes": 0, "connections": 0, "all_down": false, "heavy": null,
            "second_chance": true, "backends": backends,
        });
        serde_json::from_value(vip).unwrap()
    }

    #[test]
    fn losses_of_the_connection_table_are_shown() {
        let of = |events: &[(&str, u64)]| {
            let table = events.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            Status { plane: PlaneStatus { table, ..PlaneStatus::default() }, ..empty() }
        };
        let shown = text(&of(&[("contended", 7), ("events_lost", 0), ("untracked", 3)]), None);
        assert!(shown.contains("\nconnection table: contended 7, untracked 3\n"), "{shown}");
        assert!(!text(&of(&[("contended", 0)]), None).contains("connection table"));
        let rates = text(&of(&[("contended", 9), ("untracked", 3)]), Some(&of(&[("contended", 7), ("untracked", 3)])));
        assert!(rates.contains("\nconnection table/s: contended 2\n"), "{rates}");
    }

    #[test]
    fn a_condition_holds_if_it_does_for_one_backend_and_fails_where_none_had_a_response() {
        let of = |count, mean_ns, p99_ns| Some(LatencyObject { count, mean_ns, p99_ns, ..LatencyObject::default() });
        let mut status = Status { vips: vec![vip(&[backend("a"), backend("b"), backend("c")])], ..empty() };
        let judged = |status: &Status, text: &str| {
            let verdict = judge(&[conditions(text).unwrap()], status).unwrap();
            let outcomes = verdict.conditions.into_iter().map(|one| (one.of.unwrap_or_default(), one.holds));
            (verdict.failed, outcomes.collect::<Vec<_>>())
        };
        assert_eq!(judged(&status, "p99>50ms"), (true, vec![(String::new(), None)]));
        assert_eq!(judge(&[], &status), None);
        status.vips[0].backends[0].latency = of(Some(10), Some(1_000_000), Some(40_000_000));
        assert_eq!(judged(&status, "p99>50ms"), (false, vec![("web/a".into(), Some(false))]));
        // That only means are known of it is no outcome of a condition on a percentile.
        status.vips[0].backends[2].latency = of(Some(3), Some(60_000_000), None);
        assert_eq!(judged(&status, "p99>50ms").1[1], ("web/c".into(), None));
        assert_eq!(
            judged(&status, "mean>50ms"),
            (true, vec![("web/a".into(), Some(false)), ("web/c".into(), Some(true))])
        );
        assert_eq!(conditions("web p99>5ms").unwrap_err(), "at character 1: a figure comes first, as in p99>50ms");
        assert!(conditions("max>5ms").unwrap_err().ends_with("the figures are count, mean, p50, p90, p99"));
    }

    #[test]
    fn requests_that_count_for_nothing_are_told_from_those_that_wait() {
        let shown = |strays| {
            let mut backend = backend("s1");
            backend.pending = PendingStatus { requests: 7, oldest_ns: Some(2_000_000_000), strays };
            let mut text = String::new();
            write_vip(&mut text, &vip(&[backend]), None, 1, "");
            text
        };
        let waits = "    7 requests wait for an answer, the oldest for 2.00 s or more";
        assert!(shown(0).contains(&format!("{waits}\n")), "{}", shown(0));
        let strays = format!("{waits}; 6 of them count for nothing, as later ones are answered\n");
        assert!(shown(6).contains(&strays), "{}", shown(6));
    }

    #[test]
    fn an_older_balancer_does_not_say_that_nothing_is_placed_there() {
        let mut backend = backend("s1");
        assert_eq!(placed(&backend, false, ""), "how many connections are placed there is not known; 7 are active");
        backend.tracked = Some(9);
        assert_eq!(placed(&backend, false, ""), "9 connections are still placed there, 7 of them active");
        let several = placed(&backend, false, "lb2, lb3");
        assert_eq!(
            several,
            "9 connections are still placed there, 7 of them active, by this balancer alone: ask lb2, lb3 too"
        );
    }

    #[test]
    fn what_lives_by_a_second_chance_alone_is_said_not_to_be_counted() {
        let vip = vip(&[BackendStatus { tracked: Some(0), active: 0, ..backend("s1") }]);
        let shown = |vip: &VipStatus| {
            let mut text = String::new();
            write_vip(&mut text, vip, None, 1, "");
            text
        };
        assert!(shown(&vip).contains("    0 connections are still placed there, 0 of them active; those that began"));
        assert!(!shown(&VipStatus { second_chance: false, ..vip }).contains("those that began"));
    }
}
