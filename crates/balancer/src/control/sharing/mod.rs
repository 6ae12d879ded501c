//! What a balancer does as one of several: it reports what it has seen, decides for all if it leads, and builds its tables
//! from the set of weights that all have.

mod agreement;
mod quic;
mod sets;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use dwell_probes::balancer::ActiveConnections;
use dwell_socket::clock::realtime_ns;

use self::{agreement::Role, sets::Sets};
use super::{Balancer, ControlError, Event, backend::RunningBackend, random, saved_state::SavedState, vip::RunningVip};
use crate::{
    api::SharedStatus,
    config::{Config, StoreUrl},
    shared::{
        Shared,
        member::{News, Situation},
        quic::QuicReport,
        report::{Report, VipReport},
        set::{FORMAT, VipWeights, WeightSet},
    },
};

pub(in crate::control) use self::agreement::Agreement;

/// What a balancer shares with others.
pub(in crate::control) struct Sharing {
    link: Shared,
    name: String,
    situation: Situation,
    /// The reports of the others, if this balancer leads and has read them.
    reports: Option<BTreeMap<String, Arc<Report>>>,
    /// What the others know of QUIC servers.
    quic: BTreeMap<String, Arc<QuicReport>>,
    /// The last report of this balancer.
    own: Report,
    /// Whether this balancer has merged all reports since it leads.
    has_merged: bool,
    sets: Sets,
    /// The sets of weights that the store had when this process started, the newest first, until it runs.
    older: Vec<WeightSet>,
    /// Whether the data plane has another seed than the store.
    has_other_seed: bool,
    is_unencrypted: bool,
    /// What was reported last.
    last: Option<SharedStatus>,
}

impl Sharing {
    /// Joins the other balancers if the configuration wants that. Returns the seed of connection hashes too: that of the
    /// store, and without a store the one that this host had or that the configuration has.
    pub(in crate::control) fn join(
        config: &Config,
        saved: Option<&SavedState>,
    ) -> Result<(Option<Sharing>, u64), ControlError> {
        let drawn = saved.and_then(|saved| saved.hash_seed);
        let configured = config.hash_seed.or(drawn);
        let Some(settings) = &config.shared else {
            return Ok((None, configured.unwrap_or_else(random)));
        };
        let offered = configured.unwrap_or_else(random);
        let (link, begun) = Shared::join(settings, config.interval, offered, configured.is_none())?;
        let mut sharing = Sharing {
            link,
            name: settings.name.clone(),
            situation: Situation::default(),
            reports: None,
            quic: BTreeMap::new(),
            own: Report::default(),
            has_merged: false,
            sets: Sets::new(saved.and_then(|saved| saved.set.clone())),
            older: Vec::new(),
            has_other_seed: false,
            is_unencrypted: !settings.endpoints.iter().all(StoreUrl::is_tls),
            last: None,
        };
        let seed = match begun {
            Ok((seed, sets)) => {
                sharing.has_other_seed = config.hash_seed.is_some_and(|configured| configured != seed);
                // A store without a set has been emptied, or is another one.
                sharing.sets = Sets::new(sets.first().cloned());
                sharing.older = sets;
                seed
            }
            Err(error) => {
                let seed = drawn.or(config.hash_seed).ok_or_else(|| ControlError::NoSeed(error.to_string()))?;
                sharing.situation.problem = Some(error.to_string());
                seed
            }
        };
        Ok((Some(sharing), seed))
    }

    fn role(&self) -> Role {
        Role { leads: self.situation.leads, is_alone: self.situation.problem.is_some() }
    }

    /// Gives a VIP the weights that all have agreed on.
    pub(in crate::control) fn guide(&self, run: &mut RunningVip) {
        let agreed = self.set().and_then(|set| set.vips.get(&run.vip.key.to_string()));
        run.follow(agreed, self.role());
    }

    /// Notes the backends that the entries of a VIP's table had before this process, as far as that is done by a time: the
    /// newest first, as they matter most.
    pub(in crate::control) fn remember(&self, run: &mut RunningVip, until: Instant) {
        let key = run.vip.key.to_string();
        let mut sets = self.older.iter().filter_map(|set| set.vips.get(&key)).peekable();
        while let Some(weights) = sets.next_if(|_| Instant::now() < until) {
            if sets.peek() != Some(&weights) {
                run.note_older_weights(weights);
            }
        }
    }

    /// Forgets what counted before this process.
    pub(in crate::control) fn end_start(&mut self) {
        self.older = Vec::new();
    }

    pub(in crate::control) fn set(&self) -> Option<&WeightSet> {
        self.sets.counting.as_ref()
    }
}

