//! Hosts with programs on them, and a shell for the commands of a page.

use std::{
    fs, mem,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{
    Error, Guarded, Namespace, Result,
    error::{find_program, run},
    workload::{PATIENCE, collect},
};
use tempfile::TempDir;

use super::network::Network;
use crate::Programs;

const TRAFFIC: &str = include_str!("traffic.py");

/// The hosts of a page and what runs there. Dropping it ends and removes all of it.
pub struct Stage {
    // Programs go before their groups and hosts.
    running: Vec<(String, Guarded)>,
    groups: Vec<Group>,
    pub network: Network,
    /// Where the page's commands run: it has the files that they read and write.
    folder: TempDir,
    /// The search path of the page's commands.
    path: String,
    /// What stands on the page for something that only the run knows, such as a PID.
    words: Vec<(&'static str, String)>,
    /// Hosts, and what runs there in the end.
    at_end: Vec<(&'static str, String)>,
}

impl Stage {
    /// A stage without hosts. Its commands find dwell, dwell-lab, and a sudo that does nothing.
    pub fn new(programs: &Programs) -> Result<Stage> {
        let folder = tempfile::Builder::new().prefix("dwell-problem-").tempdir();
        let folder = folder.map_err(Error::io("make a temporary folder"))?;
        let bin = folder.path().join("bin");
        let at = |what: &str| Error::io(format!("{what} {}", bin.display()));
        fs::create_dir(&bin).map_err(at("make"))?;
        for (name, program) in [("dwell", &programs.dwell), ("dwell-lab", &programs.lab)] {
            symlink(program, bin.join(name)).map_err(at("link a program in"))?;
        }
        fs::write(bin.join("sudo"), "#!/bin/sh\nexec \"$@\"\n").map_err(at("write to"))?;
        fs::set_permissions(bin.join("sudo"), fs::Permissions::from_mode(0o755)).map_err(at("set a mode in"))?;
        fs::write(folder.path().join("traffic.py"), TRAFFIC).map_err(at("write beside"))?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        Ok(Stage {
            running: Vec::new(),
            groups: Vec::new(),
            network: Network::default(),
            folder,
            path,
            words: Vec::new(),
            at_end: Vec::new(),
        })
    }

    /// The folder in which the page's commands run.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file that the page mentions.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.folder().join(name);
        let written = fs::create_dir_all(file.parent().unwrap_or(&file)).and_then(|()| fs::write(&file, content));
        written.map_err(Error::io(format!("write {}", file.display())))
    }

    /// Replaces a word of the page's commands.
    pub fn replace(&mut self, word: &'static str, with: String) {
        self.words.push((word, with));
    }

    /// Starts a line of shell on a host, under a name by which it can be ended. It runs until the stage goes.
    pub fn start(&mut self, name: &str, host: &str, script: &str) -> Result<u32> {
        let program = script.split(' ').next().unwrap_or_default();
        if !self.folder().join("bin").join(program).exists() && find_program(program).is_none() {
            return Err(Error::Host {
                wanted: "walk this page",
                fact: format!("there is no program {program} on the search path"),
                remedy: "Install the package that has it.",
            });
        }
        let (folder, path) = (self.folder().to_owned(), self.path.clone());
        let child = self.network.host(host)?.spawn("sh", |command| {
            command.args(["-c", &format!("exec {script}")]).current_dir(folder).env("PATH", path);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        })?;
        let pid = child.id();
        self.running.push((name.to_owned(), child));
        Ok(pid)
    }

    /// Starts a line of shell in a cgroup of the stage, and waits until it is there.
    pub fn start_in(&mut self, group: &Path, name: &str, host: &str, script: &str) -> Result<u32> {
        let members = group.join("cgroup.procs");
        let pid = self.start(name, host, &format!("sh -c 'echo 0 > {}; {script}'", members.display()))?;
        eventually(name, || fs::read_to_string(&members).is_ok_and(|members| !members.is_empty()))?;
        Ok(pid)
    }

    /// Waits for a file that a program of the stage makes.
    pub fn wait_for(&self, name: &str) -> Result<()> {
        eventually(name, || self.folder().join(name).exists())
    }

    /// Sets a line of shell that runs on a host when the stage goes and what was started has ended.
    pub fn at_end(&mut self, host: &'static str, script: String) {
        self.at_end.push((host, script));
    }

    /// Makes a cgroup. It goes with the stage.
    pub fn group(&mut self, name: &str) -> Result<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(Error::io("read the mounts"))?;
        let root = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            words.next().filter(|_| words.next() == Some("cgroup2"))
        });
        let Some(root) = root else {
            return Err(Error::Host {
                wanted: "walk this page",
                fact: "no cgroup hierarchy of version 2 is mounted".to_owned(),
                remedy: "Mount one: `mount -t cgroup2 none /sys/fs/cgroup`.",
            });
        };
        let group = Path::new(root).join(name);
        fs::create_dir(&group).map_err(Error::file("make", &group))?;
        self.groups.push(Group(group.clone()));
        Ok(group)
    }

    /// Starts traffic.py on a host.
    pub fn traffic(&mut self, name: &str, host: &str, arguments: &str) -> Result<u32> {
        self.start(name, host, &format!("python3 traffic.py {arguments}"))
    }

    /// Waits until a host has a connection to this port.
    pub fn await_connection(&self, host: &str, port: u16) -> Result<()> {
        self.await_socket(host, &["state", "established", &format!("dport = :{port}")])
    }

    /// Waits until a program of a host listens at this port.
    pub fn await_listener(&self, host: &str, port: u16) -> Result<()> {
        self.await_socket(host, &["state", "listening", &format!("sport = :{port}")])
    }

    fn await_socket(&self, host: &str, filter: &[&str]) -> Result<()> {
        let namespace = self.network.host(host)?;
        let sockets = || run(namespace.command("ss").arg("-Htn").args(filter), "");
        eventually(&format!("a socket of {host} with {}", filter.join(" ")), || {
            sockets().is_ok_and(|sockets| !sockets.is_empty())
        })
    }

    /// Ends what was started under a name.
    pub fn end(&mut self, name: &str) {
        self.running.retain(|(other, _)| other != name);
    }

    /// Runs commands of the page on a host, and returns all that they print, in the order in which a terminal has it. A command
    /// that ends with `&` runs on, and what it prints is not returned.
    pub fn run(&mut self, host: &str, script: &str, stop: &AtomicBool) -> Result<String> {
        if let Some(script) = script.strip_suffix(" &") {
            return self.start(script, host, script).map(|_| String::new());
        }
        let script = self.words.iter().fold(script.to_owned(), |script, (word, with)| script.replace(word, with));
        let host: &Namespace = self.network.host(host)?;
        // An exit status of 1 is an answer of dwell, and 4 one that says what is missing.
        let script = format!(
            "cd '{}'; PATH='{}'; {{ {script}\n}} 2>&1 || [ $? -eq 1 -o $? -eq 4 ]",
            self.folder().display(),
            self.path
        );
        collect(host, "sh".as_ref(), &["-c".to_owned(), script], stop)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.running.clear();
        for (host, script) in mem::take(&mut self.at_end) {
            // Of what stays after SIGKILL, the next experiment removes namespaces and pins; a cgroup and the folder stay.
            let _ = self.run(host, &script, &AtomicBool::new(false));
        }
    }
}

fn eventually(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return Err(Error::Timeout(what.to_owned()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A cgroup, which is removed when this is dropped.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        // Killed processes leave it soon.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
