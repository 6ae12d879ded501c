//! A resolver without a cache, whose upstream server is 14 ms away behind a path that loses 12 % of the queries.

use dwell_testbed::Result;

use crate::problem::{
    network::{port, slow},
    stage::Stage,
};

/// dnsmasq that answers on one address, and asks or knows what follows.
const NAME_SERVER: &str = "dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --cache-size=0 --user=root \
                           --pid-file= --log-facility=/dev/null --bind-interfaces --except-interface=lo";

/// What follows has this host's resolver for its own.
const WITH_RESOLVER: &str = "mount --bind resolv.conf /etc/resolv.conf || exit\n";

pub fn prepare(stage: &mut Stage) -> Result<()> {
    let network = &mut stage.network;
    network.switch(
        "lan",
        &[
            port("host", "eth0", "10.0.0.5/24"),
            port("api", "eth0", "10.0.0.10/24"),
            port("resolver", "eth0", "10.0.0.53/24"),
        ],
    )?;
    network.path(
        [port("resolver", "wan0", "198.51.100.2/24"), port("upstream", "eth0", "203.0.113.53/24")],
        slow(14, 100.0, 200, 0.12),
    )?;
    stage.write("resolv.conf", "nameserver 10.0.0.53\n")?;
    let job = "for n in $(seq 20); do curl -s -o answer http://api.example:8080/; done\n";
    stage.write("job.sh", format!("[ $own ] || own=1 exec unshare --mount sh job.sh\n{WITH_RESOLVER}{job}"))?;
    let look_ups = "for n in $(seq 30); do while :; do getent ahostsv4 $n.example; sleep 1.$n; done & done; wait\n";
    stage.write("look-ups.sh", format!("{WITH_RESOLVER}{look_ups}"))?;
    stage.start("upstream", "upstream", &format!("{NAME_SERVER} --address=/example/10.0.0.10"))?;
    stage.start("resolver", "resolver", &format!("{NAME_SERVER} --server=203.0.113.53"))?;
    stage.traffic("api", "api", "serve 8080")?;
    stage.traffic("requests", "host", "ask 10.0.0.10:8080 --pause 80")?;
    stage.start("look-ups", "host", "unshare --mount sh look-ups.sh").map(drop)
}

pub fn before(_stage: &mut Stage, step: usize) -> Result<&'static str> {
    Ok(if step == 4 { "resolver" } else { "host" })
}
