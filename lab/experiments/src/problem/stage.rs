//! Hosts with programs on them, and a shell for the commands of a page.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
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
    // Programs go before their hosts.
    running: Vec<(String, Guarded)>,
    pub network: Network,
    /// Where the page's commands run: it has the files that they read and write.
    folder: TempDir,
    /// The search path of the page's commands.
    path: String,
    /// What stands on the page for something that only the run knows, such as a PID.
    words: Vec<(&'static str, String)>,
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
        Ok(Stage { running: Vec::new(), network: Network::default(), folder, path, words: Vec::new() })
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
        if find_program(program).is_none() {
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
        let start = Instant::now();
        while run(self.network.host(host)?.command("ss").arg("-Htn").args(filter), "")?.is_empty() {
            if start.elapsed() > PATIENCE {
                return Err(Error::Timeout(format!("a socket of {host} with {}", filter.join(" "))));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Ends what was started under a name.
    pub fn end(&mut self, name: &str) {
        self.running.retain(|(other, _)| other != name);
    }

    /// Runs commands of the page on a host, and returns all that they print, in the order in which a terminal has it.
    pub fn run(&self, host: &str, script: &str, stop: &AtomicBool) -> Result<String> {
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
