//! Services of ports, as /etc/services has them.

use std::{collections::HashMap, sync::Arc};

use dwell_engine::names::is_host_name;

use super::{MAX_NAMES, lines};

/// The first name of each port and protocol.
#[derive(Debug, Default)]
pub(super) struct Services {
    names: HashMap<(u16, u8), Arc<str>>,
    left_out: u64,
}

impl Services {
    pub(super) fn parse(text: &str) -> Services {
        let mut services = Services::default();
        for mut words in lines(text) {
            let (Some(name), Some(place)) = (words.next(), words.next()) else {
                continue;
            };
            let place = place.split_once('/').and_then(|(port, protocol)| {
                let protocol = match protocol {
                    "tcp" => 6,
                    "udp" => 17,
                    "sctp" => 132,
                    _ => return None,
                };
                Some((port.parse().ok()?, protocol))
            });
            match place {
                Some(place) if is_host_name(name) && services.names.len() < MAX_NAMES => {
                    services.names.entry(place).or_insert_with(|| name.into());
                }
                _ => services.left_out += 1,
            }
        }
        services
    }

    pub(super) fn name(&self, port: u16, protocol: u8) -> Option<Arc<str>> {
        self.names.get(&(port, protocol)).cloned()
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_the_first_name_of_its_protocol() {
        let services = Services::parse(
            "# Network services\nhttp\t\t80/tcp\t\twww\t\t# WorldWideWeb\nweb 80/tcp\ndomain 53/udp\nx 99999/tcp\n\
             y 7/ddp\nz\n",
        );
        assert_eq!(services.name(80, 6).as_deref(), Some("http"));
        assert_eq!(services.name(53, 17).as_deref(), Some("domain"));
        assert_eq!([services.name(53, 6), services.name(7, 6)], [const { None }; 2]);
        assert_eq!(services.left_out(), 2);
    }
}
