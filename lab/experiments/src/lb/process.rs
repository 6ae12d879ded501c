//! `dwell lb run`, started as any user starts it.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{
    Error, Namespace, ProcessId, Result,
    error::{command_line, run},
    program::{PATIENCE, RunningProgram},
};
use jiff::Timestamp;
use serde::Deserialize;

use super::{
    Policy, Weight, WeightChange,
    star::{FRONT, PORT, Star},
};

/// A running balancer. Its programs and maps are removed when this is dropped.
pub(crate) struct Balancer<'a> {
    namespace: &'a Namespace,
    exe: &'a Path,
    part: Option<RunningProgram>,
    paths: BalancerPaths,
    config: PathBuf,
}

/// The paths of a balancer's pins and socket, which its configuration names.
pub(crate) struct BalancerPaths {
    pub(crate) pin: PathBuf,
    pub(crate) socket: PathBuf,
}

/// The parent of the folders with pins. Each folder names its process, so that those of killed processes are found.
const PINS: &str = "/sys/fs/bpf/dwell";

impl<'a> Balancer<'a> {
    /// Starts a balancer, and waits until it reports that it runs.
    pub(crate) fn start(
        namespace: &'a Namespace,
        exe: &'a Path,
        folder: &Path,
        configuration: impl FnOnce(&BalancerPaths) -> String,
    ) -> Result<Balancer<'a>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        remove_abandoned();
        let own = ProcessId::own()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lab-{}-{}-{number}", own.pid, own.start_ticks);
        let mut balancer = Balancer {
            namespace,
            exe,
            part: None,
            paths: BalancerPaths { pin: Path::new(PINS).join(name), socket: folder.join("lb.sock") },
            config: folder.join("lb.toml"),
        };
        balancer.configure(configuration)?;
        balancer.part = Some(balancer.run("balancer", folder)?);
        Ok(balancer)
    }

    fn run(&self, name: &str, folder: &Path) -> Result<RunningProgram> {
        let arguments = ["lb".as_ref(), "run".as_ref(), self.config.as_os_str()];
        let mut part = RunningProgram::start(name, self.namespace, self.exe, folder, &arguments)?;
        part.wait_for_output(PATIENCE)?;
        Ok(part)
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> Option<u32> {
        self.part.as_ref().map(RunningProgram::id)
    }

    /// Kills the balancer's process, and starts another one that takes over.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.part = None;
        let folder = self.config.parent().unwrap_or(Path::new(".")).to_owned();
        self.part = Some(self.run("balancer-2", &folder)?);
        Ok(())
    }

    /// Reloads the balancer with another configuration.
    pub(crate) fn reload(&self, configuration: impl FnOnce(&BalancerPaths) -> String) -> Result<()> {
        self.configure(configuration)?;
        self.ask(&["reload"]).map(drop)
    }

    /// Waits until what is wanted of the balancer holds.
    pub(crate) fn wait_until(&self, wanted: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        while !holds()? {
            if start.elapsed() > PATIENCE {
                let output = self.part.as_ref().map_or(Ok(String::new()), RunningProgram::stderr)?;
                let what = format!("{wanted} the balancer, whose output is: {}", output.trim());
                return Err(Error::Timeout(what));
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Stops the balancer, and returns the changes of weights that it reported, with times since `since`.
    pub(crate) fn stop(mut self, since: Timestamp) -> Result<Vec<WeightChange>> {
        let Some(part) = self.part.take() else {
            return Ok(Vec::new());
        };
        let out = part.stdout_file().to_owned();
        part.interrupt()?;
        self.detach()?;
        let output = fs::read_to_string(&out).map_err(Error::file("read", &out))?;
        weight_changes(&output, since)
    }

    /// Removes the balancer from the kernel. Status 1 means that nothing of it was left there.
    fn detach(&self) -> Result<()> {
        let mut command = self.namespace.command(self.exe);
        command.args(["lb", "detach", "--pin"]).arg(&self.paths.pin);
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

    /// Runs a verb of `dwell lb` that asks the balancer, and returns its output.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<String> {
        let socket = self.paths.socket.to_string_lossy();
        self.dwell(&[arguments, &["--socket", &socket]].concat())
    }

    fn dwell(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.namespace.command(self.exe);
        run(command.arg("lb").args(arguments), "")
    }

    fn configure(&self, configuration: impl FnOnce(&BalancerPaths) -> String) -> Result<()> {
        let text = configuration(&self.paths);
        fs::write(&self.config, text).map_err(Error::file("write", &self.config))
    }
}

impl Drop for Balancer<'_> {
    fn drop(&mut self) {
        self.part = None;
        let _ = fs::remove_dir_all(&self.paths.pin);
    }
}

/// Removes the pins of experiments that were killed.
fn remove_abandoned() {
    for entry in fs::read_dir(PINS).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        let process = parts.next().filter(|lab| *lab == "lab").and_then(|_| {
            Some(ProcessId { pid: parts.next()?.parse().ok()?, start_ticks: parts.next()?.parse().ok()? })
        });
        if process.is_some_and(|process| !process.is_alive()) {
            // The next experiment tries again what cannot be removed now.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// How a setting begins that is one of the VIP.
const OF_VIP: &str = "vip.";

/// The part of the configuration that all experiments have in common.
/// The lines `settings` stand at its top, but for those of VIPs.
pub(crate) fn common_config(paths: &BalancerPaths, settings: &[String]) -> String {
    format!(
        "{}interface = \"{FRONT}\"\n\
         pin = {:?}\n\n\
         [limits]\nconnections = 20000\nvips = 16\nreals = 64\n\n\
         [api]\nsocket = {:?}\n\n",
        settings.iter().filter(|line| !line.starts_with(OF_VIP)).map(String::as_str).collect::<String>(),
        paths.pin,
        paths.socket
    )
}

/// The configuration of servers by their own addresses, each followed by the lines that `more` returns.
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

/// The configuration for TCP connections to the first `servers` servers.
pub(super) fn configuration(paths: &BalancerPaths, policy: Policy, servers: usize, settings: &[String]) -> String {
    let vip = format!(
        "[[vip]]\nname = \"lab\"\naddress = \"{}\"\nprotocol = \"tcp\"\nport = {PORT}\n\
         policy = \"{}\"\nforward = \"l2\"\n{}\n\
         [vip.health]\nkind = \"tcp\"\ninterval = \"250ms\"\nrise = 2\nfall = 2\n",
        Star::vip().ip(),
        policy.name(),
        settings.iter().filter_map(|line| line.strip_prefix(OF_VIP)).collect::<String>(),
    );
    common_config(paths, settings) + &vip + &backends(0..servers, |_| String::new())
}

/// A line of the balancer's output; other fields than these are ignored.
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

fn weight_changes(output: &str, since: Timestamp) -> Result<Vec<WeightChange>> {
    let mut all = Vec::new();
    for line in output.lines() {
        let wrong = |why: String| Error::invalid("output of the balancer", why);
        let line: Line = serde_json::from_str(line).map_err(|why| wrong(why.to_string()))?;
        if line.kind != "lb.weights" {
            continue;
        }
        let weights: Vec<Weight> = serde_json::from_value(line.backends).map_err(|why| wrong(why.to_string()))?;
        let time: Timestamp = line.time.parse().map_err(|why: jiff::Error| wrong(why.to_string()))?;
        all.push(WeightChange {
            time_s: time.duration_since(since).as_secs_f64(),
            disruption: line.disruption,
            weights,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_weights_are_read_and_other_records_ignored() {
        let output = r#"{"type":"lb.started","backends":4,"vips":1,"time":"2026-01-01T00:00:00Z"}
{"type":"lb.weights","vip":"lab","disruption":0.1,"time":"2026-01-01T00:00:02.5Z","backends":[{"backend":"server1","weight":0.6,"share":0.15,"reason":"slow","latency":{"mean_ns":20000000}}]}
"#;
        let since = "2026-01-01T00:00:01Z".parse().unwrap();
        let found = weight_changes(output, since).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].time_s, found[0].disruption), (1.5, 0.1));
        let weight = &found[0].weights[0];
        assert_eq!((weight.server.as_str(), weight.share), ("server1", 0.15));
        assert!(weight_changes("nonsense", since).is_err());
    }

    #[test]
    fn the_configuration_names_all_servers_and_the_policy() {
        let paths = BalancerPaths { pin: "/pin".into(), socket: "/s".into() };
        let set = ["estimator = \"pirate\"\n", "interval = \"1s\"\n", "vip.choices = 1\n"].map(str::to_owned);
        let text = configuration(&paths, Policy::Latency, 3, &set);
        assert!(text.contains("\nforward = \"l2\"\nchoices = 1\n"), "{text}");
        assert!(text.starts_with(&set[..2].concat()) && text.matches("interval =").count() == 2, "{text}");
        assert_eq!(text.matches("[[vip.backend]]").count(), 3);
        assert!(text.contains("policy = \"latency\"") && text.contains("pin = \"/pin\""));
        assert!(text.contains("address = \"10.79.0.23\"") && !text.contains("10.79.0.24"));
    }
}