impl Balancer {
    /// Ends the interval of all VIPs: policies set weights, unless they are held. With others, whoever leads does that
    /// for all.
    pub(in crate::control) fn steer(&mut self, active: &ActiveConnections, is_held: bool) {
        let Some(sharing) = &mut self.sharing else {
            self.vips.iter_mut().for_each(|run| run.end_interval(active, is_held));
            return;
        };
        let vips = self.vips.iter_mut().map(|run| (run.vip.key.to_string(), run.report(active, is_held)));
        sharing.own = Report { format: FORMAT, is_held, vips: vips.collect() };
        sharing.link.report(sharing.own.clone());
        self.merge_reports(true);
    }

    /// Merges what all balancers have seen, if this one leads. With `is_step`, policies set weights.
    fn merge_reports(&mut self, is_step: bool) {
        let Some(sharing) = self.sharing.as_mut().filter(|sharing| sharing.situation.leads) else { return };
        let Some(reports) = &sharing.reports else { return };
        let others = || reports.iter().map(|(name, report)| (name.as_str(), &**report));
        let all = || std::iter::once((sharing.name.as_str(), &sharing.own)).chain(others());
        let is_held = all().any(|(_, report)| report.is_held);
        for run in &mut self.vips {
            let key = run.vip.key.to_string();
            let of_vip: Vec<(&str, &VipReport)> =
                all().filter_map(|(name, report)| Some((name, report.vips.get(&key)?))).collect();
            run.merge(&of_vip, is_step && !is_held);
        }
        sharing.has_merged |= is_step;
    }

    /// Applies what the store has said since the last call. True if weights or health may have changed.
    pub(in crate::control) fn take_news(&mut self) -> bool {
        let mut is_changed = false;
        while let Some(news) = self.sharing.as_ref().and_then(|sharing| sharing.link.news()) {
            is_changed |= self.take(news);
        }
        let Some(sharing) = &mut self.sharing else { return false };
        if sharing.sets.switch(Instant::now()) {
            self.follow();
            self.save();
            is_changed = true;
        }
        self.report_situation();
        is_changed
    }

    fn take(&mut self, news: News) -> bool {
        let Some(sharing) = &mut self.sharing else { return false };
        let before = sharing.role();
        sharing.situation = news.situation;
        match news.quic {
            Some(quic) => sharing.quic = quic,
            // Nobody knows who is there.
            None if sharing.situation.problem.is_some() => sharing.quic.clear(),
            None => {}
        }
        let role = sharing.role();
        let is_new_set = news.set.is_some();
        // Another balancer may place connections by a set sooner or later than this one does.
        for set in news.skipped.iter().rev().chain(&news.set) {
            for run in &mut self.vips {
                set.vips.get(&run.vip.key.to_string()).into_iter().for_each(|weights| run.note_weights(weights));
            }
        }
        if let Some(set) = news.set {
            sharing.sets.arrive(set, Instant::now(), realtime_ns() / 1_000_000);
        }
        if !role.leads || !before.leads {
            (sharing.sets.proposed, sharing.has_merged, sharing.reports) = (None, false, None);
        }
        if role != before {
            self.follow();
        }
        let is_merged = news.reports.is_some();
        if let (Some(sharing), Some(reports)) = (&mut self.sharing, news.reports) {
            sharing.reports = Some(reports);
        }
        if is_merged && self.sharing.as_ref().is_some_and(|sharing| sharing.has_merged) {
            self.merge_reports(false);
        }
        is_merged || role != before || is_new_set
    }

    /// Gives all VIPs the weights that all have agreed on.
    fn follow(&mut self) {
        if let Some(sharing) = &self.sharing {
            self.vips.iter_mut().for_each(|run| sharing.guide(run));
        }
    }

    /// Proposes the weights that follow from what all have seen, if this balancer leads and they differ from the last.
    pub(in crate::control) fn propose(&mut self) {
        let Some(sharing) = self.sharing.as_mut().filter(|sharing| sharing.situation.leads && sharing.has_merged)
        else {
            return;
        };
        let (ramp, now) = (self.config.health.ramp, Instant::now());
        let vips = self.vips.iter().map(|run| (run.vip.key.to_string(), run.proposal(ramp, now)));
        let vips: BTreeMap<String, VipWeights> = vips.collect();
        let is_near = |last: &BTreeMap<String, VipWeights>| {
            let runs: BTreeMap<String, _> = self.vips.iter().map(|run| (run.vip.key.to_string(), run)).collect();
            last.len() == vips.len()
                && vips
                    .iter()
                    .all(|(key, new)| last.get(key).is_some_and(|last| new.is_near(last, runs[key].vip.policy)))
        };
        if sharing.sets.last().is_some_and(is_near) {
            return;
        }
        sharing.link.propose(vips.clone());
        sharing.sets.proposed = Some(vips);
    }

