//! A VIP that runs: its backends with their weights, and the table that follows.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    time::{Duration, Instant},
};

use dwell_engine::{
    response::{Estimate, Record},
    steer::{
        Backend as Ended, HeavyShare, Intervals, LatencySteering, Maglev, Manual, OutOfRange, Policy, Seen, Share,
        maglev::{self, Member},
    },
};

use super::heavy;
use crate::{
    api::HealthWord,
    config::{Backend, PolicyName, Vip},
};

/// A table that differs from weights by no more than this part of each is as good as another.
const NEAR: f64 = 0.01;

/// A VIP that runs.
pub(super) struct VipRun {
    pub number: u32,
    pub vip: Vip,
    pub backends: Vec<BackendRun>,
    policy: Box<dyn Policy>,
    intervals: Intervals,
    /// The table that the kernel has.
    pub table: Vec<u32>,
    /// The part of it that each number has.
    shares: HashMap<u32, f64>,
    /// What it was made of: numbers and weights.
    made_of: Vec<(u32, f64)>,
    /// The part of it that the last change changed. None if it is the first that this process gives.
    pub change: Option<f64>,
    /// The same of all changes of this interval.
    changing: Option<f64>,
    /// The same of all changes of the last interval.
    pub disruption: Option<f64>,
    /// All fail their checks, so that all are kept.
    pub all_down: bool,
    /// How many connections of a server are heavy, where that is not configured.
    pub heavy: Option<HeavyShare>,
}

/// A backend that runs.
#[derive(Debug, Clone)]
pub(super) struct BackendRun {
    pub real: u32,
    pub backend: Backend,
    pub share: Share,
    pub is_draining: bool,
    pub health: HealthRun,
    /// Whether a way there is known, now or until lately.
    pub is_reachable: bool,
    pub seen: Option<Seen>,
}

/// What is known of backends from before this process, by number.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    pub weights: BTreeMap<u32, f64>,
    /// Whether the kernel took them for up.
    pub were_up: BTreeMap<u32, bool>,
}

/// What checks say of a backend.
#[derive(Debug, Clone, Default)]
pub(super) struct HealthRun {
    /// None before the first answer.
    pub is_up: Option<bool>,
    /// When it came back.
    pub since: Option<Instant>,
    /// What the last check said if it failed.
    pub why: Option<String>,
    /// How long the last good one took.
    pub took: Option<Duration>,
}

impl HealthRun {
    /// Of a backend that the kernel takes for down.
    pub(super) fn down() -> HealthRun {
        HealthRun { is_up: Some(false), ..HealthRun::default() }
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_up == Some(false)
    }

    /// The part of its weight that it is given after it came back: in tenths, so that tables do not
    /// change at each look.
    fn part(&self, ramp: Duration, now: Instant) -> f64 {
        let Some(since) = self.since.filter(|_| !ramp.is_zero()) else {
            return 1.0;
        };
        let gone = now.saturating_duration_since(since).as_secs_f64() / ramp.as_secs_f64();
        ((gone * 10.0).floor() + 1.0).min(10.0) / 10.0
    }

    pub(super) fn word(&self, ramp: Duration, now: Instant) -> HealthWord {
        match self.is_up {
            None => HealthWord::Unchecked,
            Some(false) => HealthWord::Down,
            Some(true) if self.part(ramp, now) < 1.0 => HealthWord::Rising,
            Some(true) => HealthWord::Up,
        }
    }
}

/// The policy of a VIP.
fn policy(vip: &Vip) -> Result<Box<dyn Policy>, OutOfRange> {
    Ok(match vip.policy {
        PolicyName::Maglev | PolicyName::ZeroRtt => Box::new(Maglev),
        PolicyName::Weights => Box::new(Manual),
        PolicyName::Latency => Box::new(LatencySteering::new(vip.latency.steering)?),
    })
}

impl VipRun {
    pub(super) fn new(number: u32, vip: Vip) -> Result<VipRun, OutOfRange> {
        Ok(VipRun {
            number,
            policy: policy(&vip)?,
            intervals: Intervals::new(vip.latency.intervals)?,
            heavy: heavy::share_of(&vip)?,
            vip,
            backends: Vec::new(),
            table: Vec::new(),
            shares: HashMap::new(),
            made_of: Vec::new(),
            change: None,
            changing: None,
            disruption: None,
            all_down: false,
        })
    }

