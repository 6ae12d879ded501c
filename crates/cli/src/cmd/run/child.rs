//! Runs the program and watches its connections.

use std::{
    fs, io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{self, Child, Command, ExitStatus},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use dwell_socket::{
    outside::{self, Outside, Scope},
    table::{self, Table},
};
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill, raise},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::{Pid, geteuid},
};
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{SignalsInfo, exfiltrator::origin::WithOrigin},
    low_level::siginfo::Origin,
};

use super::{
    Args, library,
    notes::Notes,
    print::Printer,
    program::Program,
    watcher::{self, Watcher, no_table},
};
use crate::{
    exit::{Exit, Failure},
    stop::{Stop, ignored},
};

/// Runs the program to its end, and returns the exit status for dwell.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let name = args
        .command
        .first()
        .ok_or_else(|| Failure::usage(anyhow!("name a program to run, as in `dwell run -- curl URL`")))?;
    let program = Program::find(name)?;
    let mut printer = Printer::open(args)?;
    let library = match (&program.obstacle, args.outside) {
        (_, true) => None,
        (Some(why), false) => {
            note_outside(&printer, args, why);
            None
        }
        (None, false) => match library::find(args)? {
            Ok(library) => Some(library),
            Err(why) => {
                note_outside(&printer, args, &why);
                None
            }
        },
    };
    let mut command = Command::new(&program.path);
    command.arg0(name).args(&args.command[1..]);
    let mut inside = None;
    let mut inherited = None;
    if let Some(library) = &library {
        let table = Table::create(&args.table_config()).map_err(no_table)?;
        let (variable, value) = library::preload(library);
        command.env(variable, value);
        command.env(table::VARIABLE, table.path());
        // Only root starts programs that run as another user and can use the library.
        if geteuid().is_root() {
            let (descriptor, path) = table.inheritable().map_err(no_table)?;
            command.env(table::INHERITED_VARIABLE, path);
            inherited = Some(descriptor);
        }
        inside = Some(table);
    }
    let outside = Outside::start(Scope::Tree(process::id()), watcher::config(args, inside.is_some())?);
    let outside = or_inside_only(outside, inside.is_some(), &printer)?;
    let notes = Notes::new(args, inside.is_some());
    if inside.is_none() {
        printer.set_outside();
    }
    let events = listen()?;
    let mut child = command.spawn().map_err(|error| not_started(name, &error))?;
    drop(inherited);
    let mut measurement = Measurement {
        watcher: Watcher::new(inside, outside, args.poll),
        notes,
        printer: &mut printer,
        interval: args.interval,
        until: args.duration.and_then(|time| Instant::now().checked_add(time)),
    };
    let status = measurement.until_end(&mut child, &events)?;
    Ok(match exit_status(status) {
        0 => printer.exit(Exit::Done) as u8,
        status => status,
    })
}

fn note_outside(printer: &Printer, args: &Args, why: &str) {
    printer.note(&format!("connections are measured from outside: {why}"));
    if args.sets_options() {
        printer.note(match args.sets_outside() {
            true => "options are set from outside, on connections that live longer than 50 ms; writes are not cut",
            false => "no options are set, because --set controller=element needs the library",
        });
    }
}

/// Tolerates a failure to watch from outside if a library watches from inside.
fn or_inside_only(
    outside: Result<Outside, outside::Error>,
    is_inside: bool,
    printer: &Printer,
) -> Result<Option<Outside>, Failure> {
    match outside {
        Ok(outside) => Ok(Some(outside)),
        Err(error) if is_inside => {
            printer.note(&format!("{error}; only connections of programs with libdwell are measured"));
            Ok(None)
        }
        Err(error) => Err(Failure::new(Exit::Host, error)),
    }
}

fn not_started(name: &std::ffi::OsStr, error: &io::Error) -> Failure {
    let shown = name.display();
    Failure::usage(match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOEXEC) => {
            anyhow!("cannot run {shown}: it is neither a program of this host nor a script that begins with #!")
        }
        _ => anyhow!("cannot run {shown}: {error}"),
    })
}

