//! `dwell lb check`.

use std::{collections::BTreeSet, fmt::Write, path::PathBuf};

use dwell_balancer::config::Config;
use dwell_probes::{
    Interface,
    balancer::{NextHops, PlaneOptions},
};
use dwell_records::counted;

use super::print;
use crate::exit::{Exit, Failure};

/// Check a configuration, and show what it would do
///
/// Changes nothing. Reports all faults at once. If this host lacks something that the configuration needs, as a route
/// to a backend, that is only a warning: the configuration may be meant for another host.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb check examples/lb.toml")]
pub struct Args {
    /// A TOML file, as in examples/lb.toml
    config: PathBuf,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let config = Config::read(&args.config)?;
    let mut text = String::new();
    let put = |text: &mut String, line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("writing to a String cannot fail");
    };
    let plane = PlaneOptions { max_connections: config.limits.connections, ..PlaneOptions::default() };
    put(
        &mut text,
        format_args!(
            "on {}, pinned in {}: {}, {}, {} connections in {} MB",
            config.interface,
            config.pin.display(),
            counted(config.vips.len() as u64, "VIP", "VIPs"),
            counted(config.backends() as u64, "backend", "backends"),
            config.limits.connections,
            plane.connection_bytes().div_ceil(1_000_000)
        ),
    );
    for vip in &config.vips {
        let check = vip.check.as_ref().map_or("not checked".to_owned(), |check| {
            let port = if check.port == 0 { String::new() } else { format!(" on port {}", check.port) };
            format!("checked by {}{port} every {:?}", check.kind, check.interval)
        });
        put(
            &mut text,
            format_args!("VIP '{}' {}: policy {}, by {}, {check}", vip.name, vip.key, vip.policy, vip.forward),
        );
        let total: f64 = vip.backends.iter().map(|backend| backend.weight).sum();
        for backend in &vip.backends {
            let share = if total > 0.0 { 100.0 * backend.weight / total } else { 0.0 };
            put(
                &mut text,
                format_args!(
                    "  {} {}: weight {}, {share:.1} % of new connections",
                    backend.name, backend.address, backend.weight
                ),
            );
        }
    }
    if let Some(shared) = &config.shared {
        let endpoints: Vec<_> = shared.endpoints.iter().map(ToString::to_string).collect();
        put(&mut text, format_args!("takes part as {} in {} at {}", shared.name, shared.prefix, endpoints.join(", ")));
    }
    for warning in warnings(&config) {
        put(&mut text, format_args!("warning: {warning}"));
    }
    print(&text)?;
    Ok(Exit::Done)
}

fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = config.warning_texts();
    if let Err(error) = Interface::find(&config.interface) {
        warnings.push(error.to_string());
    }
    for vip in &config.vips {
        let has_weight = vip.backends.iter().any(|backend| backend.weight > 0.0);
        if !has_weight {
            warnings
                .push(format!("VIP '{}' has no backend with a positive weight: its connections are dropped", vip.name));
        }
        if (vip.table_size as usize) < 100 * vip.backends.len() {
            warnings.push(format!(
                "VIP '{}': with {} backends, a table of {} entries is uneven by more than 1 %; choose a larger prime",
                vip.name,
                vip.backends.len(),
                vip.table_size
            ));
        }
    }
    let backends = config.vips.iter().flat_map(|vip| &vip.backends);
    let addresses: BTreeSet<_> = backends.map(|backend| backend.address).collect();
    match NextHops::open() {
        Ok(mut hops) => {
            let unknown = addresses.into_iter().filter_map(|address| hops.find(address).err());
            warnings.extend(unknown.map(|error| error.to_string()));
        }
        Err(io) => warnings.push(format!("the routes to backends are not known, as the kernel cannot be asked: {io}")),
    }
    warnings
}
