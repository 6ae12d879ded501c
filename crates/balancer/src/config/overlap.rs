//! What is wrong only with several tables together.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ByAddress, Config, Places, Protocol,
    table::{Table, Wrong},
};

pub(super) fn check(config: &Config, places: &Places, root: &Table<'_>) {
    names(config, places, root);
    vips(config, places, root);
    backends(config, places, root);
    limits(config, root);
}

fn names(config: &Config, places: &Places, root: &Table<'_>) {
    let mut taken = BTreeMap::new();
    for (vip, place) in config.vips.iter().zip(&places.vips) {
        if let Some(line) = taken.insert(&vip.name, place.name) {
            let wrong =
                Wrong::new(format!("another VIP is named '{}' in line {line}", vip.name), "write a name of its own");
            root.fault_at(place.name, "vip.name", wrong);
        }
    }
}

fn vips(config: &Config, places: &Places, root: &Table<'_>) {
    type Ports = BTreeMap<Option<u16>, usize>;
    let mut taken: BTreeMap<(std::net::IpAddr, Protocol), Ports> = BTreeMap::new();
    for (index, vip) in config.vips.iter().enumerate() {
        let line = places.vips[index].address;
        let ports = taken.entry((vip.key.address, vip.key.protocol)).or_default();
        let other = match vip.key.port {
            // Any port is all of them.
            None => ports.values().next(),
            port => ports.get(&port).or_else(|| ports.get(&None)),
        };
        if let Some(other) = other {
            let (other, at) = (&config.vips[*other], places.vips[*other].address);
            let wrong = Wrong::new(
                format!("{} overlaps {} of VIP '{}' in line {at}", vip.key, other.key, other.name),
                "a packet has one VIP: change address, protocol or port of one",
            );
            root.fault_at(line, "vip.address", wrong);
        }
        ports.entry(vip.key.port).or_insert(index);
    }
}

fn backends(config: &Config, places: &Places, root: &Table<'_>) {
    let vips: ByAddress<usize> =
        config.vips.iter().zip(&places.vips).map(|(vip, place)| (vip.key.address, place.address)).collect();
    for (vip, place) in config.vips.iter().zip(&places.vips) {
        let (mut names, mut addresses) = (BTreeMap::new(), BTreeMap::new());
        for (backend, (name_line, line)) in vip.backends.iter().zip(&place.backends) {
            if let Some(at) = vips.get(&backend.address) {
                let wrong = Wrong::new(
                    format!("{} is the VIP of line {at}", backend.address),
                    "its packets would come back for ever: write the server's own address",
                );
                root.fault_at(*line, "vip.backend.address", wrong);
            }
            if let Some(at) = names.insert(&backend.name, *name_line) {
                let wrong = Wrong::new(
                    format!("another backend of '{}' is named '{}' in line {at}", vip.name, backend.name),
                    "write a name of its own",
                );
                root.fault_at(*name_line, "vip.backend.name", wrong);
            }
            if let Some(at) = addresses.insert(backend.address, *line) {
                let wrong = Wrong::new(
                    format!("'{}' has a backend with {} in line {at}", vip.name, backend.address),
                    "take one out; a weight gives a backend more",
                );
                root.fault_at(*line, "vip.backend.address", wrong);
            }
        }
        let usable: BTreeSet<_> = addresses.keys().collect();
        if (vip.table_size as usize) < usable.len() {
            let wrong = Wrong::new(
                format!("a table of {} has no room for {} backends", vip.table_size, usable.len()),
                "write a prime of a hundred times as many",
            );
            root.fault_at(place.table_size, "vip.table_size", wrong);
        }
    }
}

fn limits(config: &Config, root: &Table<'_>) {
    let over = [("vips", config.vips.len(), config.limits.vips), ("reals", config.backends(), config.limits.reals)];
    for (key, are, limit) in over {
        if are > limit as usize {
            let wrong = Wrong::new(
                format!("there are {are}, and room for {limit}"),
                format!("write {key} = {are} or more, with room for what is added later"),
            );
            root.fault_at(root.line_of("limits"), &format!("limits.{key}"), wrong);
        }
    }
}
