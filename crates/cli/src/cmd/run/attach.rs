//! Who runs already is looked at from outside.

use std::path::Path;

use dwell_probes::cgroup::{self as keeper, Keeper};
use dwell_socket::outside::{self, Cgroup, Outside, Whose};

use super::{
    Args,
    child::Run,
    notes::Notes,
    print::Printer,
    watcher::{self, Watcher},
};
use crate::{
    exit::{Exit, Failure},
    stop::Stop,
    tell::tell,
};

/// Looks at a process that runs already.
pub fn attach(args: &Args, pid: u32) -> Result<Exit, Failure> {
    let whose = Whose::Tree(pid);
    whose.check().map_err(|error| {
        let exit = match error {
            outside::Error::NoProcess { .. } => Exit::Usage,
            _ => Exit::Host,
        };
        Failure::new(exit, error)
    })?;
    let mut printer = Printer::open(args)?;
    printer.is_outside();
    let stop = Stop::listen(args.duration)?;
    let outside = Outside::start(whose, watcher::config(args, false));
    let outside = outside.map_err(|error| Failure::new(Exit::Host, error))?;
    look(args, Watcher::new(None, Some(outside), args.poll), printer, &stop)
}

/// Looks at the processes of a cgroup, and keeps their send buffers short if that is asked for.
pub fn cgroup(args: &Args, path: &Path) -> Result<Exit, Failure> {
    let mut printer = Printer::open(args)?;
    printer.is_outside();
    let stop = Stop::listen(args.duration)?;
    let cgroup = Cgroup::start(path, watcher::config(args, false)).map_err(|error| {
        let exit = match error {
            outside::Error::Cgroup { .. } => Exit::Usage,
            _ => Exit::Host,
        };
        Failure::new(exit, error)
    })?;
    let watcher = Watcher::of_cgroup(cgroup, args.poll);
    for error in watcher.closed() {
        printer.note(&error.to_string());
    }
    let is_kept = args.minimize || args.congestion.is_some();
    let keeper = is_kept.then(|| {
        Keeper::attach(&keeper::Options {
            cgroup: path.to_owned(),
            target: args.minimize.then_some(args.target),
            congestion: args.congestion.clone(),
        })
    });
    let keeper = keeper.transpose()?;
    let exit = look(args, watcher, printer, &stop)?;
    if let Some(mut keeper) = keeper {
        tell_kept(&keeper.counts()?, args);
    }
    Ok(exit)
}

fn tell_kept(counts: &keeper::Counts, args: &Args) {
    let keeper::Counts { connections, settings, refused, congestion_refused } = *counts;
    tell(format_args!("{connections} connections began meanwhile; TCP_NOTSENT_LOWAT was set {settings} times"));
    if refused > 0 {
        tell(format_args!("the kernel refused {refused} settings of send buffers"));
    }
    if let (Some(name), 1..) = (&args.congestion, congestion_refused) {
        tell(format_args!(
            "{congestion_refused} connections kept their congestion control: this kernel has no '{name}' \
             (`sysctl net.ipv4.tcp_available_congestion_control` lists what it has)"
        ));
    }
}

fn look(args: &Args, watcher: Watcher, mut printer: Printer, stop: &Stop) -> Result<Exit, Failure> {
    let mut run =
        Run { watcher, notes: Notes::new(args, false), printer: &mut printer, interval: args.interval, until: None };
    // What they counted before is not of this run.
    run.watcher.take();
    run.until_stopped(stop)?;
    Ok(match run.watcher.is_blind() {
        true => Exit::Incomplete,
        false => Exit::Done,
    })
}
