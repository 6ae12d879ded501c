//! Synthetic traces.

use super::Flow;
use crate::{
    TraceConfig,
    random::{Random, Zipf},
};

/// Random connections: starts by a Poisson process, clients and lengths by Zipf distributions.
#[derive(Debug, Clone)]
pub struct Synthetic {
    connections: u64,
    clients: u32,
    /// Distribution of clients; `None` if all are equally likely.
    popularity: Option<Zipf>,
    /// Share of short connections, and their maximum number of packets.
    short: Option<(f64, u32)>,
    lengths: Zipf,
    /// Whether all connections of a client have the same length.
    same_length: bool,
    gap_ns: f64,
    start_gap_ns: f64,
}

impl Synthetic {
    /// Returns `None` for a configuration of another kind.
    pub(crate) fn new(config: &TraceConfig, short: u32) -> Option<Synthetic> {
        let TraceConfig::Synthetic {
            clients,
            connections,
            packet_gap,
            connection_gap,
            length_skew,
            longest,
            client_skew,
            short_part,
            same_length,
        } = *config
        else {
            return None;
        };
        let lengths = Zipf::new(longest, length_skew);
        let short = short_part.map(|share| (share, short.max(1)));
        let mean = match short {
            None => lengths.mean(),
            Some((share, max)) => {
                let mean_short = f64::from(max + 1) / 2.0;
                share * mean_short + (1.0 - share) * (f64::from(max) + lengths.mean())
            }
        };
        Some(Synthetic {
            connections,
            clients,
            popularity: (client_skew > 0.0).then(|| Zipf::new(clients, client_skew)),
            short,
            lengths,
            same_length,
            gap_ns: connection_gap.as_nanos() as f64,
            start_gap_ns: packet_gap.as_nanos() as f64 * mean,
        })
    }

    pub(super) fn flows(&self, seed: u64) -> impl Iterator<Item = Flow> + '_ {
        let mut random = Random::stream(seed, 0x0074_7261_6365);
        let mut now_ns = 0;
        (0..self.connections).map(move |_| {
            now_ns += random.exponential(self.start_gap_ns);
            let client = match &self.popularity {
                None => random.below(self.clients as usize) as u32,
                Some(zipf) => zipf.draw(&mut random) - 1,
            };
            let packets = match self.same_length {
                true => self.length(&mut Random::stream(seed ^ 0x6c65_6e67_7468, client.into())),
                false => self.length(&mut random),
            };
            Flow { start_ns: now_ns, client, packets, bytes: 0, gap_ns: self.gap_ns }
        })
    }

    fn length(&self, random: &mut Random) -> u32 {
        match self.short {
            None => self.lengths.draw(random),
            Some((share, max)) if random.unit() < share => random.below(max as usize) as u32 + 1,
            Some((_, max)) => max + self.lengths.draw(random),
        }
    }
}
