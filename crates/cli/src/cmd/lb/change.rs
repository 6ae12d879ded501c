//! The verbs that change a running balancer.

use std::{net::IpAddr, path::Path};

use dwell_balancer::api::{BackendName, Changes, Client, Request};

use super::{print, warn};
use crate::{
    exit::{Exit, Failure},
    log::log,
};

pub fn reload(socket: &Path, dry_run: bool) -> Result<Exit, Failure> {
    let exit = change(socket, &Request::Reload { dry_run })?;
    if dry_run {
        log("a dry run: nothing was changed");
    }
    Ok(exit)
}

pub fn drain(socket: &Path, backend: &str, undo: bool) -> Result<Exit, Failure> {
    let backend = BackendName::parse(backend);
    change(socket, &Request::Drain { backend, undo })
}

pub fn add(
    socket: &Path,
    vip: &str,
    address: IpAddr,
    name: Option<&str>,
    weight: f64,
    server_id: Option<u64>,
) -> Result<Exit, Failure> {
    let request = Request::Add { vip: vip.into(), address, name: name.map(str::to_owned), weight, server_id };
    change(socket, &request)
}

pub fn remove(socket: &Path, backend: &str) -> Result<Exit, Failure> {
    let backend = BackendName::parse(backend);
    change(socket, &Request::Remove { backend })
}

pub fn weight(socket: &Path, backend: &str, weight: f64) -> Result<Exit, Failure> {
    let backend = BackendName::parse(backend);
    change(socket, &Request::Weight { backend, weight })
}

fn change(socket: &Path, request: &Request) -> Result<Exit, Failure> {
    let changes: Changes = Client::connect(socket)?.request(request)?;
    match changes.changes.as_slice() {
        [] => print("nothing to change\n")?,
        changes => print(format!("{}\n", changes.join("\n")))?,
    }
    warn(&changes.warnings);
    Ok(Exit::Done)
}
