//! Names of addresses, as /etc/hosts has them.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use dwell_engine::names::is_host_name;

use super::{MAX_NAMES, lines};

/// The first name of each address.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    names: HashMap<IpAddr, Arc<str>>,
    left_out: u64,
}

impl Hosts {
    pub(super) fn parse(text: &str) -> Hosts {
        let mut hosts = Hosts::default();
        for mut words in lines(text) {
            let (Some(address), Some(name)) = (words.next(), words.next()) else {
                continue;
            };
            match address.parse::<IpAddr>() {
                Ok(address) if is_host_name(name) && hosts.names.len() < MAX_NAMES => {
                    hosts.names.entry(address.to_canonical()).or_insert_with(|| name.into());
                }
                _ => hosts.left_out += 1,
            }
        }
        hosts
    }

    pub(super) fn name(&self, address: IpAddr) -> Option<Arc<str>> {
        self.names.get(&address).cloned()
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_first_name_and_what_is_no_line_is_counted() {
        let hosts = Hosts::parse(
            "127.0.0.1\tlocalhost loopback\n# 192.0.2.1 comment\n192.0.2.7 db.example db # the database\n\
             192.0.2.7 again\n::ffff:192.0.2.9 mapped\nfe80::1%eth0 link\n192.0.2.8\n192.0.2.10 \u{1b}[2J\n",
        );
        let name = |address: &str| hosts.name(address.parse().unwrap());
        assert_eq!(name("127.0.0.1").as_deref(), Some("localhost"));
        assert_eq!(name("192.0.2.7").as_deref(), Some("db.example"));
        assert_eq!(name("192.0.2.9").as_deref(), Some("mapped"));
        assert_eq!([name("192.0.2.1"), name("192.0.2.8"), name("192.0.2.10")], [const { None }; 3]);
        assert_eq!(hosts.left_out(), 2);
    }

    #[test]
    fn a_large_file_takes_bounded_memory() {
        let text: String = (0..70_000u32).map(|n| format!("{} h{n}\n", std::net::Ipv4Addr::from(n))).collect();
        let hosts = Hosts::parse(&text);
        assert_eq!((hosts.names.len(), hosts.left_out()), (MAX_NAMES, 70_000 - MAX_NAMES as u64));
    }
}
