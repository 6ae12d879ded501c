//! Interfaces that are watched, and the clock of what they show.

use anyhow::{Context, anyhow};
use dwell_probes::Interface;
use dwell_records::{Clock, Source};
use dwell_socket::clock::{monotonic_ns, realtime_ns};

use crate::{
    exit::{Exit, Failure},
    tell::tell,
};

/// The interfaces that are watched.
pub struct Interfaces(Vec<Interface>);

impl Interfaces {
    /// Finds them by name; each once.
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

    /// The program at XDP reads Ethernet only.
    pub fn require_link_headers(&self, option: &str) -> Result<(), Failure> {
        match self.0.iter().find(|interface| !interface.has_link_header()) {
            None => Ok(()),
            Some(interface) => Err(Failure::usage(anyhow!(
                "'{}' has no Ethernet header, which the XDP program wants: leave out {option}",
                interface.name
            ))),
        }
    }

    /// What their records mean.
    pub fn source(&self) -> Result<Source, Failure> {
        let mut source = Source { clock: clock(), ..Source::default() };
        for interface in &self.0 {
            source.interfaces.insert(interface.index, &interface.name);
        }
        Ok(source)
    }

    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.0.iter()
    }

    /// Tells of those that are gone; an error if none is left. `before` is called
    /// before something is told.
    pub fn look(&mut self, mut before: impl FnMut()) -> Result<(), Failure> {
        let (present, gone): (Vec<_>, Vec<_>) = self.0.drain(..).partition(|interface| interface.exists());
        self.0 = present;
        for interface in &gone {
            let error = anyhow!("interface '{}' is gone", interface.name);
            if self.0.is_empty() {
                return Err(Failure::new(Exit::Incomplete, error));
            }
            before();
            tell(format_args!("{error}; the others are still watched"));
        }
        Ok(())
    }
}

/// Turns the kernel's time into Unix time; NTP moves them apart.
pub fn clock() -> Clock {
    Clock::with_offset(i128::from(realtime_ns()) - i128::from(monotonic_ns()))
}

/// The number that the kernel drew when it started.
pub fn boot_id() -> Result<String, Failure> {
    let path = "/proc/sys/kernel/random/boot_id";
    let boot = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {path}"))
        .map_err(|error| Failure::new(Exit::Host, error))?;
    Ok(boot.trim().to_owned())
}