    /// What it becomes by another configuration. What is known of backends that stay is kept. `reals`
    /// are the numbers of its backends, and whether they drain; `earlier` knows of them from before this
    /// process.
    ///
    /// What the policy remembers stays with `before` until [`VipRun::remember`].
    pub(super) fn become_of(
        before: Option<&VipRun>,
        number: u32,
        vip: Vip,
        reals: &[(u32, bool)],
        earlier: &Earlier,
    ) -> Result<VipRun, OutOfRange> {
        let mut run = VipRun::new(number, vip)?;
        let mut old = BTreeMap::new();
        if let Some(before) = before {
            run.table.clone_from(&before.table);
            run.shares.clone_from(&before.shares);
            run.made_of.clone_from(&before.made_of);
            run.change = before.change;
            run.changing = before.changing;
            run.disruption = before.disruption;
            run.all_down = before.all_down;
            run.keep_heavy(before);
            old = before.backends.iter().map(|run| (run.real, run)).collect();
        }
        let is_same_policy = before.is_some_and(|before| before.vip.policy == run.vip.policy);
        for (backend, (real, is_draining)) in run.vip.backends.iter().zip(reals) {
            let weight_before = || {
                earlier
                    .weights
                    .get(real)
                    .filter(|_| !matches!(run.vip.policy, PolicyName::Maglev | PolicyName::ZeroRtt))
            };
            let initial = Share::initial(backend.weight);
            let mut next = match old.get(real) {
                Some(was) => BackendRun {
                    share: if is_same_policy { carried(was, backend.weight) } else { initial },
                    ..(*was).clone()
                },
                None => BackendRun {
                    real: *real,
                    share: weight_before().map_or(initial, |weight| Share { weight: *weight, ..initial }),
                    backend: backend.clone(),
                    is_draining: false,
                    health: match earlier.were_up.get(real) {
                        Some(false) => HealthRun::down(),
                        _ => HealthRun::default(),
                    },
                    is_reachable: false,
                    seen: None,
                },
            };
            next.backend = backend.clone();
            next.is_draining = *is_draining;
            if run.vip.check.is_none() {
                next.health = HealthRun::default();
            }
            run.backends.push(next);
        }
        Ok(run)
    }

    /// Takes over what the policy remembers, if it is the same.
    pub(super) fn remember(&mut self, before: VipRun) {
        if before.vip.policy == self.vip.policy && before.vip.latency == self.vip.latency {
            self.policy = before.policy;
            self.intervals = before.intervals;
        }
    }

    /// Takes an epoch of a connection.
    pub(super) fn add(&mut self, record: &Record, estimate: &Estimate) {
        self.intervals.add(record.real, record, estimate);
    }

    /// Ends the interval: the policy sets weights.
    pub(super) fn end_interval(&mut self, active: impl Fn(u32) -> u64) {
        let ended: Vec<Ended> = self
            .backends
            .iter()
            .map(|run| Ended {
                real: run.real,
                configured: run.backend.weight,
                active: active(run.real),
                is_usable: run.is_usable(),
            })
            .collect();
        let seen = self.intervals.end(&ended);
        let shares: Vec<Share> = self.backends.iter().map(|run| run.share).collect();
        let next = self.policy.step(&seen, &shares);
        for ((run, seen), share) in self.backends.iter_mut().zip(seen).zip(next) {
            run.seen = Some(seen);
            run.share = share;
        }
    }

    /// The weight of each backend in the table, in their order. All that fail are kept if none is left;
    /// the second value tells whether that is so.
    fn weights(&self, ramp: Duration, now: Instant) -> (Vec<f64>, bool) {
        let may = |run: &BackendRun| !run.is_draining && run.share.weight > 0.0;
        let is_there = |run: &BackendRun| may(run) && run.is_reachable;
        let weight = |run: &BackendRun| match is_there(run) && !run.health.is_down() {
            true => run.share.weight * run.health.part(ramp, now),
            false => 0.0,
        };
        let weights: Vec<f64> = self.backends.iter().map(weight).collect();
        if weights.iter().any(|weight| *weight > 0.0) {
            return (weights, false);
        }
        let fails = |run: &BackendRun| is_there(run) && run.health.is_down();
        let all_down = self.backends.iter().any(fails);
        let kept = |run: &BackendRun| if is_there(run) { run.share.weight } else { 0.0 };
        (self.backends.iter().map(kept).collect(), all_down)
    }

    /// Makes the table anew if weights have changed. True if the kernel has to be told.
    pub(super) fn build(&mut self, ramp: Duration, now: Instant) -> bool {
        let (weights, all_down) = self.weights(ramp, now);
        self.all_down = all_down;
        let reals = self.backends.iter().map(|run| run.real);
        let made_of: Vec<(u32, f64)> = reals.zip(weights.iter().copied()).filter(|(_, weight)| *weight > 0.0).collect();
        let is_new = self.table.len() != self.vip.table_size as usize && !made_of.is_empty();
        if !is_new && self.is_made_of(&made_of) {
            return false;
        }
        let members: Vec<Member> = self
            .backends
            .iter()
            .zip(&weights)
            .map(|(run, weight)| Member { id: identity(run.backend.address), weight: *weight, real: run.real })
            .collect();
        let table = match made_of.is_empty() {
            true => Vec::new(),
            false => maglev::table(self.vip.table_size, &members),
        };
        self.made_of = made_of;
        if table == self.table {
            return false;
        }
        let is_first = self.table.is_empty() && self.changing.or(self.disruption).is_none();
        self.change = match table.len() == self.table.len() {
            true => Some(maglev::disruption(&self.table, &table)),
            false => (!is_first).then_some(1.0),
        };
        self.changing = Some(self.changing.unwrap_or(0.0) + self.change.unwrap_or(0.0));
        self.shares = parts(&table);
        self.table = table;
        true
    }

