//! The requests of operators.

use std::fmt::Display;

use dwell_engine::steer::{Share, ShareReason};
use dwell_probes::balancer::Verdict;
use dwell_records::counted;
use serde::Serialize;

use super::{Balancer, Event, plan_for, vip::PriorState};
use crate::{
    api::{Answer, BackendName, Changes, FRAME_BYTES, PacketRoute, Request, from_hex, to_hex},
    config::{Backend, Config, ConfigError, Vip, check_weight},
    plan::{Phase, Plan, differences, plan, restart_keys},
};

/// The outcome of a request that changes something: the changes, or why it was refused.
type Outcome = Result<Changes, String>;

impl Balancer {
    pub(super) fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status {} => to_json(&self.status()),
            Request::Reload { dry_run: false } => {
                let changed = self.reload()?;
                to_json(&self.with_consequences(changed, None))
            }
            Request::Reload { dry_run: true } => {
                let (config, _, changes) = self.plan_reload()?;
                to_json(&Changes { changes, warnings: config.warning_texts() })
            }
            Request::Drain { backend, undo } => to_json(&self.drain(&backend, undo)?),
            Request::Add { vip, address, name, weight, server_id } => {
                let name = name.unwrap_or_else(|| address.to_string());
                to_json(&self.add(&vip, Backend { name, address, weight, server_id })?)
            }
            Request::Remove { backend } => to_json(&self.remove(&backend)?),
            Request::Weight { backend, weight } => to_json(&self.set_weight(&backend, weight)?),
            Request::Where { frames } => {
                let routes: Result<Vec<PacketRoute>, String> = frames.iter().map(|frame| self.route(frame)).collect();
                to_json(&routes?)
            }
        }
    }

    /// Reloads the configuration, completely or not at all. It replaces what `add`, `remove` and `weight` changed;
    /// drains stay.
    pub(super) fn reload(&mut self) -> Outcome {
        let outcome = self.try_reload();
        self.figures.reloads[usize::from(outcome.is_err())] += 1;
        match &outcome {
            Ok(changed) => self.emit_changes("reload", &changed.changes),
            Err(error) => {
                let (uid, pid) = self.ids_of_requester();
                self.emit(&Event::Refused { reason: error.clone(), uid, pid });
            }
        }
        outcome
    }

    fn ids_of_requester(&self) -> (Option<u32>, Option<i32>) {
        (self.requester.map(|by| by.uid), self.requester.and_then(|by| by.pid))
    }

    fn emit_changes(&mut self, by: &'static str, changes: &[String]) {
        let (uid, pid) = self.ids_of_requester();
        self.emit(&Event::Changed { by, changes: changes.to_vec(), uid, pid });
    }

    /// Reads the configuration, and plans what follows from it. Returns both, and what changes.
    fn plan_reload(&self) -> Result<(Config, Plan, Vec<String>), String> {
        let unusable = |error: ConfigError| format!("{error}\nnothing was changed");
        let config = Config::read(&self.config.path).map_err(unusable)?;
        let keys = restart_keys(&self.config, &config);
        if let Some(restart) = keys.iter().map(|(_, restart)| *restart).max() {
            let names: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
            let (names, remedy) = (names.join(", "), restart.remedy());
            return Err(format!("{names}: cannot change while it runs: {remedy}; nothing was changed"));
        }
        let mut changes = differences(&self.config.vips, &config.vips);
        let planned = plan_for(&self.state, &config.vips, &self.config).map_err(refused)?;
        let (was, is) = (self.config.health.ramp, config.health.ramp);
        if was != is {
            changes.push(format!("health.ramp is {is:?}, not {was:?}"));
        }
        if self.config.heartbeat != config.heartbeat {
            changes.push("what happens without the control plane ([heartbeat]) is as written now".into());
        }
        Ok((config, planned, changes))
    }

    fn try_reload(&mut self) -> Outcome {
        let (config, planned, changes) = self.plan_reload()?;
        let file_weights = std::mem::replace(&mut self.file_weights, super::file_weights(&config.vips));
        let health = std::mem::replace(&mut self.config.health, config.health);
        let heartbeat = std::mem::replace(&mut self.config.heartbeat, config.heartbeat);
        if let Err(error) = self.apply_and_save(config.vips, planned) {
            (self.config.health, self.config.heartbeat, self.file_weights) = (health, heartbeat, file_weights);
            return Err(error);
        }
        self.loaded = jiff::Timestamp::now();
        self.config.warnings = config.warnings;
        Ok(Changes { changes, warnings: self.config.warning_texts() })
    }

    fn apply_and_save(&mut self, wanted: Vec<Vip>, planned: Plan) -> Result<(), String> {
        self.apply(wanted, planned, &PriorState::default()).map_err(refused)?;
        self.save();
        Ok(())
    }

    fn add(&mut self, vip: &str, backend: Backend) -> Outcome {
        backend.check()?;
        self.check_server_id(vip, &backend)?;
        let address = backend.address;
        if let Some(other) = self.config.vips.iter().find(|vip| vip.key.address == address) {
            return Err(format!("{address} is the VIP '{}': name the backend's own address", other.name));
        }
        let mut wanted = self.config.vips.clone();
        let found = self.vip_named(&mut wanted, vip)?;
        let is_same = |other: &&Backend| other.address == address || other.name == backend.name;
        if let Some(other) = found.backends.iter().find(is_same) {
            return Err(format!("'{vip}' already has the backend '{}' ({})", other.name, other.address));
        }
        found.backends.push(backend);
        let changed = self.change("add", wanted)?;
        Ok(self.with_consequences(changed, None))
    }

    fn remove(&mut self, named: &BackendName) -> Outcome {
        let (vip, at) = self.find_backend(named)?;
        let mut wanted = self.config.vips.clone();
        wanted[vip].backends.remove(at);
        let changed = self.change("remove", wanted)?;
        Ok(self.with_consequences(changed, Some(vip)))
    }

    fn set_weight(&mut self, named: &BackendName, weight: f64) -> Outcome {
        check_weight(weight)?;
        let (vip, at) = self.find_backend(named)?;
        let mut wanted = self.config.vips.clone();
        wanted[vip].backends[at].weight = weight;
        let changed = self.change("weight", wanted)?;
        let run = &mut self.vips[vip].backends[at];
        run.share = Share { weight, reason: ShareReason::Manual };
        self.sync(false).map_err(|error| error.to_string())?;
        Ok(self.with_consequences(changed, Some(vip)))
    }

    fn change(&mut self, by: &'static str, wanted: Vec<Vip>) -> Outcome {
        let changes = differences(&self.config.vips, &wanted);
        let planned = plan(&self.state, &wanted, self.config.limits).map_err(refused)?;
        self.apply_and_save(wanted, planned)?;
        self.emit_changes(by, &changes);
        Ok(Changes { changes, ..Changes::default() })
    }

    /// Checks that a backend that is added to a VIP which routes by connection ID has a server ID of its own.
    fn check_server_id(&self, vip: &str, backend: &Backend) -> Result<(), String> {
        let found = self.config.vips.iter().find(|other| other.name == vip);
        let Some((found, zero)) = found.and_then(|vip| Some((vip, vip.zero_rtt.as_ref()?))) else {
            return Ok(());
        };
        let Some(id) = backend.server_id else {
            return Err(format!("the VIP '{vip}' routes by connection ID: give the server's ID with --server-id"));
        };
        let others = found.backends.iter();
        if let Some(other) = others.into_iter().find(|other| other.server_id == Some(id)) {
            return Err(format!("the server_id {id} belongs to '{}': choose another", other.name));
        }
        match zero.has_room_for(id) {
            true => Ok(()),
            false => Err(format!("the server_id {id} does not fit into connection IDs")),
        }
    }

    fn drain(&mut self, named: &BackendName, undo: bool) -> Outcome {
        let (vip, at) = self.find_backend(named)?;
        let run = &mut self.vips[vip];
        let backend = &mut run.backends[at];
        if backend.is_draining != undo {
            let elsewhere = self.drained_elsewhere(vip, at).filter(|_| undo);
            return Ok(Changes { warnings: elsewhere.into_iter().collect(), ..Changes::default() });
        }
        backend.is_draining = !undo;
        let changes = vec![match undo {
            false => format!(
                "VIP '{}': backend '{}' drains: no new connections; open ones stay",
                run.vip.name, backend.backend.name
            ),
            true => format!("VIP '{}': backend '{}' serves again", run.vip.name, backend.backend.name),
        }];
        let phase = if undo { Phase::Serving } else { Phase::Draining };
        if let Some(real) = self.state.reals.get_mut(&backend.real) {
            real.phase = phase;
        }
        self.sync(false).map_err(|error| error.to_string())?;
        self.save();
        self.emit_changes("drain", &changes);
        let mut changed = Changes { changes, ..Changes::default() };
        changed.warnings.extend(match undo {
            true => self.drained_elsewhere(vip, at),
            false => self.shared_status().and_then(|shared| shared.others()).map(|others| {
                format!(
                    "the other balancers ({others}) stop placing connections there within seconds, and have open ones of their own, which status here \
                     does not count: ask each before you switch the server off"
                )
            }),
        });
        Ok(self.with_consequences(changed, Some(vip)))
    }

    /// Adds what an operator should know after a change: that it is not saved, and that a VIP has no backend left that takes new
    /// connections.
    fn with_consequences(&self, mut changed: Changes, vip: Option<usize>) -> Changes {
        changed.warnings.extend(self.unsaved_warning());
        let run = vip.and_then(|vip| self.vips.get(vip));
        changed.warnings.extend(run.and_then(|run| {
            let name = &run.vip.name;
            match (run.table.entries().is_empty(), run.all_down) {
                (true, _) => {
                    Some(format!("VIP '{name}' has no backend left that takes new connections: they are dropped"))
                }
                (false, true) => Some(format!(
                    "VIP '{name}' has no healthy backend left: those that fail their checks get its new connections"
                )),
                (false, false) => None,
            }
        }));
        changed
    }

    /// Why the state is not saved, and what follows; `None` if it is.
    pub(super) fn unsaved_warning(&self) -> Option<String> {
        let reason = self.unsaved.as_ref()?;
        Some(format!(
            "what was changed holds now, and the next start will not know it, as it cannot be saved: {reason}; it is tried again \
             in each interval: mend that, and wait until `dwell lb status` does not say this any more"
        ))
    }

    /// Finds a backend: the position of its VIP, and its position there.
    fn find_backend(&self, named: &BackendName) -> Result<(usize, usize), String> {
        let mut found = Vec::new();
        for (at, run) in self.vips.iter().enumerate() {
            if named.vip.as_ref().is_some_and(|vip| *vip != run.vip.name) {
                continue;
            }
            let is_it =
                |backend: &Backend| backend.name == named.backend || named.backend.parse() == Ok(backend.address);
            let backends = run.backends.iter().enumerate();
            found.extend(backends.filter(|(_, run)| is_it(&run.backend)).map(|(backend, _)| (at, backend)));
        }
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(format!(
                "there is no backend '{}'{}: `dwell lb status` lists them",
                named.backend,
                named.vip.as_ref().map(|vip| format!(" of a VIP '{vip}'")).unwrap_or_default()
            )),
            several => {
                let vips: Vec<_> = several.iter().map(|(vip, _)| self.vips[*vip].vip.name.as_str()).collect();
                Err(format!(
                    "'{}' is a backend of {}: name one of them, as in {}/{}",
                    named.backend,
                    vips.join(", "),
                    vips[0],
                    named.backend
                ))
            }
        }
    }

    fn vip_named<'a>(&self, vips: &'a mut [Vip], name: &str) -> Result<&'a mut Vip, String> {
        let names: Vec<_> = self.config.vips.iter().map(|vip| vip.name.as_str()).collect();
        let missing = || format!("there is no VIP '{name}'; the VIPs are: {}", names.join(", "));
        vips.iter_mut().find(|vip| vip.name == name).ok_or_else(missing)
    }

    /// Reports where a frame would be sent, by running the kernel's own program.
    fn route(&mut self, frame: &str) -> Result<PacketRoute, String> {
        let bytes = from_hex(frame).ok_or("a frame is written in hexadecimal digits, two per byte")?;
        if !FRAME_BYTES.contains(&bytes.len()) {
            let (least, most) = (FRAME_BYTES.start(), FRAME_BYTES.end());
            let bytes = counted(bytes.len() as u64, "byte", "bytes");
            return Err(format!("this frame has {bytes}: give one of {least} to {most}"));
        }
        let dry_run = self.plane.dry_run(&bytes).map_err(|error| error.to_string())?;
        let decision = dry_run.decision;
        let real = decision.real.and_then(|real| self.state.reals.get(&real));
        let vip = decision.vip.and_then(|vip| self.vips.iter().find(|run| run.number == vip));
        let is_sent = matches!(decision.verdict, Verdict::Send | Verdict::Redirect);
        Ok(PacketRoute {
            verdict: match decision.verdict {
                Verdict::Pass => "pass",
                Verdict::Drop => "drop",
                Verdict::Send => "send",
                Verdict::Redirect => "redirect",
            }
            .into(),
            reason: decision.reason.name().into(),
            vip: vip.map(|run| run.vip.name.clone()),
            backend: real.map(|real| real.name.clone()),
            address: real.map(|real| real.address),
            frame: is_sent.then(|| to_hex(&dry_run.frame)),
        })
    }
}

fn refused(error: impl Display) -> String {
    format!("{error}; nothing was changed")
}

fn to_json(value: &impl Serialize) -> Answer {
    serde_json::to_string(value).map_err(|error| error.to_string())
}
