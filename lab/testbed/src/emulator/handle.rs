use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use super::{EmulatorConfig, Report, emulate_until};
use crate::{Error, ProcessId, Result, registry::write_atomically};

const PATIENCE: Duration = Duration::from_secs(10);

/// A running link emulator, stopped when the handle is dropped.
#[derive(Debug)]
pub struct EmulatorHandle(Option<Runner>);

#[derive(Debug)]
enum Runner {
    Thread { stop: Arc<AtomicBool>, thread: JoinHandle<Result<Report>> },
    Process(Process),
}

#[derive(Debug)]
struct Process {
    child: Child,
    folder: PathBuf,
}

impl EmulatorHandle {
    /// Emulates on a thread of this process. Returns when packets pass.
    pub fn spawn_thread(config: EmulatorConfig) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let stop_of_thread = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("link emulator".to_owned())
            .spawn(move || {
                emulate_until(&config, &stop_of_thread, || {
                    // Nobody waits any more where the handle is gone.
                    let _ = ready.send(());
                    Ok(())
                })
            })
            .map_err(Error::io("start a thread"))?;
        let handle = Self(Some(Runner::Thread { stop, thread }));
        match is_ready.recv_timeout(PATIENCE) {
            Ok(()) => Ok(handle),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(Error::Timeout("the start of the link emulator".to_owned())),
            // The thread ended before it was ready, so it has an error to tell.
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                handle.stop().and(Err(Error::Timeout("the start of the link emulator".to_owned())))
            }
        }
    }

    /// Emulates in a process of its own, `exe emulate --config @FILE`, that ends with this one. Its files are in
    /// `folder`. Calls `record` with the process at once. Returns when packets pass.
    pub(crate) fn spawn_process(
        exe: &Path,
        config: EmulatorConfig,
        folder: &Path,
        record: impl FnOnce(ProcessId) -> Result<()>,
    ) -> Result<Self> {
        let process = Process::start(exe, config, folder, true, record)?;
        Ok(Self(Some(Runner::Process(process))))
    }

    /// Emulates in a process that outlives this one, and is ended by its number.
    pub(crate) fn spawn_background(
        exe: &Path,
        config: EmulatorConfig,
        folder: &Path,
        record: impl FnOnce(ProcessId) -> Result<()>,
    ) -> Result<()> {
        Process::start(exe, config, folder, false, record).map(drop)
    }

    /// Stops the emulator and returns its report.
    pub fn stop(mut self) -> Result<Report> {
        match self.0.take().expect("the runner is taken only here and on drop") {
            Runner::Thread { stop, thread } => {
                stop.store(true, Ordering::Relaxed);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            Runner::Process(mut process) => {
                process.end();
                read_report(&process.folder)
            }
        }
    }
}

impl Drop for EmulatorHandle {
    fn drop(&mut self) {
        match self.0.take() {
            Some(Runner::Thread { stop, thread }) => {
                stop.store(true, Ordering::Relaxed);
                // Its report has no reader any more.
                let _ = thread.join();
            }
            Some(Runner::Process(mut process)) => process.end(),
            None => {}
        }
    }
}

impl Process {
    /// Returns the handle when packets pass. If they do not, ends the emulator.
    fn start(
        exe: &Path,
        config: EmulatorConfig,
        folder: &Path,
        goes_with_us: bool,
        record: impl FnOnce(ProcessId) -> Result<()>,
    ) -> Result<Self> {
        let mut process = Self::spawn(exe, config, folder, goes_with_us)?;
        // Before the wait: should this process be killed in it, whoever clears up knows what to end.
        let running = ProcessId::of(process.child.id()).and_then(record).and_then(|()| process.wait_until_running());
        match running {
            Ok(()) => Ok(process),
            Err(error) => {
                process.end();
                Err(error)
            }
        }
    }

    fn spawn(exe: &Path, mut config: EmulatorConfig, folder: &Path, goes_with_us: bool) -> Result<Self> {
        config.status = Some(status_file(folder));
        config.stop_with_stdin = goes_with_us;
        let file = folder.join("emulator.json");
        let json = serde_json::to_string(&config).map_err(|why| Error::invalid("emulator configuration", why))?;
        write_atomically(&file, &json)?;
        let log = log_file(folder);
        let log = File::create(&log).map_err(Error::file("write", &log))?;
        let child = Command::new(exe)
            .args(["emulate", "--config"])
            .arg(format!("@{}", file.display()))
            .stdin(if goes_with_us { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C in a terminal is for the process that prints the results, which then stops this one.
            .process_group(0)
            .spawn()
            .map_err(Error::io(format!("run {}", exe.display())))?;
        Ok(Self { child, folder: folder.to_owned() })
    }

    fn wait_until_running(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if status_file(&self.folder).exists() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().map_err(Error::io("wait for the link emulator"))? {
                return Err(Error::Command {
                    command: "dwell-lab emulate".to_owned(),
                    status: status.to_string(),
                    stderr: fs::read_to_string(log_file(&self.folder)).unwrap_or_default().trim().to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(Error::Timeout("the start of the link emulator".to_owned()))
    }

    fn end(&mut self) {
        let pid = i32::try_from(self.child.id()).expect("process numbers fit");
        let begun = Instant::now();
        // Once it is collected, the number may be somebody else's.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The content of an emulator's status file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// Packets pass.
    Running,
    /// The emulator has stopped, with its report.
    Done(Report),
}

impl Status {
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        write_atomically(file, &serde_json::to_string(self).map_err(|why| Error::invalid("emulator status", why))?)
    }
}

/// Reads the report of an emulator process that has ended.
pub(crate) fn read_report(folder: &Path) -> Result<Report> {
    let file = status_file(folder);
    let text = fs::read_to_string(&file).map_err(Error::file("read", &file))?;
    match serde_json::from_str(&text).map_err(|why| Error::invalid(file.display().to_string(), why))? {
        Status::Done(report) => Ok(report),
        Status::Running => {
            let log = fs::read_to_string(log_file(folder)).unwrap_or_default();
            Err(Error::invalid("link emulator", format!("it was ended before it could report. {}", log.trim())))
        }
    }
}

fn status_file(folder: &Path) -> PathBuf {
    folder.join("emulator-status.json")
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("emulator.log")
}