    /// Returns the names of the balancers at which a backend is drained, this one included, as far as they are known.
    pub(in crate::control) fn drainers(&self, run: &RunningBackend) -> Vec<String> {
        let Some(sharing) = &self.sharing else { return Vec::new() };
        let others = run.drained_by.iter().filter(|name| **name != sharing.name).cloned();
        others.chain(run.is_draining.then(|| sharing.name.clone())).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Says where a backend is drained.
    pub(in crate::control) fn describe_drain(&self, run: &RunningBackend) -> String {
        match self.drainers(run).as_slice() {
            [] if run.is_draining => "drained".into(),
            [] => "drained at another balancer".into(),
            names => format!("drained at {}", names.join(", ")),
        }
    }

    /// Says that a backend, by the position of its VIP and its own, stays drained as it is at another balancer.
    pub(in crate::control) fn drained_elsewhere(&self, vip: usize, at: usize) -> Option<String> {
        let (run, sharing) = (&self.vips[vip], self.sharing.as_ref()?);
        let backend = &run.backends[at];
        let others: Vec<String> = self.drainers(backend).into_iter().filter(|name| *name != sharing.name).collect();
        let is_elsewhere = !others.is_empty() || !backend.is_draining && run.is_drained(backend);
        let place = if others.is_empty() { "another balancer".into() } else { others.join(", ") };
        let name = &backend.backend.name;
        is_elsewhere.then(|| format!("'{name}' is drained at {place}, which counts for all: undo it there"))
    }

    /// Returns what an operator should know of the others.
    pub(in crate::control) fn shared_status(&self) -> Option<SharedStatus> {
        let sharing = self.sharing.as_ref()?;
        let Situation { problem, members, leader, refused, .. } = &sharing.situation;
        Some(SharedStatus {
            name: sharing.name.clone(),
            problem: problem.clone(),
            members: members.clone(),
            leader: leader.clone(),
            differing: self.differing(sharing),
            set: sharing.set().map(|set| set.number),
            refused: *refused,
        })
    }

    /// Returns whose configuration of a VIP is not that of the leader: as far as the leader knows that of all, and any other
    /// its own.
    fn differing(&self, sharing: &Sharing) -> Vec<String> {
        let mut differing = BTreeSet::new();
        for run in &self.vips {
            let key = run.vip.key.to_string();
            if sharing.situation.leads {
                let of = sharing.reports.iter().flatten();
                let other = of.filter(|(_, report)| report.vips.get(&key).is_none_or(|vip| vip.digest != run.digest()));
                differing.extend(other.map(|(name, _)| format!("{name}: {}", run.vip.name)));
            } else if sharing.set().is_some_and(|set| set.vips.get(&key).is_none_or(|vip| vip.digest != run.digest())) {
                differing.insert(format!("{}: {}", sharing.name, run.vip.name));
            }
        }
        differing.into_iter().collect()
    }

    /// Reports the situation if it has changed, except for what changes all the time.
    fn report_situation(&mut self) {
        let Some(status) = self.shared_status() else { return };
        let reported = SharedStatus { set: None, refused: 0, ..status };
        let last = self.sharing.as_mut().map(|sharing| &mut sharing.last);
        let Some(last) = last.filter(|last| last.as_ref() != Some(&reported)) else { return };
        *last = Some(reported.clone());
        let SharedStatus { problem, members, leader, differing, .. } = reported;
        self.emit(&Event::Shared { problem, members, leader, differing });
    }

    /// Conditions of sharing that an operator should know about.
    pub(in crate::control) fn shared_warnings(&self) -> Vec<String> {
        let (Some(sharing), Some(status)) = (&self.sharing, self.shared_status()) else {
            return Vec::new();
        };
        let mut warnings = Vec::new();
        if let Some(problem) = &status.problem {
            let kept = match status.set {
                Some(number) => {
                    format!("set {number} of weights stays, without what fails the checks of this balancer")
                }
                None => "this balancer sets its weights alone".into(),
            };
            warnings.push(format!("the store of [shared] is away: {problem}; {kept}"));
        }
        if sharing.situation.is_name_taken {
            warnings.push(format!(
                "another process takes part as '{}', so that this one is not counted: write another shared.name",
                sharing.name
            ));
        }
        for differing in &status.differing {
            warnings.push(format!(
                "{differing}: its backends, weights or table differ from those of the balancer that leads ({}), whose weights \
                 count: give all the same configuration",
                status.leader.as_deref().unwrap_or("none")
            ));
        }
        if sharing.has_other_seed {
            warnings.push(
                "the store of [shared] has another seed than hash_seed, and that of the store counts: remove the key"
                    .into(),
            );
        }
        if sharing.is_unencrypted {
            warnings.push(
                "the connection to the store of [shared] does not use TLS: anyone who can read it can direct \
                 connections to a backend of their choice"
                    .into(),
            );
        }
        warnings
    }
}
