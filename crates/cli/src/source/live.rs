//! The watched interfaces, and the clock of their records.

use anyhow::anyhow;
use clap::ValueEnum;
use dwell_probes::Interface;
use dwell_records::{Clock, Source};
use dwell_socket::clock::unix_offset_ns;

use super::host_name;
use crate::{
    exit::{Exit, Failure},
    log::log,
};

/// A hook for incoming packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HookName {
    /// What suits the verb.
    Auto,
    /// The queueing discipline.
    Tc,
    /// Before the network stack.
    Xdp,
}

/// The watched interfaces.
pub struct Interfaces(Vec<Interface>);

impl Interfaces {
    /// Finds interfaces by name, each of them once.
    pub fn find(names: &[String]) -> Result<Interfaces, Failure> {
        let mut interfaces = Vec::new();
        for name in names {
            let interface = Interface::find(name)?;
            if !interfaces.contains(&interface) {
                interfaces.push(interface);
            }
        }
        Ok(Interfaces(interfaces))
    }

    /// Whether every interface has an Ethernet header, which the XDP program needs.
    pub fn have_link_headers(&self) -> bool {
        self.0.iter().all(Interface::has_link_header)
    }

    /// Fails if an interface has no Ethernet header.
    pub fn require_link_headers(&self, option: &str) -> Result<(), Failure> {
        match self.0.iter().find(|interface| !interface.has_link_header()) {
            None => Ok(()),
            Some(interface) => Err(Failure::usage(anyhow!(
                "'{}' has no Ethernet header, which the XDP program needs: leave out {option}",
                interface.name
            ))),
        }
    }

    /// Returns the source of their records.
    pub fn source(&self) -> Result<Source, Failure> {
        let mut source = Source { clock: clock(), host: Some(host_name()), ..Source::default() };
        for interface in &self.0 {
            source.interfaces.insert(interface.index, &interface.name);
        }
        Ok(source)
    }

    /// Iterates over the interfaces.
    pub fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.0.iter()
    }

    /// Reports interfaces that are gone, and fails if none is left. `before` is called before each report.
    pub fn poll(&mut self, mut before: impl FnMut()) -> Result<(), Failure> {
        let (present, gone): (Vec<_>, Vec<_>) = self.0.drain(..).partition(|interface| interface.exists());
        self.0 = present;
        for interface in &gone {
            let error = anyhow!("interface '{}' is gone", interface.name);
            if self.0.is_empty() {
                return Err(Failure::new(Exit::Incomplete, error));
            }
            before();
            log(format_args!("{error}; the others are still watched"));
        }
        Ok(())
    }
}

/// Returns the current offset of the kernel's clock from Unix time; NTP changes it.
pub fn clock() -> Clock {
    Clock::with_offset(unix_offset_ns().into())
}

/// Fails if anything that was measured did not reach the report, naming how much of `what`, and why with a remedy.
pub fn fail_if_lost(lost: u64, what: &str, why: &str) -> Result<Exit, Failure> {
    match lost {
        0 => Ok(Exit::Done),
        _ => Err(Failure::new(Exit::Incomplete, anyhow!("{lost} {what} were lost: {why}"))),
    }
}
