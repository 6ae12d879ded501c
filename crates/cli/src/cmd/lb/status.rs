//! `dwell lb status`.

use std::fmt::Write;

use dwell_balancer::{
    api::{BackendStatus, Client, HealthWord, Request, Status, VipStatus},
    plan::Phase,
};

use super::{To, print};
use crate::exit::{Exit, Failure};

/// Tell what runs: VIPs, backends, their weights, and why
///
/// Latencies are means of the last interval; fresh is requests in it over connections active at its
/// end. Unknown is -.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb status
  dwell lb status --json | jq '.vips[].backends[] | {name, share, latency_s}'")]
pub struct Args {
    #[command(flatten)]
    to: To,

    /// As JSON, with more in it
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let status: Status = Client::connect(&args.to.socket)?.ask(&Request::Status {})?;
    match args.json {
        true => {
            let text = serde_json::to_string_pretty(&status).map_err(Failure::usage)?;
            print(&format!("{text}\n"))?;
        }
        false => print(&text(&status, None))?,
    }
    Ok(Exit::Done)
}

/// As a table. With the status before, rates stand in the place of totals.
pub fn text(status: &Status, before: Option<&Status>) -> String {
    let mut text = String::new();
    let plane = &status.plane;
    let work = status.interval_work_s.map_or("-".into(), seconds);
    let _ = writeln!(
        text,
        "{} on {}: {} of {} connections; an interval of {} takes {work} of work",
        status.config,
        status.interface,
        plane.connections,
        plane.places,
        seconds(status.interval_s)
    );
    for vip in &status.vips {
        let was = before.and_then(|before| before.vips.iter().find(|was| was.name == vip.name));
        of_vip(&mut text, vip, was, status.interval_s);
    }
    if !status.leaving.is_empty() {
        let _ = writeln!(text, "\nleaving, with their last connections:");
        for backend in &status.leaving {
            let _ = writeln!(text, "  {} {}: {} active", backend.name, backend.address, backend.active);
        }
    }
    let fates = plane.packets.iter().filter(|(_, packets)| **packets > 0);
    let fates: Vec<_> = fates.map(|(fate, packets)| format!("{fate} {packets}")).collect();
    let _ = writeln!(text, "\npackets: {}", if fates.is_empty() { "none".into() } else { fates.join(", ") });
    let seen = plane.connection_ids.iter().filter(|(_, count)| **count > 0);
    let seen: Vec<_> = seen.map(|(seen, count)| format!("{seen} {count}")).collect();
    if !seen.is_empty() {
        let _ = writeln!(text, "connection IDs: {}", seen.join(", "));
    }
    for warning in &status.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

fn of_vip(text: &mut String, vip: &VipStatus, was: Option<&VipStatus>, interval_s: f64) {
    let port = vip.port.map_or("any".into(), |port| port.to_string());
    let _ = writeln!(
        text,
        "\n{}  {} {}:{port}, policy {}, by {}{}",
        vip.name,
        vip.protocol,
        vip.address,
        vip.policy,
        vip.forward,
        if vip.all_down { "  ALL FAIL: all are kept" } else { "" }
    );
    if let Some(heavy) = &vip.heavy {
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        let captured = heavy.captured.map_or("-".into(), percent);
        let _ = writeln!(
            text,
            "  heavy: {} connections of a server, with {captured} of its packets ({} wanted)",
            heavy.connections,
            percent(heavy.wanted)
        );
    }
    let unit = if was.is_some() { "/s" } else { "" };
    let _ = writeln!(
        text,
        "  {:<16} {:<9} {:>7} {:>8} {:>10} {:>6} {:>7} {:>10} {:>11}  why",
        "backend",
        "state",
        "share",
        "weight",
        "latency",
        "fresh",
        "active",
        format!("conns{unit}"),
        format!("packets{unit}")
    );
    for backend in &vip.backends {
        let was = was.and_then(|was| was.backends.iter().find(|was| was.real == backend.real));
        let count = |now: u64, then: Option<u64>| match then {
            Some(then) => format!("{:.0}", now.saturating_sub(then) as f64 / interval_s),
            None => now.to_string(),
        };
        let _ = writeln!(
            text,
            "  {:<16} {:<9} {:>6.1}% {:>8.3} {:>10} {:>6} {:>7} {:>10} {:>11}  {}",
            backend.name,
            state(backend),
            100.0 * backend.share,
            backend.weight,
            backend.latency_s.map_or("-".into(), seconds),
            backend.freshness.map_or("-".into(), |fresh| format!("{fresh:.1}")),
            backend.active,
            count(backend.connections, was.map(|was| was.connections)),
            count(backend.packets, was.map(|was| was.packets)),
            why(backend)
        );
        if let Some(load) = &backend.load {
            let _ = writeln!(
                text,
                "    says that one waits {} there, {} ago",
                load.wait_s.map_or("it does not know how long".into(), seconds),
                seconds(load.age_s)
            );
        }
    }
}

fn state(backend: &BackendStatus) -> &'static str {
    match (backend.phase, backend.health) {
        (Phase::Leaving, _) => "leaving",
        (Phase::Draining, _) => "draining",
        _ if backend.problem.is_some() => "no way",
        (_, HealthWord::Down) => "down",
        (_, HealthWord::Rising) => "rising",
        (_, HealthWord::Up) => "up",
        (_, HealthWord::Unchecked) => "serving",
    }
}

fn why(backend: &BackendStatus) -> &str {
    let problem = backend.problem.as_deref();
    let health = backend.health_why.as_deref();
    problem.or(health).unwrap_or(&backend.why_words)
}

/// Three digits and a unit.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}
