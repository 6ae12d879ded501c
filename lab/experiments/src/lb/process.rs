//! `dwell lb run`, as anybody runs it.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{
    Error, ProcessId, Result,
    error::{command_line, run},
    program::{PATIENCE, RunningProgram},
};
use jiff::Timestamp;
use serde::Deserialize;

use super::{
    Policy, Weighing,
    star::{FRONT, PORT, Star},
};

/// A running balancer. Its programs and maps go when this is dropped.
pub(crate) struct Balancer<'a> {
    star: &'a Star,
    exe: &'a Path,
    part: Option<RunningProgram>,
    places: Places,
    config: PathBuf,
}

/// Where a balancer leaves its things: its configuration has to say so.
pub(crate) struct Places {
    pub(crate) pin: PathBuf,
    pub(crate) socket: PathBuf,
}

/// Where programs are pinned: folders that name their process, so that those of killed ones can be told.
const PINS: &str = "/sys/fs/bpf/dwell";

impl<'a> Balancer<'a> {
    /// Starts it, and waits until it says that it runs.
    pub(crate) fn start(
        star: &'a Star,
        exe: &'a Path,
        folder: &Path,
        configuration: impl FnOnce(&Places) -> String,
    ) -> Result<Balancer<'a>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        remove_abandoned();
        let own = ProcessId::own()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lab-{}-{}-{number}", own.pid, own.start_ticks);
        let mut balancer = Balancer {
            star,
            exe,
            part: None,
            places: Places { pin: Path::new(PINS).join(name), socket: folder.join("lb.sock") },
            config: folder.join("lb.toml"),
        };
        balancer.configure(configuration)?;
        balancer.part = Some(balancer.run("balancer", folder)?);
        Ok(balancer)
    }

    fn run(&self, name: &str, folder: &Path) -> Result<RunningProgram> {
        let arguments = ["lb".as_ref(), "run".as_ref(), self.config.as_os_str()];
        let mut part = RunningProgram::start(name, &self.star.balancer, self.exe, folder, &arguments)?;
        part.wait_for_output(PATIENCE)?;
        Ok(part)
    }

    /// Kills its process, and has another take over.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.part = None;
        let folder = self.config.parent().unwrap_or(Path::new(".")).to_owned();
        self.part = Some(self.run("balancer-2", &folder)?);
        Ok(())
    }

    /// Has it go on by another configuration.
    pub(crate) fn reload(&self, configuration: impl FnOnce(&Places) -> String) -> Result<()> {
        self.configure(configuration)?;
        let socket = self.places.socket.to_string_lossy();
        self.dwell(&["reload", "--socket", &socket]).map(drop)
    }

    /// Waits until it lets something through.
    pub(crate) fn wait_until(&self, mut comes_through: impl FnMut() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !comes_through()? {
            if begun.elapsed() > PATIENCE {
                let said = self.part.as_ref().map_or(Ok(String::new()), RunningProgram::stderr)?;
                let what = format!("a connection through the balancer, which says: {}", said.trim());
                return Err(Error::Timeout(what));
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Ends it. What it said of weights since a time.
    pub(crate) fn stop(mut self, since: Timestamp) -> Result<Vec<Weighing>> {
        let Some(part) = self.part.take() else {
            return Ok(Vec::new());
        };
        let out = part.stdout_file().to_owned();
        part.interrupt()?;
        self.detach()?;
        let said = fs::read_to_string(&out).map_err(Error::file("read", &out))?;
        weighings(&said, since)
    }

    /// Takes it out of the kernel. Status 1 is that nothing of it is left there.
    fn detach(&self) -> Result<()> {
        let mut command = self.star.balancer.command(self.exe);
        command.args(["lb", "detach", "--pin"]).arg(&self.places.pin);
        let line = command_line(&command);
        let output = command.output().map_err(Error::io(format!("run `{line}`")))?;
        match output.status.code() {
            Some(0 | 1) => Ok(()),
            _ => Err(Error::Command {
                command: line,
                status: output.status.to_string(),
                stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            }),
        }
    }

    fn dwell(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.star.balancer.command(self.exe);
        run(command.arg("lb").args(arguments), "")
    }

    fn configure(&self, configuration: impl FnOnce(&Places) -> String) -> Result<()> {
        let text = configuration(&self.places);
        fs::write(&self.config, text).map_err(Error::file("write", &self.config))
    }
}

impl Drop for Balancer<'_> {
    fn drop(&mut self) {
        self.part = None;
        let _ = fs::remove_dir_all(&self.places.pin);
    }
}

/// Pins of labs that were killed.
fn remove_abandoned() {
    for entry in fs::read_dir(PINS).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        let process = parts.next().filter(|lab| *lab == "lab").and_then(|_| {
            Some(ProcessId { pid: parts.next()?.parse().ok()?, start_ticks: parts.next()?.parse().ok()? })
        });
        if process.is_some_and(|process| !process.is_alive()) {
            // What cannot be removed now is for the next lab.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// What begins each configuration of the lab.
pub(crate) fn head(places: &Places) -> String {
    format!(
        "interface = \"{FRONT}\"\n\
         interval = \"200ms\"\n\
         pin = {:?}\n\n\
         [limits]\nconnections = 20000\nvips = 16\nreals = 64\n\n\
         [api]\nsocket = {:?}\n\n",
        places.pin, places.socket
    )
}

/// The servers, by their own addresses.
pub(crate) fn backends(servers: impl IntoIterator<Item = usize>, more: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for server in servers {
        let _ = write!(
            text,
            "\n[[vip.backend]]\nname = \"server{}\"\naddress = \"{}\"\n{}",
            server + 1,
            Star::server_address(server),
            more(server)
        );
    }
    text
}

/// For connections by TCP to so many servers.
pub(super) fn configuration(places: &Places, policy: Policy, servers: usize) -> String {
    let vip = format!(
        "[[vip]]\nname = \"lab\"\naddress = \"{}\"\nprotocol = \"tcp\"\nport = {PORT}\n\
         policy = \"{}\"\nforward = \"l2\"\n\n\
         [vip.health]\nkind = \"tcp\"\ninterval = \"250ms\"\nrise = 2\nfall = 2\n",
        Star::vip().ip(),
        policy.name()
    );
    head(places) + &vip + &backends(0..servers, |_| String::new())
}

/// A line of what it says that is of weights.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    time: String,
    #[serde(default)]
    disruption: f64,
    #[serde(default)]
    backends: serde_json::Value,
}

#[derive(Deserialize)]
struct Backend {
    backend: String,
    share: f64,
    why: String,
    latency_s: Option<f64>,
}

fn weighings(said: &str, since: Timestamp) -> Result<Vec<Weighing>> {
    let mut all = Vec::new();
    for line in said.lines() {
        let wrong = |why: String| Error::invalid("what the balancer says", why);
        let line: Line = serde_json::from_str(line).map_err(|why| wrong(why.to_string()))?;
        if line.kind != "lb_weights" {
            continue;
        }
        let backends: Vec<Backend> = serde_json::from_value(line.backends).map_err(|why| wrong(why.to_string()))?;
        let share = |backend: Backend| super::Weight {
            server: backend.backend,
            share: backend.share,
            why: backend.why,
            latency_s: backend.latency_s,
        };
        let time: Timestamp = line.time.parse().map_err(|why: jiff::Error| wrong(why.to_string()))?;
        all.push(Weighing {
            time_s: time.duration_since(since).as_secs_f64(),
            disruption: line.disruption,
            weights: backends.into_iter().map(share).collect(),
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_weights_is_read_and_the_rest_is_not() {
        let said = r#"{"type":"lb_started","backends":4,"vips":1,"time":"2026-01-01T00:00:00Z"}
{"type":"lb_weights","vip":"lab","disruption":0.1,"time":"2026-01-01T00:00:02.5Z","backends":[{"backend":"server1","weight":0.6,"share":0.15,"why":"slow","latency_s":0.02}]}
"#;
        let since = "2026-01-01T00:00:01Z".parse().unwrap();
        let found = weighings(said, since).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].time_s, found[0].disruption), (1.5, 0.1));
        let weight = &found[0].weights[0];
        assert_eq!((weight.server.as_str(), weight.share), ("server1", 0.15));
        assert!(weighings("nonsense", since).is_err());
    }

    #[test]
    fn the_configuration_names_all_servers_and_the_policy() {
        let places = Places { pin: "/pin".into(), socket: "/s".into() };
        let text = configuration(&places, Policy::Latency, 3);
        assert_eq!(text.matches("[[vip.backend]]").count(), 3);
        assert!(text.contains("policy = \"latency\"") && text.contains("pin = \"/pin\""));
        assert!(text.contains("address = \"10.79.0.23\"") && !text.contains("10.79.0.24"));
    }
}
