//! The control plane's sign of life, and the tables that count while there is none.

use std::{path::Path, time::Duration};

use dwell_engine::{
    abi,
    balance::{Heartbeat, WhenStale},
};
use dwell_socket::clock::monotonic_ns;
use libbpf_rs::{MapCore, MapHandle};

use super::{maps, plane::Plane};
use crate::Error;

/// The name of the map, and of its pin.
const HEARTBEAT: &str = "heartbeat";

impl Plane {
    /// Renews the data plane: what it says of the control plane's age counts from now on.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn renew(&mut self, stale_after: Duration, when_stale: WhenStale) -> Result<(), Error> {
        let heartbeat = Heartbeat { renewed_ns: monotonic_ns(), stale_after, when_stale };
        let core = heartbeat.to_core(self.options().max_vips);
        maps::write(&self.map(HEARTBEAT), HEARTBEAT, &[0; 4], &core)?;
        self.heartbeat = Some(heartbeat);
        Ok(())
    }

    /// Returns how long ago the data plane was last renewed by this process; `None` if it was not.
    pub fn heartbeat_age(&self) -> Option<Duration> {
        self.heartbeat.map(|heartbeat| heartbeat.age(monotonic_ns()))
    }

    /// Returns how long before this process the last one renewed the data plane; `None` if there was none.
    pub fn inherited_age(&self) -> Option<Duration> {
        self.inherited_age
    }

    /// Returns the sign of life of the process that runs the data plane which is pinned in a folder, or ran it last;
    /// `None` if there is no data plane, or nobody has renewed it.
    ///
    /// # Errors
    ///
    /// If what is pinned there cannot be read.
    pub fn heartbeat_at(folder: &Path) -> Result<Option<Heartbeat>, Error> {
        let pin = folder.join(HEARTBEAT);
        if !pin.exists() {
            return Ok(None);
        }
        let map = MapHandle::from_pinned_path(&pin).map_err(crate::vantage::failed("open", HEARTBEAT))?;
        read(&map)
    }

    /// Replaces VIPs' tables of equal weights, by the VIPs' numbers. They count while the data plane is stale, if it was
    /// renewed with [`WhenStale::Equal`]. Each must be as long as the VIP's own table; an empty one removes it.
    ///
    /// # Errors
    ///
    /// If a number exceeds the options, or there is no memory for a table.
    pub fn set_equal_tables(&mut self, tables: &[(u32, &[u32])]) -> Result<(), Error> {
        tables.iter().try_for_each(|(_, entries)| self.check_most(entries))?;
        self.set_tables_behind(1, tables)
    }
}

/// Reads the sign of life in a map.
pub(super) fn read(map: &dyn MapCore) -> Result<Option<Heartbeat>, Error> {
    let core: Option<abi::dwell_heartbeat> = maps::read(map, HEARTBEAT, &[0; 4])?;
    Ok(core.as_ref().and_then(Heartbeat::from_core))
}
