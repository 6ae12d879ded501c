//! Connections that nobody made.

use super::Flow;
use crate::{
    TraceConfig,
    random::{Random, Zipf},
};

/// Connections by a Poisson process, of clients that are drawn, with lengths by Zipf.
#[derive(Debug, Clone)]
pub struct Synthetic {
    connections: u64,
    clients: u32,
    /// None: all clients alike.
    popularity: Option<Zipf>,
    /// The part of connections that are short, and the most packets of these.
    short: Option<(f64, u32)>,
    lengths: Zipf,
    gap_ns: f64,
    start_gap_ns: f64,
}

impl Synthetic {
    /// None of another kind.
    pub(crate) fn new(config: &TraceConfig, short: u32) -> Option<Synthetic> {
        let TraceConfig::Synthetic {
            clients,
            connections,
            packet_gap_ms,
            connection_gap_ms,
            length_skew,
            longest,
            client_skew,
            short_part,
        } = *config
        else {
            return None;
        };
        let lengths = Zipf::new(longest, length_skew);
        let short = short_part.map(|part| (part, short.max(1)));
        let mean = match short {
            None => lengths.mean(),
            Some((part, most)) => {
                let of_short = f64::from(most + 1) / 2.0;
                part * of_short + (1.0 - part) * (f64::from(most) + lengths.mean())
            }
        };
        Some(Synthetic {
            connections,
            clients,
            popularity: (client_skew > 0.0).then(|| Zipf::new(clients, client_skew)),
            short,
            lengths,
            gap_ns: connection_gap_ms * 1e6,
            start_gap_ns: packet_gap_ms * 1e6 * mean,
        })
    }

    pub(super) fn flows(&self, seed: u64) -> impl Iterator<Item = Flow> + '_ {
        let mut random = Random::of(seed, 0x0074_7261_6365);
        let mut now_ns = 0;
        (0..self.connections).map(move |_| {
            now_ns += random.exponential(self.start_gap_ns);
            Flow {
                start_ns: now_ns,
                client: match &self.popularity {
                    None => random.below(self.clients as usize) as u32,
                    Some(zipf) => zipf.draw(&mut random) - 1,
                },
                packets: self.length(&mut random),
                bytes: 0,
                gap_ns: self.gap_ns,
            }
        })
    }

    fn length(&self, random: &mut Random) -> u32 {
        match self.short {
            None => self.lengths.draw(random),
            Some((part, most)) if random.unit() < part => random.below(most as usize) as u32 + 1,
            Some((_, most)) => most + self.lengths.draw(random),
        }
    }
}
