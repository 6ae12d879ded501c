//! Watches running processes from outside.

use std::path::Path;

use dwell_probes::cgroup::{self, SendBufferLimiter};
use dwell_records::counted;
use dwell_socket::outside::{self, Cgroup, Outside, Scope};

use super::{
    Args,
    child::Measurement,
    notes::Notes,
    print::Printer,
    watcher::{self, Watcher},
};
use crate::{
    exit::{Exit, Failure},
    log::log,
    stop::Stop,
};

/// Watches a running process and its descendants.
pub fn attach(args: &Args, pid: u32) -> Result<Exit, Failure> {
    let scope = Scope::Tree(pid);
    scope.check().map_err(|error| {
        let exit = match error {
            outside::Error::NoProcess { .. } => Exit::Usage,
            _ => Exit::Host,
        };
        Failure::new(exit, error)
    })?;
    if args.sets_options() {
        scope.check_options().map_err(|error| Failure::new(Exit::Host, error))?;
    }
    let config = watcher::config(args, false)?;
    let mut printer = Printer::open(args)?;
    printer.set_outside();
    let stop = args.write.listen(args.duration)?;
    let outside = Outside::start(scope, config);
    let outside = outside.map_err(|error| Failure::new(Exit::Host, error))?;
    watch(args, Watcher::new(None, Some(outside), args.poll), printer, &stop)
}

/// Watches the processes of a cgroup, and keeps their send buffers short if the arguments demand it.
pub fn cgroup(args: &Args, path: &Path) -> Result<Exit, Failure> {
    let config = watcher::config(args, false)?;
    let mut printer = Printer::open(args)?;
    printer.set_outside();
    let stop = args.write.listen(args.duration)?;
    let limiter = args.sets_options().then(|| {
        SendBufferLimiter::attach(&cgroup::Options {
            cgroup: path.to_owned(),
            target: args.minimize.then_some(args.target),
            congestion: args.congestion.clone(),
        })
    });
    let limiter = limiter.transpose()?;
    // It watches all connections, and sets the options of those that began before dwell's BPF program was attached.
    let cgroup = Cgroup::start(path, config).map_err(|error| {
        let exit = match error {
            outside::Error::Cgroup { .. } => Exit::Usage,
            _ => Exit::Host,
        };
        Failure::new(exit, error)
    })?;
    let exit = watch(args, Watcher::of_cgroup(cgroup, args.poll), printer, &stop)?;
    if let Some(mut limiter) = limiter {
        report_settings(&limiter.counts()?, args);
    }
    Ok(exit)
}

fn report_settings(counts: &cgroup::Counts, args: &Args) {
    let cgroup::Counts { connections, settings, refused, congestion_refused } = *counts;
    let [connections, settings, refused_settings] =
        [(connections, "connection", "connections"), (settings, "time", "times"), (refused, "setting", "settings")]
            .map(|(number, one, many)| counted(number, one, many));
    log(format_args!("{connections} began meanwhile; TCP_NOTSENT_LOWAT was set {settings}"));
    if refused > 0 {
        log(format_args!("the kernel refused {refused_settings} of send buffers"));
    }
    if let (Some(name), 1..) = (&args.congestion, congestion_refused) {
        log(format_args!(
            "{} kept their congestion control: this kernel has no '{name}' \
             (`sysctl net.ipv4.tcp_available_congestion_control` lists what it has)",
            counted(congestion_refused, "connection", "connections")
        ));
    }
}

fn watch(args: &Args, watcher: Watcher, mut printer: Printer, stop: &Stop) -> Result<Exit, Failure> {
    let mut measurement = Measurement {
        watcher,
        notes: Notes::new(args, false),
        printer: &mut printer,
        interval: args.interval,
        until: None,
    };
    // Discards what was counted before this run.
    measurement.watcher.take();
    measurement.until_stopped(stop)?;
    let exit = if measurement.watcher.is_blind() { Exit::Incomplete } else { Exit::Done };
    Ok(printer.exit(exit))
}
