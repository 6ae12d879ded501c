//! Faults that follow from several tables together.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use dwell_engine::balance::Protocol;

use super::{
    Config,
    table::{Problem, Table},
    vip::VipLines,
};

/// Adds a fault to `root` for each conflict between tables. `lines` has an entry for each VIP.
pub(super) fn check(config: &Config, lines: &[VipLines], root: &Table<'_>) {
    check_names(config, lines, root);
    check_vips(config, lines, root);
    check_backends(config, lines, root);
    check_limits(config, root);
}

fn check_names(config: &Config, lines: &[VipLines], root: &Table<'_>) {
    let mut used = BTreeMap::new();
    for (vip, lines) in config.vips.iter().zip(lines) {
        if let Some(line) = used.insert(&vip.name, lines.name) {
            let problem =
                Problem::new(format!("line {line} already has a VIP named '{}'", vip.name), "write another name");
            root.fault_at(lines.name, "vip.name", problem);
        }
    }
}

fn check_vips(config: &Config, lines: &[VipLines], root: &Table<'_>) {
    type Ports = BTreeMap<Option<u16>, usize>;
    let mut used: BTreeMap<(IpAddr, Protocol), Ports> = BTreeMap::new();
    for (index, vip) in config.vips.iter().enumerate() {
        let line = lines[index].address;
        let ports = used.entry((vip.key.address, vip.key.protocol)).or_default();
        let other = match vip.key.port {
            // A VIP for any port overlaps all others.
            None => ports.values().next(),
            port => ports.get(&port).or_else(|| ports.get(&None)),
        };
        if let Some(other) = other {
            let (other, at) = (&config.vips[*other], lines[*other].address);
            let problem = Problem::new(
                format!("{} overlaps {} of VIP '{}' in line {at}", vip.key, other.key, other.name),
                "a packet can match only one VIP: change the address, protocol or port of one",
            );
            root.fault_at(line, "vip.address", problem);
        }
        ports.entry(vip.key.port).or_insert(index);
    }
}

fn check_backends(config: &Config, lines: &[VipLines], root: &Table<'_>) {
    let vips: BTreeMap<IpAddr, usize> =
        config.vips.iter().zip(lines).map(|(vip, lines)| (vip.key.address, lines.address)).collect();
    for (vip, vip_lines) in config.vips.iter().zip(lines) {
        let (mut names, mut addresses) = (BTreeMap::new(), BTreeMap::new());
        for (backend, lines) in vip.backends.iter().zip(&vip_lines.backends) {
            if let Some(at) = vips.get(&backend.address) {
                let problem = Problem::new(
                    format!("{} is the VIP of line {at}", backend.address),
                    "its packets would loop forever: write the server's own address",
                );
                root.fault_at(lines.address, "vip.backend.address", problem);
            }
            if let Some(at) = names.insert(&backend.name, lines.name) {
                let problem = Problem::new(
                    format!("line {at} already has a backend of '{}' named '{}'", vip.name, backend.name),
                    "write another name",
                );
                root.fault_at(lines.name, "vip.backend.name", problem);
            }
            if let Some(at) = addresses.insert(backend.address, lines.address) {
                let problem = Problem::new(
                    format!("line {at} already has a backend of '{}' at {}", vip.name, backend.address),
                    "remove one; use weight to give a backend more connections",
                );
                root.fault_at(lines.address, "vip.backend.address", problem);
            }
        }
        let usable: BTreeSet<_> = addresses.keys().collect();
        if (vip.table_size as usize) < usable.len() {
            let problem = Problem::new(
                format!("a table of {} entries is too small for {} backends", vip.table_size, usable.len()),
                "write a prime about a hundred times the number of backends",
            );
            root.fault_at(vip_lines.table_size, "vip.table_size", problem);
        }
    }
}

fn check_limits(config: &Config, root: &Table<'_>) {
    let counts = [("vips", config.vips.len(), config.limits.vips), ("reals", config.backends(), config.limits.reals)];
    for (key, count, limit) in counts {
        if count > limit as usize {
            let problem = Problem::new(
                format!("there are {count}, more than the limit of {limit}"),
                format!("write {key} = {count} or more, with room for later additions"),
            );
            root.fault_at(root.line_of("limits"), &format!("limits.{key}"), problem);
        }
    }
}
