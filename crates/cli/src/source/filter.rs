//! Which flows are followed.

use dwell_engine::filter::Filter;

use crate::exit::Failure;

/// Returns the filter of `--filter` and `--port`, which must both hold.
pub fn filter(texts: &[String], port: Option<u16>) -> Result<Filter, Failure> {
    let mut filter = Filter::parse(texts).map_err(Failure::usage)?;
    if let Some(port) = port {
        filter.require_port(port).map_err(Failure::usage)?;
    }
    Ok(filter)
}
