//! `dwell response` on interfaces, measured in the kernel.

use std::{
    thread,
    time::{Duration, Instant},
};

use dwell_engine::{rtt::Counter, units::nanos};
use dwell_probes::{
    Hook, TcHookKind,
    response::{Options, Probe},
};
use dwell_records::Clock;
use dwell_socket::clock::monotonic_ns;

use super::{Args, metrics::Exporter, report::Report};
use crate::{
    exit::{Exit, Failure},
    log::log,
    source::{HookName, Interfaces, clock, cost, fail_if_lost, seed},
    stop::Stop,
};

/// Time between two polls of the ring buffer, for which there is no wake-up.
const POLL: Duration = Duration::from_millis(20);

/// Time after which idle flows make room for others if few slots are free. Epochs may be much longer.
const ROOM: Duration = Duration::from_secs(1);

/// How far the ends of epochs may be from round times of the clock.
const CLOCK_DRIFT_NS: u128 = 1_000_000;

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interfaces = Interfaces::find(&args.interface)?;
    if args.hook == HookName::Xdp || args.tail_call.is_some() {
        interfaces.require_link_headers("--hook xdp and --tail-call")?;
    }
    let source = interfaces.source()?;
    let started = source.clock;
    let metrics = args.metrics.start("response")?.map(|served| Exporter::new(served, args, source.interfaces.clone()));
    let report =
        Report::new(args, source, args.names.live(args.shows_flows(), &args.write, args.format.name())?, metrics)?;
    let stop = args.write.listen(args.duration)?;
    let probe = attach(args, &interfaces, started)?;
    let mut live = Live { args, probe, report, interfaces, swept: Instant::now(), room_made: Instant::now() };
    let ended = live.watch(&stop);
    live.finish(ended)
}

/// Attaches at XDP; with `auto`, at tc where XDP is not available.
fn attach(args: &Args, interfaces: &Interfaces, clock: Clock) -> Result<Probe, Failure> {
    let hook = match args.hook {
        HookName::Tc => Hook::TcIngress,
        HookName::Auto if !interfaces.have_link_headers() => Hook::TcIngress,
        HookName::Auto | HookName::Xdp => Hook::Xdp,
    };
    let mut options = Options {
        watch: args.watch(seed(), clock.unix_ns(0).rem_euclid(i128::from(nanos(args.interval))) as u64)?,
        ingress: hook,
        chain: args.tail_call.clone(),
        tc: TcHookKind::Auto,
        replay: false,
    };
    match load(&options, interfaces) {
        Err(error) if args.hook == HookName::Auto && hook == Hook::Xdp && args.tail_call.is_none() => {
            options.ingress = Hook::TcIngress;
            let probe = load(&options, interfaces)?;
            log(format_args!("{error}: measuring at tc"));
            Ok(probe)
        }
        loaded => Ok(loaded?),
    }
}

fn load(options: &Options, interfaces: &Interfaces) -> Result<Probe, dwell_probes::Error> {
    let mut probe = Probe::load(options)?;
    for interface in interfaces.iter() {
        probe.attach(interface)?;
    }
    Ok(probe)
}

struct Live<'a> {
    args: &'a Args,
    probe: Probe,
    report: Report,
    interfaces: Interfaces,
    /// When epochs were last ended by time.
    swept: Instant,
    /// When idle flows were last looked for.
    room_made: Instant,
}

impl Live<'_> {
    /// Watches until the run is to end, or no interface is left.
    fn watch(&mut self, stop: &Stop) -> Result<(), Failure> {
        let period = (self.args.interval / 4).max(POLL);
        while !stop.is_asked() {
            thread::sleep(POLL);
            self.drain()?;
            if self.room_made.elapsed() >= ROOM {
                self.room_made = Instant::now();
                self.probe.make_room()?;
                self.drain()?;
            }
            if self.swept.elapsed() >= period {
                self.swept = Instant::now();
                self.follow_clock();
                self.probe.sweep()?;
                self.drain()?;
                self.report.status(monotonic_ns(), &mut self.probe)?;
                self.interfaces.poll(|| ())?;
            }
            self.report.flush()?;
        }
        Ok(())
    }

    /// Follows the clock. Epochs are aligned to the offset at the start: as long as it has hardly changed, it is kept, so
    /// that epochs end at round times.
    fn follow_clock(&mut self) {
        let fresh = clock();
        self.report.set_source(|source| {
            let apart_ns = fresh.unix_ns(0).abs_diff(source.clock.unix_ns(0));
            if apart_ns > CLOCK_DRIFT_NS {
                source.clock = fresh;
            }
        });
    }

    fn drain(&mut self) -> Result<(), Failure> {
        let (report, mut failed) = (&mut self.report, None);
        self.probe.drain(|record| {
            if failed.is_none() {
                failed = report.record(&record).err();
            }
        })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Detaches and reports what is left, whatever ended the run.
    fn finish(mut self, ended: Result<(), Failure>) -> Result<Exit, Failure> {
        self.probe.detach();
        if matches!(&ended, Err(failure) if failure.exit == Exit::Done) {
            return ended.map(|()| Exit::Done);
        }
        let drained = self.drain();
        let closed = self.probe.finish().map_err(Failure::from);
        let reported = ended.and(drained).and(closed).and(self.drain());
        let counters = self.probe.counters();
        let finished = self.report.finish(Some(monotonic_ns()), counters.as_ref().ok(), cost(&self.probe.run_times()));
        reported?;
        let counters = counters?;
        finished?;
        let lost = counters.get(Counter::EventsLost) + self.probe.unreadable_events();
        fail_if_lost(
            lost,
            "epochs",
            "user space could not keep up; choose a longer --interval, or follow fewer flows with --filter",
        )
        .and_then(|exit| self.report.exit(exit))
    }
}
