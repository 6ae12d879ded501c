//! Which flows are followed.

use dwell_engine::filter::Filter;

use crate::{args::port, exit::Failure};

/// Which flows to follow.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct FilterArgs {
    /// Only flows with this port at one end
    #[arg(short, long, value_name = "PORT", value_parser = port)]
    pub port: Option<u16>,

    /// Only flows with an end in this range, or with ! only others: [!]PREFIX[:PORT[-PORT]] or
    /// [!]:PORT[-PORT]; or flows of an expression as for tcpdump, as in 'tcp port 443 and not net 10.0.0.0/8'; may be given
    /// several times, with 16 terms in all
    #[arg(short, long, value_name = "FILTER", allow_hyphen_values = true)]
    pub filter: Vec<String>,
}

impl FilterArgs {
    /// Returns the filter of `--filter` and `--port`, which must both hold.
    pub fn with_port(&self) -> Result<Filter, Failure> {
        let mut filter = self.without_port()?;
        if let Some(port) = self.port {
            filter.require_port(port).map_err(Failure::usage)?;
        }
        Ok(filter)
    }

    /// Returns the filter of `--filter` alone.
    pub fn without_port(&self) -> Result<Filter, Failure> {
        Filter::parse(&self.filter).map_err(Failure::usage)
    }
}
