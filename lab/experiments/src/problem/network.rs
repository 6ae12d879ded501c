//! The hosts of a page: network namespaces with the devices and addresses that the page has.

use std::{collections::BTreeMap, fmt::Write as _};

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

    /// Connects two hosts of different subnets by a path whose first direction leads from the first host to the second. Each
    /// host has a route to the other's subnet; `.254` of each subnet is the path's.
    pub fn path(&mut self, ends: [Port; 2], link: LinkPair) -> Result<()> {
        let router = format!("path{}", self.emulators.len());
        let [a, b] = &ends;
        self.pair([(a.host, a.device), (&router, "left0")])?;
        self.pair([(b.host, b.device), (&router, "right0")])?;
        let subnet = |port: &Port| -> (String, String) {
            let (address, length) = port.address.split_once('/').unwrap_or((port.address, "32"));
            let net = address.rsplit_once('.').map_or("", |(net, _)| net);
            (format!("{net}.0/{length}"), format!("{net}.254"))
        };
        for (device, port, other) in [("left0", a, b), ("right0", b, a)] {
            let ((_, gateway), (beyond, _)) = (subnet(port), subnet(other));
            let host = self.host(port.host)?;
            host.ip(&format!(
                "address add {} dev {own}\nroute replace {beyond} via {gateway} dev {own} onlink\n",
                port.address,
                own = port.device
            ))?;
            // The link's queue counts packets, so none may be longer than the link's.
            run(host.command("ethtool").args(["-K", port.device, "tso", "off", "gso", "on"]), "")?;
            self.host(&router)?.ip(&format!("address add {gateway}/24 dev {device}\n"))?;
        }
        let mut rules = "*mangle\n".to_owned();
        let mut queues = Vec::new();
        for (queue, (input, link)) in
            [("left0", link.to_vantage), ("right0", link.from_vantage)].into_iter().enumerate()
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
        let host = Namespace::create("problem")?;
        host.enter(|| {
            for (option, value) in [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0")] {
                let file = format!("/proc/sys/net/ipv4/{option}");
                std::fs::write(&file, value).map_err(Error::io(format!("write {value} to {file}")))?;
            }
            Ok(())
        })??;
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
