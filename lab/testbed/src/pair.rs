use std::net::Ipv4Addr;

use crate::{Namespace, Result};

/// Two hosts with a link between them that does not delay.
#[derive(Debug)]
pub struct Pair {
    /// The left host, with the device `left0`.
    pub left: Namespace,
    /// The right host, with the device `right0`.
    pub right: Namespace,
}

impl Pair {
    /// The address of the left host.
    pub const LEFT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
    /// The address of the right host.
    pub const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

    /// Makes the hosts. They are removed when this is dropped.
    ///
    /// # Errors
    ///
    /// If this host cannot make network namespaces.
    pub fn start(name: &str) -> Result<Pair> {
        let pair = Pair {
            left: Namespace::create(&format!("{name}-left"))?,
            right: Namespace::create(&format!("{name}-right"))?,
        };
        pair.left.ip(&format!(
            "link add left0 type veth peer name right0 netns {}\n\
             addr add {}/24 dev left0\nlink set left0 up\n",
            pair.right.name(),
            Pair::LEFT
        ))?;
        pair.right.ip(&format!("addr add {}/24 dev right0\nlink set right0 up\n", Pair::RIGHT))?;
        Ok(pair)
    }
}
