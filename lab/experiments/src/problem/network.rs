//! The hosts of a page: network namespaces with the devices and addresses that the page has.

use std::{collections::BTreeMap, fmt::Write as _, net::Ipv4Addr};

use dwell_testbed::{
    BitsPerSecond, EmulatorConfig, EmulatorHandle, Error, LinkPair, LinkSpec, Namespace, Nanos, Probability,
    QueueConfig, QueueLimit, Result, error::run,
};

/// A device of a host, with its address and the length of its prefix.
pub struct Port {
    pub host: &'static str,
    pub device: &'static str,
    pub address: &'static str,
}

/// A port, in the order in which it is read: `port("api", "eth0", "10.0.0.10/24")`.
pub const fn port(host: &'static str, device: &'static str, address: &'static str) -> Port {
    Port { host, device, address }
}

impl Port {
    fn own(&self) -> Result<Ipv4Addr> {
        self.parts().map(|(own, _)| own)
    }

    fn length(&self) -> Result<u32> {
        self.parts().map(|(_, length)| length)
    }

    fn network(&self) -> Result<Ipv4Addr> {
        Ok(Ipv4Addr::from_bits(self.own()?.to_bits() & self.mask()?))
    }

    /// The last address of the subnet that a host may have.
    fn last(&self) -> Result<Ipv4Addr> {
        Ok(Ipv4Addr::from_bits((self.own()?.to_bits() | !self.mask()?) - 1))
    }

    fn mask(&self) -> Result<u32> {
        Ok(u32::MAX << (32 - self.length()?))
    }

    fn parts(&self) -> Result<(Ipv4Addr, u32)> {
        let parts =
            self.address.split_once('/').and_then(|(own, length)| Some((own.parse().ok()?, length.parse().ok()?)));
        parts.ok_or_else(|| Error::invalid(format!("address {}", self.address), "write A.B.C.D/LENGTH"))
    }
}

/// Hosts and what connects them. Dropping it removes them.
#[derive(Default)]
pub struct Network {
    // In the order in which they must go.
    emulators: Vec<EmulatorHandle>,
    hosts: BTreeMap<String, Namespace>,
}

impl Network {
    /// A host that was connected before.
    pub fn host(&self, name: &str) -> Result<&Namespace> {
        self.hosts.get(name).ok_or_else(|| Error::Unknown(format!("host {name}")))
    }

    /// Connects two hosts by one wire.
    pub fn wire(&mut self, ends: [Port; 2]) -> Result<()> {
        let [a, b] = ends;
        self.pair([(a.host, a.device), (b.host, b.device)])?;
        for end in [&a, &b] {
            self.host(end.host)?.ip(&format!("address add {} dev {} nodad\n", end.address, end.device))?;
        }
        Ok(())
    }

    /// Connects two hosts of different subnets by a path whose first direction leads from the first host to the second. All
    /// that the second host sends takes this path, and goes on from the first one. The last address of each subnet is the path's.
    pub fn path(&mut self, ends: [Port; 2], link: LinkPair) -> Result<()> {
        let router = format!("path{}", self.emulators.len());
        let [near, far] = ends;
        for (end, device) in [(&near, "near0"), (&far, "far0")] {
            self.pair([(end.host, end.device), (&router, device)])?;
            self.host(end.host)?.ip(&format!("address add {} dev {}\n", end.address, end.device))?;
            let (gateway, length) = (end.last()?, end.length()?);
            self.host(&router)?.ip(&format!("address add {gateway}/{length} dev {device}\n"))?;
            // The link's queue counts packets, so none may be longer than the link's.
            self.host(end.host)?.offload(end.device, "tso", "off")?;
        }
        let (beyond, length) = (far.network()?, far.length()?);
        self.host(near.host)?.ip(&format!("route add {beyond}/{length} via {}\n", near.last()?))?;
        self.host(&router)?.ip(&format!("route add default via {}\n", near.own()?))?;
        self.host(far.host)?.ip(&format!("route append default via {}\n", far.last()?))?;
        let mut rules = "*mangle\n".to_owned();
        let mut queues = Vec::new();
        for (queue, (input, link)) in [("near0", link.to_vantage), ("far0", link.from_vantage)].into_iter().enumerate()
        {
            let number = u16::try_from(queue).unwrap_or_default();
            let _ = writeln!(rules, "-A FORWARD -i {input} -j NFQUEUE --queue-num {number}");
            let namespace = Some(self.host(&router)?.name().to_owned());
            queues.push(QueueConfig { name: format!("{router} {input}"), namespace, queue: number, link });
        }
        run(
            self.host(&router)?.command("iptables-legacy-restore").args(["--wait", "10"]),
            &format!("{rules}COMMIT\n"),
        )?;
        self.emulators.push(EmulatorHandle::spawn_thread(EmulatorConfig { queues, ..EmulatorConfig::default() })?);
        Ok(())
    }

    /// Connects hosts of one subnet by a switch.
    pub fn switch(&mut self, name: &str, ports: &[Port]) -> Result<()> {
        self.add(name)?;
        self.host(name)?.ip("link add switch type bridge\nlink set switch up\n")?;
        for port in ports {
            self.pair([(port.host, port.device), (name, port.host)])?;
            self.host(name)?.ip(&format!("link set {} master switch\n", port.host))?;
            self.host(port.host)?.ip(&format!("address add {} dev {}\n", port.address, port.device))?;
        }
        Ok(())
    }

    /// Both devices, up and without an address.
    pub fn pair(&mut self, ends: [(&str, &str); 2]) -> Result<()> {
        let [(a, device), (b, peer)] = ends;
        for name in [a, b] {
            self.add(name)?;
        }
        let (from, to) = (self.host(a)?, self.host(b)?);
        from.ip(&format!("link add {device} type veth peer name {peer} netns {}\n", to.name()))?;
        for (host, device) in [(from, device), (to, peer)] {
            host.ip(&format!("link set {device} addrgenmode none up\n"))?;
        }
        Ok(())
    }

    /// A host that forwards, as all of them do.
    pub fn add(&mut self, name: &str) -> Result<()> {
        if self.hosts.contains_key(name) {
            return Ok(());
        }
        let host = Namespace::create(name)?;
        host.set(&[
            ("ipv4/ip_forward", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
            // The one that each kernel has and lets any namespace choose, so that walks are alike.
            ("ipv4/tcp_congestion_control", "reno"),
            ("ipv4/tcp_no_metrics_save", "1"),
        ])?;
        self.hosts.insert(name.to_owned(), host);
        Ok(())
    }
}

/// A path of this round trip, whose first direction has a rate in Mbit/s, a queue of packets, and loss.
pub fn slow(rtt_ms: u64, megabits: f64, packets: usize, loss: f64) -> LinkPair {
    let delay = LinkSpec::delay(Nanos::from_micros(rtt_ms * 500));
    let rate = BitsPerSecond::new((megabits * 1e6) as u64);
    let queue = Some(QueueLimit::Packets(packets));
    let loss = Probability::new(loss).unwrap_or_default();
    LinkPair {
        to_vantage: LinkSpec { rate_bits_per_second: rate, queue, loss, seed: 7, ..delay.clone() },
        from_vantage: delay,
    }
}
