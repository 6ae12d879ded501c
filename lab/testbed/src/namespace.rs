use std::{
    ffi::OsStr,
    fs::File,
    ops::{Deref, DerefMut},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread::{self, JoinHandle},
};

use nix::{
    sched::{CloneFlags, setns},
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use crate::{
    Error, Result,
    error::{command_line, run},
    registry::Record,
};

/// A named network namespace. It is removed with its lab, or when the guard is dropped if it belongs to no lab.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// The entry of a namespace that belongs to no lab.
    _record: Option<Record>,
}

impl Namespace {
    /// Makes a namespace that belongs to no lab, named `dwell-<lab>-<pid>-<n>`. Its loopback device is up.
    pub fn create(lab: &str) -> Result<Self> {
        let record = Record::transient(lab, None, &["only"])?;
        let mut namespace = Self::add(&record.state().namespaces["only"])?;
        namespace._record = Some(record);
        Ok(namespace)
    }

    /// Makes a namespace that the caller's record removes.
    pub fn add(name: &str) -> Result<Self> {
        run(Command::new("ip").args(["netns", "add", name]), "")?;
        let namespace = Self { name: name.to_owned(), _record: None };
        namespace.ip("link set lo up\n")?;
        Ok(namespace)
    }

    /// Returns its name in `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that runs `program` in the namespace. Unlike `ip netns exec`, it keeps the mounts, so that
    /// pinned BPF objects are visible.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", path(&self.name).display())).arg("--").arg(program);
        command
    }

    /// Starts `program` in the namespace. The program and all that it started are killed with the guard; the program
    /// alone when the calling thread ends in any way. SIGHUP has its default effect, also where the caller runs under
    /// nohup. `configure` adds arguments and pipes.
    pub fn spawn(&self, program: impl AsRef<OsStr>, configure: impl FnOnce(&mut Command)) -> Result<Guarded> {
        // The caller may die before setpriv has asked for the signal; the shell sees that by its parent.
        let mut command = self.command("setpriv");
        let unless_orphaned = format!(r#"[ "$PPID" = {} ] && exec env --default-signal=HUP "$@""#, std::process::id());
        command.args(["--pdeathsig", "KILL", "--", "/bin/sh", "-c", &unless_orphaned, "sh"]);
        command.arg(program).process_group(0);
        configure(&mut command);
        let child = command.spawn().map_err(Error::io(format!("run `{}`", command_line(&command))))?;
        Ok(Guarded(child))
    }

    /// Runs a closure in the namespace, on a thread of its own. Sockets that it opens stay in the namespace.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T> {
        enter(&self.name, body)
    }

    /// Starts a thread in the namespace.
    pub fn spawn_thread<T: Send + 'static>(&self, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<Result<T>> {
        let name = self.name.clone();
        thread::spawn(move || {
            join_this_thread_to(&name)?;
            Ok(body())
        })
    }

    /// Sets options of the namespace's network: names below `/proc/sys/net`, with values.
    pub fn set(&self, options: &[(&str, &str)]) -> Result<()> {
        // `/proc/sys/net` is that of the thread's namespace.
        self.enter(|| {
            for (option, value) in options {
                let file = format!("/proc/sys/net/{option}");
                std::fs::write(&file, value).map_err(Error::io(format!("write {value} to {file}")))?;
            }
            Ok(())
        })?
    }

    /// Runs lines of `ip -batch` in the namespace.
    pub fn ip(&self, batch: &str) -> Result<()> {
        run(Command::new("ip").args(["-n", &self.name, "-batch", "-"]), batch).map(drop)
    }
}

pub fn remove(name: &str) -> Result<()> {
    if path(name).exists() {
        run(Command::new("ip").args(["netns", "delete", name]), "")?;
    }
    Ok(())
}

pub fn enter<T: Send>(name: &str, body: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            join_this_thread_to(name)?;
            Ok(body())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// Moves the calling thread to a namespace. It must do nothing else afterwards.
fn join_this_thread_to(name: &str) -> Result<()> {
    let path = path(name);
    let namespace = File::open(&path).map_err(Error::file("open", &path))?;
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(Error::os(format!("enter namespace {name}")))
}

/// A child process that leads a process group, which is killed when the guard is dropped.
#[derive(Debug)]
pub struct Guarded(pub Child);

impl Deref for Guarded {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.0.id().cast_signed());
        if !belongs_to_a_stranger(group) {
            // Fails only where nobody of the group is left.
            let _ = killpg(group, Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

/// Returns whether the leader has been collected and its number reused for another process. The kernel does not reuse
/// the number as long as other processes of the group exist.
fn belongs_to_a_stranger(leader: Pid) -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let is_our_child = waitid(Id::Pid(leader), look).is_ok();
    !is_our_child && Path::new("/proc").join(leader.to_string()).exists()
}
