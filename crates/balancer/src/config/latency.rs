//! `[latency]` and `[vip.latency]`: the constants of the policy `latency`.

use std::time::Duration;

use dwell_engine::steer::{Constant, IntervalsConfig, Kind, LatencyConfig};

use super::{
    table::{Problem, Table},
    value::{number, time, whole},
};

/// Constants of the policy `latency` (Appendix C of arXiv 2505.14358).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latency {
    /// How weights follow from latencies.
    pub steering: LatencyConfig,
    /// How latencies are aggregated from the measurements of connections.
    pub intervals: IntervalsConfig,
}

impl Latency {
    /// Reads the table `latency` of `parent`. Keys that are missing keep their value of `defaults`.
    pub(super) fn read(parent: &mut Table<'_>, defaults: &Latency) -> Latency {
        let mut latency = defaults.clone();
        let Some(mut table) = parent.table("latency") else {
            return latency;
        };
        let Latency { steering, intervals } = &mut latency;
        read_constants(&mut table, &LatencyConfig::CONSTANTS, steering);
        read_constants(&mut table, &IntervalsConfig::CONSTANTS, intervals);
        let (low, high) = (steering.alpha_low, steering.alpha_high);
        if low > high {
            let problem = Problem::new(
                format!("alpha_low ({low}) is above alpha_high ({high})"),
                "a backend would be both raised and lowered: write a lower alpha_low",
            );
            table.fault(problem, "alpha_low");
        }
        table.finish();
        latency
    }
}

/// Reads the constants that the table has.
fn read_constants<C>(table: &mut Table<'_>, constants: &[Constant<C>], config: &mut C) {
    for constant in constants {
        let (least, most) = (constant.least, constant.most);
        let value = match constant.kind {
            Kind::Whole => table.get(constant.name, whole(least as u32..=most as u32)).map(f64::from),
            Kind::Number => table.get(constant.name, number(least..=most)),
            Kind::Time => {
                let [least, most] = [least, most].map(Duration::from_secs_f64);
                table.get(constant.name, time(least..=most)).map(|time| time.as_secs_f64())
            }
        };
        if let Some(value) = value {
            (constant.set)(config, value);
        }
    }
}
