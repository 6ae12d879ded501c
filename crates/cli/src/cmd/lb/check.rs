//! `dwell lb check`.

use std::{collections::BTreeSet, fmt::Write, io::ErrorKind, net::IpAddr, path::PathBuf};

use dwell_balancer::config::{Backend, Config, Vip, default_pin};
use dwell_probes::{
    Error, Interface,
    balancer::{NextHops, Plane, PlaneOptions},
};
use dwell_records::counted;
use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};

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
    let limits = config.limits;
    let plane =
        PlaneOptions { max_connections: limits.connections, max_measured: limits.measured, ..PlaneOptions::default() };
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
        for backend in &vip.backends {
            let share = match share(vip, backend) {
                share if is_next_to_nothing(share) => "less than 0.1".to_owned(),
                share => format!("{:.1}", 100.0 * share),
            };
            put(
                &mut text,
                format_args!(
                    "  {} {}: weight {}, {share} % of new connections",
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

/// The part of new connections that a backend gets by its weight.
fn share(vip: &Vip, backend: &Backend) -> f64 {
    let total: f64 = vip.backends.iter().map(|backend| backend.weight).sum();
    if total > 0.0 { backend.weight / total } else { 0.0 }
}

/// Whether a part of new connections would be shown as none.
fn is_next_to_nothing(share: f64) -> bool {
    share > 0.0 && share < 0.0005
}

fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = config.warning_texts();
    if let Err(error) = Interface::find(&config.interface) {
        warnings.push(error.to_string());
    }
    warnings.extend(pin_warning(config));
    let first = first_addresses(&config.interface);
    for vip in &config.vips {
        if first.contains(&vip.key.address) {
            warnings.push(format!(
                "VIP '{}': {} is the address from which '{}' sends, and backends, which have it too, answer its health checks to \
                 themselves: give the VIP an address of its own",
                vip.name, vip.key.address, config.interface
            ));
        }
        for backend in vip.backends.iter().filter(|backend| is_next_to_nothing(share(vip, backend))) {
            warnings.push(format!(
                "VIP '{}': the weight of '{}' is next to nothing: it gets about one in {:.0} new connections",
                vip.name,
                backend.name,
                (1.0 / share(vip, backend)).min(vip.table_size.into())
            ));
        }
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
            let failed = addresses.into_iter().filter_map(|address| hops.find(address).err());
            // The kernel finds the MAC address of a neighbour when something is sent there, as a balancer that runs does.
            let is_fault = |error: &Error| match error {
                Error::NextHop { io, .. } => io.kind() != ErrorKind::NotFound,
                _ => true,
            };
            warnings.extend(failed.filter(is_fault).map(|error| error.to_string()));
        }
        Err(io) => warnings.push(format!("the routes to backends are not known, as the kernel cannot be asked: {io}")),
    }
    warnings
}

/// Warns of a folder in which nothing can be pinned. The default is not looked at: `dwell doctor lb` says where it is missing.
fn pin_warning(config: &Config) -> Option<String> {
    let pin = config.pin.display();
    if config.pin == default_pin(&config.interface) {
        return None;
    }
    if config.pin.is_relative() {
        return Some(format!("pin '{pin}' depends on the folder in which dwell is started: write an absolute path"));
    }
    (Plane::may_be_pinned_in(&config.pin) == Some(false))
        .then(|| format!("pin '{pin}' is not in a BPF file system, so that nothing can be pinned there: name a folder below /sys/fs/bpf"))
}

/// The first address of each family that an interface has: the kernel sends from it.
fn first_addresses(interface: &str) -> Vec<IpAddr> {
    let all = getifaddrs().into_iter().flatten().filter(|of| of.interface_name == interface);
    let mut first: Vec<IpAddr> = Vec::new();
    for address in all.filter_map(|of| ip_of(of.address.as_ref()?)) {
        if first.iter().all(|other| other.is_ipv4() != address.is_ipv4()) {
            first.push(address);
        }
    }
    first
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}
