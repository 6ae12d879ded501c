use std::sync::atomic::AtomicBool;

use rand::{Rng, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::{Ends, RoundTrips, output, serve};
use crate::{Nanos, Result};

/// Queries by `dig`, one after another and each for a different name, which `dnsmasq` answers.
#[derive(Debug, Clone, Copy)]
pub struct Dns {
    /// The number of queries.
    pub queries: u32,
    /// Random seed of the names.
    pub seed: u64,
}

impl Dns {
    /// Sends the queries from the client to the server. Returns the round trips of answered queries, in whole
    /// microseconds.
    pub fn run(&self, ends: Ends<'_>, stop: &AtomicBool) -> Result<RoundTrips> {
        let address = ends.address.to_string();
        let _server = serve(
            ends.server,
            "dnsmasq",
            |command| {
                command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts"]);
                command.args(["--bind-interfaces", "--except-interface=lo", "--user=root", "--pid-file="]);
                command.args(["--log-facility=/dev/null", "--address=/test/192.0.2.1"]);
                command.arg(format!("--listen-address={address}"));
            },
            "udp",
            53,
        )?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut arguments: Vec<String> = ["-u", "+noall", "+stats", "+tries=1", "+time=2"].map(str::to_owned).to_vec();
        arguments.push(format!("@{address}"));
        arguments.extend((0..self.queries).map(|_| format!("{:016x}.test", random.next_u64())));
        Ok(parse(&output(ends.client, "dig", &arguments, stop)?))
    }
}

fn parse(text: &str) -> RoundTrips {
    let times = text.lines().filter_map(|line| {
        let micros = line.strip_prefix(";; Query time: ")?.strip_suffix(" usec")?;
        micros.parse().ok().map(Nanos::from_micros)
    });
    RoundTrips(times.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_times_are_read() {
        let text = ";; Query time: 25123 usec\n;; SERVER: 10.77.4.2#53(10.77.4.2) (UDP)\n\n;; Query time: 9 usec\n";
        assert_eq!(parse(text).0, [Nanos(25_123_000), Nanos(9_000)]);
    }
}
