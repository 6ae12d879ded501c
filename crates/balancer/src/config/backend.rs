//! `[[vip.backend]]`: a server behind a VIP.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{
    table::{Problem, Table},
    value::{host, number, plain, plain_name, single, whole},
};

/// The largest weight that a backend may have, in the configuration and in requests.
pub const MAX_WEIGHT: f64 = 1_000_000.0;

/// A server behind a VIP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// The name in output and requests; by default the address.
    pub name: String,
    /// The server's own address, where its packets and health checks are sent.
    pub address: IpAddr,
    /// The weight relative to the other backends of the VIP, from 0 to [`MAX_WEIGHT`]. A backend with weight 0 gets no
    /// new connections.
    pub weight: f64,
    /// The server ID that QUIC connection IDs carry, if the VIP routes by them.
    #[serde(default)]
    pub server_id: Option<u64>,
}

/// The lines of a backend's keys, for faults that are found later.
#[derive(Debug, Clone, Copy)]
pub(super) struct BackendLines {
    pub name: usize,
    pub address: usize,
}

/// Returns whether two parts of a VIP's new connections, of measured weights, are the same as far as a table shows: they differ by less
/// than 1 % of the second one. No table is more exact, and building one costs a millisecond.
pub fn is_same_part(part: f64, other: f64) -> bool {
    (part - other).abs() <= 0.01 * other
}

/// Checks a weight that a backend is to have.
///
/// # Errors
///
/// It is not a number from 0 to [`MAX_WEIGHT`].
pub fn check_weight(weight: f64) -> Result<(), String> {
    match (0.0..=MAX_WEIGHT).contains(&weight) {
        true => Ok(()),
        false => Err(format!("the weight {weight} is out of range: choose 0 to {MAX_WEIGHT}")),
    }
}

/// Checks that a backend's name does not stand for another one in requests, which name backends by address too.
fn check_name(name: &str, address: IpAddr) -> Result<(), Problem> {
    match name.parse::<IpAddr>() {
        Ok(other) if other != address => {
            Err(Problem::new(format!("{other} is not the address of this backend"), "write another name, or none"))
        }
        _ => Ok(()),
    }
}

impl Backend {
    /// Checks a backend that does not come from the configuration as one that does.
    ///
    /// # Errors
    ///
    /// The configuration would refuse the name, the address or the weight.
    pub fn check(&self) -> Result<(), String> {
        let at = |key: &'static str| move |Problem { what, remedy }| format!("{key}: {what}; {remedy}");
        single(self.address).map_err(at("address"))?;
        let name = plain(self.name.clone()).and_then(|name| check_name(&name, self.address));
        name.map_err(at("name"))?;
        check_weight(self.weight)
    }

    /// Reads a backend. `has_ids`: packets of its VIP are routed by connection ID.
    pub(super) fn read(mut table: Table<'_>, has_ids: bool) -> Option<(Backend, BackendLines)> {
        let address = table.require("address", "\"10.0.0.2\"", host);
        let name = table.get("name", plain_name);
        let weight = table.get("weight", number(0.0..=MAX_WEIGHT)).unwrap_or(1.0);
        let server_id = table.get("server_id", whole(0..=i64::MAX));
        if !has_ids {
            table.warn_of_no_effect("server_id", "the policy is not \"zero-rtt\"");
        }
        if let (Some(name), Some(address)) = (&name, address)
            && let Err(problem) = check_name(name, address)
        {
            table.fault(problem, "name");
        }
        let lines = BackendLines { name: table.line_of("name"), address: table.line_of("address") };
        table.finish();
        let address = address?;
        let backend = Backend {
            name: name.unwrap_or_else(|| address.to_string()),
            address,
            weight,
            server_id: server_id.map(|id| id as u64),
        };
        Some((backend, lines))
    }
}