    /// True if the table is of these weights: what somebody set, or by a policy that measures nearly so, as
    /// no table is as exact as that and each costs a millisecond.
    fn is_made_of(&self, weights: &[(u32, f64)]) -> bool {
        if self.vip.policy != PolicyName::Latency || weights.len() != self.made_of.len() {
            return weights == self.made_of;
        }
        let total = |weights: &[(u32, f64)]| weights.iter().map(|(_, weight)| weight).sum::<f64>();
        let (now, then) = (total(weights), total(&self.made_of));
        let is_near = |((real, weight), (old_real, old)): (&(u32, f64), &(u32, f64))| {
            let (part, old) = (weight / now, old / then);
            real == old_real && (part - old).abs() <= NEAR * old
        };
        weights.iter().zip(&self.made_of).all(is_near)
    }

    /// Ends an interval of changes: those of the last one are told until the next ends.
    pub(super) fn end_changes(&mut self) {
        self.disruption = Some(self.changing.take().unwrap_or(0.0).min(1.0));
    }

    /// The part of the table that each backend has, in their order.
    pub(super) fn shares(&self) -> impl Iterator<Item = f64> {
        let share = |run: &BackendRun| self.shares.get(&run.real).copied().unwrap_or(0.0);
        self.backends.iter().map(share)
    }
}

/// The part of a table that each number has.
fn parts(table: &[u32]) -> HashMap<u32, f64> {
    if table.is_empty() {
        return HashMap::new();
    }
    // Numbers of a VIP lie side by side, mostly: counting in a row is much faster than in a map.
    let (least, most) = table.iter().fold((u32::MAX, 0), |(least, most), real| (least.min(*real), most.max(*real)));
    let mut counts = vec![0u32; (most - least) as usize + 1];
    for real in table {
        counts[(real - least) as usize] += 1;
    }
    let all = table.len() as f64;
    let counted = (least..).zip(counts).filter(|(_, count)| *count > 0);
    counted.map(|(real, count)| (real, f64::from(count) / all)).collect()
}

impl BackendRun {
    /// Healthy, and not draining.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_draining && !self.health.is_down() && self.is_reachable
    }
}

/// The share of a backend that stays, whose configured weight may be another.
fn carried(was: &BackendRun, configured: f64) -> Share {
    if was.backend.weight == configured {
        return was.share;
    }
    let weight = scaled(was.share.weight, was.backend.weight, configured);
    Share { weight, ..was.share }
}

/// A weight that was steered to from one that was configured, beside another.
pub(super) fn scaled(weight: f64, was: f64, configured: f64) -> f64 {
    if was == configured {
        weight
    } else if was > 0.0 {
        weight * configured / was
    } else {
        configured
    }
}

/// Where entries of a table are depends on this: on the address alone, so that all balancers agree,
/// whatever they call a backend (FNV-1a).
fn identity(address: IpAddr) -> u64 {
    let v6 = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    v6.octets()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_told_of_one_interval_and_a_first_table_changes_nothing() {
        let text = r#"
            interface = "eth0"
            [[vip]]
            name = "web"
            address = "198.51.100.1"
            port = 80
            forward = "l2"
            table_size = 1009
            [[vip.backend]]
            address = "10.0.0.1"
            [[vip.backend]]
            address = "10.0.0.2"
        "#;
        let config = crate::config::Config::parse(text, std::path::Path::new("lb.toml"));
        let vip = config.expect("it is right").vips.remove(0);
        let reals = [(1, false), (2, false)];
        let mut run = VipRun::become_of(None, 1, vip, &reals, &Earlier::default()).expect("it is");
        let (ramp, now) = (Duration::ZERO, Instant::now());
        run.backends.iter_mut().for_each(|run| run.is_reachable = true);
        assert!(run.build(ramp, now));
        assert_eq!(run.change, None);
        run.end_changes();
        assert_eq!(run.disruption, Some(0.0));
        for is_draining in [true, false] {
            run.backends[1].is_draining = is_draining;
            assert!(run.build(ramp, now));
            let change = run.change.expect("there was one before");
            assert!((0.45..0.6).contains(&change), "{change}");
        }
        let twice = run.change.map(|change| 2.0 * change);
        run.end_changes();
        assert_eq!(run.disruption, twice.map(|twice| twice.min(1.0)));
        assert!(!run.build(ramp, now));
        run.end_changes();
        assert_eq!(run.disruption, Some(0.0));
    }
}