/// Converts an exit status as shells do: 128 plus the signal number after a signal.
fn exit_status(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Starts to receive signals. Signals that are ignored, as under nohup, remain ignored, because the program inherits this.
fn listen() -> Result<Receiver<Origin>, Failure> {
    let signals = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let failed = |error: io::Error| Failure::new(Exit::Host, error);
    let ignored = ignored().map_err(failed)?;
    let wanted = signals.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let signals: Vec<i32> = wanted.chain([SIGCHLD]).collect();
    let mut signals = SignalsInfo::<WithOrigin>::new(signals).map_err(failed)?;
    let (sender, events) = mpsc::channel();
    let forward = move || {
        for origin in signals.forever() {
            if sender.send(origin).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(forward).map_err(failed)?;
    Ok(events)
}

/// The measurement of running processes.
pub(super) struct Measurement<'a> {
    pub(super) watcher: Watcher,
    pub(super) notes: Notes,
    pub(super) printer: &'a mut Printer,
    pub(super) interval: Duration,
    pub(super) until: Option<Instant>,
}

impl Measurement<'_> {
    fn until_end(&mut self, child: &mut Child, events: &Receiver<Origin>) -> Result<ExitStatus, Failure> {
        let mut next = Instant::now() + self.interval;
        let mut measures = true;
        loop {
            let ended = child.try_wait();
            let ended = ended.map_err(|error| Failure::new(Exit::Host, error))?;
            let is_over = self.until.is_some_and(|until| Instant::now() >= until);
            if measures && (ended.is_some() || is_over) {
                self.end()?;
                measures = false;
            }
            if let Some(status) = ended {
                return Ok(status);
            }
            let wait = match measures {
                true => self.step(&mut next)?,
                false => self.interval,
            };
            match events.recv_timeout(wait) {
                Ok(origin) if origin.signal == SIGCHLD => stop_with(child),
                // It opens the file of --write anew.
                Ok(origin) if origin.signal == SIGHUP && self.printer.is_to_file() => {}
                Ok(origin) => forward(child, &origin),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(wait),
            }
        }
    }

    pub(super) fn until_stopped(&mut self, stop: &Stop) -> Result<(), Failure> {
        let mut next = Instant::now() + self.interval;
        while !stop.is_asked() && !self.watcher.has_ended() {
            let wait = self.step(&mut next)?;
            thread::sleep(wait);
        }
        self.end()
    }

    /// Does whatever is due. Returns the time until the next task.
    fn step(&mut self, next: &mut Instant) -> Result<Duration, Failure> {
        let wait = self.watcher.poll()?;
        self.report_loss();
        let now = Instant::now();
        if now >= *next {
            self.print_interval()?;
            // Intervals that were missed, as while the terminal was stopped, are not made up for.
            *next = (*next + self.interval).max(now);
        }
        Ok(wait.min(next.saturating_duration_since(Instant::now())))
    }

    fn report_loss(&mut self) {
        if let Some(why) = self.watcher.lost() {
            self.printer.note(&why);
        }
    }

    fn print_interval(&mut self) -> Result<(), Failure> {
        let sockets = self.watcher.take();
        self.notes.update(&sockets, &self.watcher, self.printer);
        self.printer.interval(&sockets)
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.watcher.poll_last()?;
        self.report_loss();
        self.print_interval()?;
        self.printer.end()?;
        let reset = self.watcher.reset_options();
        self.notes.end(&self.watcher, reset, self.printer);
        Ok(())
    }
}

/// Forwards a signal that a process sent to dwell. Signals from a terminal reach the program directly.
fn forward(child: &Child, origin: &Origin) {
    if origin.process.is_none() {
        return;
    }
    if let (Some(pid), Ok(signal)) = (pid_of(child), Signal::try_from(origin.signal)) {
        // The program was not waited for yet, so its number is still valid.
        let _ = kill(pid, signal);
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).map(Pid::from_raw).ok()
}

/// Stops dwell when the program has stopped, so that the shell takes its terminal back, and continues the program when
/// dwell continues. In the background this is not needed: whoever stopped the program may continue it alone.
fn stop_with(child: &Child) {
    let Some(pid) = pid_of(child) else { return };
    if !is_in_foreground() || !has_stopped(pid, WaitPidFlag::WNOWAIT) {
        return;
    }
    // Ctrl-Z has stopped dwell by then; `fg` has continued both.
    thread::sleep(Duration::from_millis(20));
    if has_stopped(pid, WaitPidFlag::empty()) {
        let _ = raise(Signal::SIGSTOP);
        let _ = kill(pid, Signal::SIGCONT);
    }
}

fn has_stopped(pid: Pid, more: WaitPidFlag) -> bool {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | more;
    matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::Stopped(..)))
}

/// Returns true if a shell with a terminal waits for dwell.
fn is_in_foreground() -> bool {
    let groups = || {
        let status = fs::read_to_string("/proc/self/stat").ok()?;
        // The name may contain any character.
        let (_, rest) = status.rsplit_once(')')?;
        let fields: Vec<i32> = rest.split_ascii_whitespace().skip(2).map_while(|field| field.parse().ok()).collect();
        Some((*fields.first()?, *fields.get(3)?))
    };
    groups().is_some_and(|(own, of_terminal)| own == of_terminal)
}
