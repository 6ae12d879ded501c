//! What operators ask for.

use std::fmt::Display;

use dwell_engine::steer::{Share, Why};
use dwell_probes::balancer::Verdict;
use serde::Serialize;
use serde_json::Value;

use super::{Balancer, Event, plan_for, vip::Earlier};
use crate::{
    api::{Answer, Changed, Named, Request, Went, from_hex, to_hex},
    config::{Backend, Config, ConfigError, Vip},
    plan::{Phase, Plan, difference, fixed, plan},
};

/// What a request comes to before it is JSON.
type Done = Result<Changed, String>;

impl Balancer {
    pub(super) fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status {} => value(&self.status()),
            Request::Reload {} => value(&self.reload()?),
            Request::Drain { backend, undo } => value(&self.drain_backend(&backend, undo)?),
            Request::Add { vip, address, name, weight, server_id } => {
                let name = name.unwrap_or_else(|| address.to_string());
                value(&self.add(&vip, Backend { name, address, weight, server_id })?)
            }
            Request::Remove { backend } => value(&self.remove(&backend)?),
            Request::Weight { backend, weight } => value(&self.weigh(&backend, weight)?),
            Request::Where { frames } => {
                let went: Result<Vec<Went>, String> = frames.iter().map(|frame| self.went(frame)).collect();
                value(&went?)
            }
        }
    }

    /// Reads the configuration again: all of it holds from now on, or nothing. What `add`, `remove` and
    /// `weight` did is over; drains stay.
    pub(super) fn reload(&mut self) -> Done {
        let done = self.try_reload();
        self.figures.reloads[usize::from(done.is_err())] += 1;
        let event = match &done {
            Ok(changed) => Event::Changed { by: "reload", changes: changed.changes.clone() },
            Err(error) => Event::Refused { error: error.clone() },
        };
        self.say(&event);
        done
    }

    fn try_reload(&mut self) -> Done {
        let unread = |error: ConfigError| format!("{error}\nnothing was changed");
        let config = Config::read(&self.config.path).map_err(unread)?;
        let fixed = fixed(&self.config, &config);
        if !fixed.is_empty() {
            return Err(format!(
                "{}: cannot change while it runs: end it, `dwell lb detach`, and start anew; nothing was changed",
                fixed.join(", ")
            ));
        }
        let mut changes = difference(&self.config.vips, &config.vips);
        let planned = plan_for(&self.state, &config.vips, &self.config).map_err(refused)?;
        let (was, is) = (self.config.checking.ramp, config.checking.ramp);
        if was != is {
            changes.push(format!("health.ramp is {is:?}, not {was:?}"));
        }
        let written = super::written(&config.vips);
        let written = std::mem::replace(&mut self.written, written);
        let checking = std::mem::replace(&mut self.config.checking, config.checking);
        if let Err(error) = self.become_of(config.vips, planned) {
            (self.config.checking, self.written) = (checking, written);
            return Err(error);
        }
        self.loaded = jiff::Timestamp::now();
        Ok(Changed { changes })
    }

    fn become_of(&mut self, wanted: Vec<Vip>, planned: Plan) -> Result<(), String> {
        self.apply(wanted, planned, &Earlier::default()).map_err(refused)?;
        self.save();
        Ok(())
    }

    fn add(&mut self, vip: &str, backend: Backend) -> Done {
        if !(0.0..=1_000_000.0).contains(&backend.weight) {
            return Err(format!("the weight {} is out of range: take 0 to 1000000", backend.weight));
        }
        self.check_server_id(vip, &backend)?;
        let address = backend.address;
        let is_no_host = address.is_unspecified() || address.is_multicast() || address.is_loopback();
        if is_no_host {
            return Err(format!("{address} is no address of another host: name the backend's own"));
        }
        if let Some(other) = self.config.vips.iter().find(|vip| vip.key.address == address) {
            return Err(format!("{address} is the VIP '{}': name the backend's own address", other.name));
        }
        let mut wanted = self.config.vips.clone();
        let found = self.vip_named(&mut wanted, vip)?;
        let same = |other: &&Backend| other.address == address || other.name == backend.name;
        if let Some(other) = found.backends.iter().find(same) {
            return Err(format!("'{vip}' has the backend '{}' ({}) already", other.name, other.address));
        }
        found.backends.push(backend);
        self.change("add", wanted)
    }

    fn remove(&mut self, named: &Named) -> Done {
        let (vip, at) = self.find(named)?;
        let mut wanted = self.config.vips.clone();
        wanted[vip].backends.remove(at);
        self.change("remove", wanted)
    }

    fn weigh(&mut self, named: &Named, weight: f64) -> Done {
        if !(0.0..=1_000_000.0).contains(&weight) {
            return Err(format!("the weight {weight} is out of range: take 0 to 1000000"));
        }
        let (vip, at) = self.find(named)?;
        let mut wanted = self.config.vips.clone();
        wanted[vip].backends[at].weight = weight;
        let changed = self.change("weight", wanted)?;
        let run = &mut self.vips[vip].backends[at];
        run.share = Share { weight, why: Why::Manual };
        self.tables().map_err(|error| error.to_string())?;
        Ok(changed)
    }

    fn change(&mut self, by: &'static str, wanted: Vec<Vip>) -> Done {
        let changes = difference(&self.config.vips, &wanted);
        let planned = plan(&self.state, &wanted, self.config.limits).map_err(refused)?;
        self.become_of(wanted, planned)?;
        self.say(&Event::Changed { by, changes: changes.clone() });
        Ok(Changed { changes })
    }

    /// A backend that is added to a VIP whose packets go by connection ID has an ID of its own.
    fn check_server_id(&self, vip: &str, backend: &Backend) -> Result<(), String> {
        let found = self.config.vips.iter().find(|other| other.name == vip);
        let Some((found, zero)) = found.and_then(|vip| Some((vip, vip.zero_rtt.as_ref()?))) else {
            return Ok(());
        };
        let Some(id) = backend.server_id else {
            return Err(format!("the VIP '{vip}' goes by connection ID: name the server's with --server-id"));
        };
        let others = found.backends.iter();
        if let Some(other) = others.into_iter().find(|other| other.server_id == Some(id)) {
            return Err(format!("the server_id {id} is that of '{}': take another", other.name));
        }
        match zero.has_room_for(id) {
            true => Ok(()),
            false => Err(format!("the server_id {id} does not fit into connection IDs")),
        }
    }

    fn drain_backend(&mut self, named: &Named, undo: bool) -> Done {
        let (vip, at) = self.find(named)?;
        let run = &mut self.vips[vip];
        let backend = &mut run.backends[at];
        if backend.is_draining != undo {
            return Ok(Changed { changes: Vec::new() });
        }
        backend.is_draining = !undo;
        let changes = vec![match undo {
            false => format!(
                "VIP '{}': backend '{}' drains: no new connection; those there stay",
                run.vip.name, backend.backend.name
            ),
            true => format!("VIP '{}': backend '{}' serves again", run.vip.name, backend.backend.name),
        }];
        let phase = if undo { Phase::Serving } else { Phase::Draining };
        if let Some(real) = self.state.reals.get_mut(&backend.real) {
            real.phase = phase;
        }
        self.tables().map_err(|error| error.to_string())?;
        self.save();
        self.say(&Event::Changed { by: "drain", changes: changes.clone() });
        Ok(Changed { changes })
    }

    /// Where a backend is: its VIP, and its place there.
    fn find(&self, named: &Named) -> Result<(usize, usize), String> {
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
                "there is no backend '{}'{}: `dwell lb status` tells which there are",
                named.backend,
                named.vip.as_ref().map(|vip| format!(" of a VIP '{vip}'")).unwrap_or_default()
            )),
            several => {
                let vips: Vec<_> = several.iter().map(|(vip, _)| self.vips[*vip].vip.name.as_str()).collect();
                Err(format!(
                    "'{}' is a backend of {}: write which, as in {}/{}",
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
        let missing = || format!("there is no VIP '{name}'; there are: {}", names.join(", "));
        vips.iter_mut().find(|vip| vip.name == name).ok_or_else(missing)
    }

    /// Where a frame would go: the kernel's own program tells.
    fn went(&mut self, frame: &str) -> Result<Went, String> {
        let bytes = from_hex(frame).ok_or("a frame is written in hex digits, two a byte")?;
        let answer = self.plane.ask(&bytes).map_err(|error| error.to_string())?;
        let decision = answer.decision;
        let real = decision.real.and_then(|real| self.state.reals.get(&real));
        let vip = decision.vip.and_then(|vip| self.vips.iter().find(|run| run.number == vip));
        let goes_out = matches!(decision.verdict, Verdict::Send | Verdict::Redirect);
        Ok(Went {
            verdict: match decision.verdict {
                Verdict::Pass => "pass",
                Verdict::Drop => "drop",
                Verdict::Send => "send",
                Verdict::Redirect => "redirect",
            }
            .into(),
            why: decision.why.name().into(),
            vip: vip.map(|run| run.vip.name.clone()),
            backend: real.map(|real| real.name.clone()),
            address: real.map(|real| real.address),
            frame: goes_out.then(|| to_hex(&answer.frame)),
        })
    }
}

fn refused(error: impl Display) -> String {
    format!("{error}; nothing was changed")
}

fn value(of: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(of).map_err(|error| error.to_string())
}
