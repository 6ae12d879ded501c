//! Names for the ends of flows: the process that has a socket, the service of a port, the host of an address. They come
//! from files of this host alone: nothing is asked of the network.

mod hosts;
mod owners;
mod services;

use std::{fs::File, io::Read, net::IpAddr, path::Path};

use self::{hosts::Hosts, owners::Owners, services::Services};

/// The part of a file that is read.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// Names that are kept of each file.
const MAX_NAMES: usize = 65_536;

/// What names have cost, and what could not be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Searches of all processes for sockets.
    pub searches: u64,
    /// Sockets of the last interval whose process is not known: it belongs to another user, or has ended.
    pub unknown: u64,
    /// Sockets and processes for which there was no room, since the start.
    pub omitted: u64,
    /// Names in files that were left out, because there were too many or they were not names.
    pub left_out: u64,
}

/// Names in bounded memory.
#[derive(Debug)]
pub struct Names {
    hosts: Hosts,
    services: Services,
    owners: Owners,
}

impl Names {
    /// Reads /etc/hosts and /etc/services. A file that cannot be read has no names.
    pub fn load() -> Names {
        Names {
            hosts: Hosts::parse(&text(Path::new("/etc/hosts"))),
            services: Services::parse(&text(Path::new("/etc/services"))),
            owners: Owners::default(),
        }
    }

    /// Begins an interval in which [`pid`](Self::pid) is asked about the sockets that are there.
    pub fn begin_interval(&mut self) {
        self.owners.begin_interval();
    }

    /// Returns the process that has a socket, by the socket's inode. One that is not known yet is found by the next
    /// [`search`](Self::search).
    pub fn pid(&mut self, inode: u32) -> Option<u32> {
        self.owners.pid(inode)
    }

    /// Searches for the processes of sockets that are not known, if there are any and the budget allows it. Returns whether
    /// it has searched.
    pub fn search(&mut self, now_ns: u64) -> bool {
        self.owners.search(now_ns)
    }

    /// Returns the name of a process, as the kernel keeps it: at most 15 characters.
    pub fn process(&self, pid: u32) -> Option<&str> {
        self.owners.name(pid)
    }

    /// Returns the name of an address in /etc/hosts.
    pub fn host(&self, address: IpAddr) -> Option<&str> {
        self.hosts.name(address)
    }

    /// Returns the service of a port in /etc/services, for an IP protocol number.
    pub fn service(&self, port: u16, protocol: u8) -> Option<&str> {
        self.services.name(port, protocol)
    }

    /// Returns what names have cost.
    pub fn counts(&self) -> Counts {
        let left_out = self.hosts.left_out() + self.services.left_out();
        Counts { left_out, ..self.owners.counts() }
    }
}

fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    // What was read before a failure counts.
    let _ = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Lines of a file without comments, each with its words.
fn lines(text: &str) -> impl Iterator<Item = std::str::SplitAsciiWhitespace<'_>> {
    text.lines().map(|line| line.split_once('#').map_or(line, |(line, _)| line).split_ascii_whitespace())
}

/// Returns true of what may be shown as a name.
fn is_name(text: &str) -> bool {
    const LONGEST: usize = 253;
    text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic())
}
