//! A link with the kernel's own queueing disciplines, which this host's kernel may lack. User-mode Linux, a kernel that
//! runs as a process, is placed between two hosts, and shapes and delays the packets that pass.
//!
//! ```text
//!  left                      link box                              right
//!  box0 ─ tap ─ vec0 ═ bridge ═ port0 ── port1 ═ bridge ═ vec1 ─ tap ─ box0
//!            to the right: rate and queue at port0, then delay at vec1
//!            to the left:  rate and queue at port1, then delay at vec0
//! ```
//!
//! A rate counts IP packets without link headers, as in [`LinkSpec`](crate::LinkSpec). The timers of that kernel are
//! those of a process, with real-time priority if that is permitted: a packet is late by some tenths of a millisecond.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{ChildStdin, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;

use crate::{BitsPerSecond, Error, Guarded, Namespace, Nanos, Result, console::Console, error::find_program};

const KERNEL: &str = "linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";
/// The time that the kernel may take to start, and a command in it, on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);
/// The line that the machine prints when its devices are ready.
const UP: &str = "dwell-box is up";
/// The prefix of the line with the number and status of a command that has ended.
const DONE: &str = "dwell-box did";
/// The device at either end.
const DEVICE: &str = "box0";
/// The bytes of a packet before its IP header, which are not counted.
const LINK_HEADER: u32 = 14;
/// The bytes that a shaper may send at once, to make up for late timers.
const BURST: Nanos = Nanos::from_millis(2);
const LEAST_BURST_BYTES: u64 = 3028;

/// The two directions of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BoxSpec {
    /// From the left host to the right one.
    pub to_right: BoxLink,
    /// From the right host to the left one.
    pub to_left: BoxLink,
}

impl BoxSpec {
    /// A bottleneck towards the right. The opposite direction only delays, by the same time.
    pub fn one_way(to_right: BoxLink) -> Self {
        let to_left = BoxLink { delay: to_right.delay, ..BoxLink::default() };
        Self { to_right, to_left }
    }
}

/// One direction of a link. The default has no limit and no delay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BoxLink {
    /// The rate at which the queue is served. Without a rate, there is no queue.
    pub rate: Option<BitsPerSecond>,
    /// The one-way delay after the queue.
    pub delay: Nanos,
    /// The queueing discipline.
    pub discipline: Discipline,
    /// Mark packets of ECN-capable connections instead of dropping them, if the discipline can: a FIFO cannot. Both
    /// ends have to use ECN: `net.ipv4.tcp_ecn` is 1 in the namespaces of a [`LinkBox`] if a direction marks.
    pub ecn: bool,
}

/// A queueing discipline, with the kernel's own parameters (Linux 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// First in, first out.
    Fifo {
        /// The maximum number of packets.
        packets: u32,
    },
    /// Controlled delay, with a target of 5 ms and an interval of 100 ms.
    Codel,
    /// One queue per flow, each with CoDel.
    FqCodel,
    /// Proportional integral controller enhanced, with a target of 15 ms.
    Pie,
}

impl Default for Discipline {
    fn default() -> Self {
        Self::Fifo { packets: 1000 }
    }
}

impl Discipline {
    /// Returns its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo { .. } => "fifo",
            Self::Codel => "codel",
            Self::FqCodel => "fq_codel",
            Self::Pie => "pie",
        }
    }

    /// Returns its parameters for `tc`.
    fn words(self, ecn: bool) -> String {
        match (self, ecn) {
            (Self::Fifo { packets }, _) => format!("pfifo limit {packets}"),
            (Self::Codel, false) => "codel noecn".to_owned(),
            (Self::FqCodel, false) => "fq_codel noecn".to_owned(),
            (Self::Pie, false) => "pie noecn".to_owned(),
            (_, true) => format!("{} ecn", self.name()),
        }
    }
}

/// A direction through the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Towards {
    /// Towards the right host.
    Right,
    /// Towards the left host.
    Left,
}

impl Towards {
    /// Returns the device that shapes and queues, and the device that delays.
    fn devices(self) -> (&'static str, &'static str) {
        match self {
            Self::Right => ("port0", "vec1"),
            Self::Left => ("port1", "vec0"),
        }
    }
}

/// The counters of the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Those towards the right. `None` if there is no rate.
    pub to_right: Option<QueueStatistics>,
    /// Those towards the left.
    pub to_left: Option<QueueStatistics>,
    /// Packets that were lost elsewhere. If there are any, the link was not as asked for.
    pub lost_elsewhere: u64,
}

/// The counters of a queue, from `tc -s qdisc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStatistics {
    /// Packets that passed.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that were marked; `None` if the discipline cannot mark.
    pub marked: Option<u64>,
    /// Packets that wait now.
    pub waiting: u64,
}

/// Two hosts with a link box between them. They are removed when this is dropped.
#[derive(Debug)]
pub struct LinkBox {
    // Before its ends, which lose their devices with it.
    shaper: Shaper,
    /// The left host, with the device `box0` and the address [`Shaper::LEFT`].
    pub left: Namespace,
    /// The right host, with the device `box0` and the address [`Shaper::RIGHT`].
    pub right: Namespace,
}

impl LinkBox {
    /// Returns what this host lacks for link boxes, as a sentence with the remedy, or `None`.
    pub fn missing_requirement() -> Option<String> {
        Shaper::missing_requirement()
    }

    /// Makes the hosts and the link. Packets pass when it returns.
    pub fn start(name: &str, spec: &BoxSpec) -> Result<Self> {
        let host = |side| -> Result<Namespace> {
            let host = Namespace::create(&format!("{name}-{side}"))?;
            let marks = spec.to_right.ecn || spec.to_left.ecn;
            // Connections do not learn from earlier ones, so that runs are alike.
            host.set(&[("ipv4/tcp_no_metrics_save", "1"), ("ipv4/tcp_ecn", if marks { "1" } else { "0" })])?;
            Ok(host)
        };
        let (left, right) = (host("left")?, host("right")?);
        let shaper = Shaper::join(name, spec, &left, &right)?;
        Ok(Self { shaper, left, right })
    }

    /// Changes a direction; see [`Shaper::change`].
    pub fn change(&self, towards: Towards, link: &BoxLink) -> Result<()> {
        self.shaper.change(towards, link)
    }

    /// Returns the counters of the queues so far.
    pub fn statistics(&self) -> Result<Statistics> {
        self.shaper.statistics()
    }
}

/// The link itself, between two namespaces that somebody else has made. It ends when this is dropped, or when the
/// thread that made it ends.
#[derive(Debug)]
pub struct Shaper {
    // It ends before its namespace goes.
    machine: Guarded,
    console: Arc<Console>,
    commands: Mutex<Commands>,
    ends: [String; 2],
    _namespace: Namespace,
}

#[derive(Debug)]
struct Commands {
    input: ChildStdin,
    given: u64,
}

impl Shaper {
    /// The address of the left end. The prefix of both ends has 24 bits.
    pub const LEFT: Ipv4Addr = Ipv4Addr::new(10, 94, 0, 1);
    /// The address of the right end.
    pub const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 94, 0, 2);

    /// Returns what this host lacks for link boxes, as a sentence with the remedy, or `None`.
    pub fn missing_requirement() -> Option<String> {
        if find_program(KERNEL).is_none() || !Path::new(MODULES).exists() {
            return Some(format!("there is no program {KERNEL}, or no {MODULES}: apt-get install user-mode-linux"));
        }
        let programs = [("tc", "iproute2"), ("insmod", "kmod"), ("unshare", "util-linux")];
        let missing = programs.iter().find(|(program, _)| find_program(program).is_none());
        missing.map(|(program, package)| format!("there is no program {program}: apt-get install {package}"))
    }

    /// Links two namespaces by a device `box0` in each, with its address. The ends do not send packets that are longer
    /// than the link's, because a bottleneck counts packets.
    ///
    /// # Errors
    ///
    /// If this host cannot (see [`Shaper::missing_requirement`]), or the kernel does not start.
    pub fn join(name: &str, spec: &BoxSpec, left: &Namespace, right: &Namespace) -> Result<Self> {
        if let Some(fact) = Self::missing_requirement() {
            return Err(Error::Host { wanted: "make a link box", fact, remedy: "A FIFO bottleneck needs none." });
        }
        let namespace = Namespace::create(&format!("{name}-box"))?;
        let files = tempfile::Builder::new()
            .prefix("dwell-box-")
            .tempdir()
            .map_err(Error::io("make a folder for a link box"))?;
        let (machine, console, input) = launch(&namespace, files.path())?;
        let shaper = Self {
            machine,
            console,
            commands: Mutex::new(Commands { input, given: 0 }),
            ends: [left, right].map(|end| end.name().to_owned()),
            _namespace: namespace,
        };
        let is_up = |shown: &str| shown.contains(UP).then_some(());
        shaper.wait("the start of a link box", is_up)?;
        // It has read them, and where this process is killed nothing is to stay.
        drop(files);
        // What the kernel sends to a tap whose other end is down blocks it for good, so they are up before it bridges.
        for (number, end) in [left, right].into_iter().enumerate() {
            shaper._namespace.ip(&format!("link set tap{number} netns {} name {DEVICE}\n", end.name()))?;
            end.ip(&device(number))?;
        }
        shaper.run(BRIDGE)?;
        shaper.change(Towards::Right, &spec.to_right)?;
        shaper.change(Towards::Left, &spec.to_left)?;
        Ok(shaper)
    }

    /// The device of both ends.
    pub const DEVICE: &str = DEVICE;

    /// Changes a direction. If only rate or delay change, waiting packets stay in the queue; if the discipline changes,
    /// they are lost.
    pub fn change(&self, towards: Towards, link: &BoxLink) -> Result<()> {
        self.run(&commands(towards, link)).map(drop)
    }

    /// Returns the counters of the queues so far.
    pub fn statistics(&self) -> Result<Statistics> {
        let mut lost = 0;
        let mut queue = |towards: Towards| -> Result<Option<QueueStatistics>> {
            let (shaped, delayed) = towards.devices();
            let of_shaped = self.run(&format!("tc -s -j qdisc show dev {shaped}"))?;
            let of_delayed = self.run(&format!("tc -s -j qdisc show dev {delayed}"))?;
            lost += parse(&of_delayed, &["netem"]).map_or(0, |queue| queue.dropped);
            Ok(parse(&of_shaped, &["pfifo", "codel", "fq_codel", "pie"]))
        };
        let (to_right, to_left) = (queue(Towards::Right)?, queue(Towards::Left)?);
        for end in &self.ends {
            lost += crate::namespace::enter(end, || not_sent(DEVICE))?;
        }
        Ok(Statistics { to_right, to_left, lost_elsewhere: lost })
    }

    /// Runs a line of shell in the machine. Returns its output.
    fn run(&self, line: &str) -> Result<String> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let number = commands.given;
        commands.given += 1;
        let line = line.trim().replace('\n', " && ");
        writeln!(commands.input, "{line}").map_err(Error::io(format!("tell a link box `{line}`")))?;
        let begin = format!("{DONE} {} ", number.wrapping_sub(1));
        let end = format!("{DONE} {number} ");
        let (output, status) = self.wait(&format!("`{line}` in a link box"), |shown| {
            let (before, status) = shown.rsplit_once(&end)?;
            let (status, _) = status.split_once('\n')?;
            let output = match before.rsplit_once(&begin) {
                Some((_, after)) => after.split_once('\n').map_or("", |(_, output)| output),
                None => before,
            };
            Some((output.to_owned(), status.to_owned()))
        })?;
        if status != "0" {
            return Err(Error::Command {
                command: line,
                status: format!("exit status: {status}, in a link box"),
                stderr: output.trim().to_owned(),
            });
        }
        Ok(output)
    }

    fn wait<T>(&self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        self.console
            .wait(PATIENCE, find)
            .ok_or_else(|| Error::Timeout(format!("{what}, whose console shows: {}", self.console.last_lines())))
    }

    /// Returns the process of the machine.
    pub fn process(&self) -> u32 {
        self.machine.id()
    }
}

/// The kernel's process. It has helper processes that would survive it when it is killed, so all are in a PID namespace
/// of their own, which ends as a whole.
fn launch(namespace: &Namespace, files: &Path) -> Result<(Guarded, Arc<Console>, ChildStdin)> {
    let init = files.join("init");
    fs::write(&init, INIT).map_err(Error::file("write", &init))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(Error::file("make executable", &init))?;
    let mut machine = namespace.spawn("unshare", |command| {
        command.args(["--pid", "--fork", "--kill-child=KILL", "/bin/sh", "-c"]);
        command.args([REALTIME_IF_ALLOWED, "sh", KERNEL]);
        // Its memory is a file of the host's, its root the host's own, which it only reads.
        command.args("mem=128M root=/dev/root rootfstype=hostfs rootflags=/ ro quiet".split(' '));
        command.args(["con=null", "con0=fd:0,fd:1", "umid=box"]);
        command.arg(format!("uml_dir={}", files.display()));
        command.arg(format!("init={}", init.display()));
        for number in 0..2 {
            command.arg(format!("vec{number}:transport=tap,ifname=tap{number},depth=128,gro=0"));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
    })?;
    let (Some(input), Some(output)) = (machine.stdin.take(), machine.stdout.take()) else {
        return Err(Error::invalid("link box", "it has no console"));
    };
    Ok((machine, Console::read(output), input))
}

/// Requests real-time priority: on a busy host, packets would otherwise be late by tens of milliseconds.
const REALTIME_IF_ALLOWED: &str = r#"chrt --fifo 50 true 2>/dev/null && set -- chrt --fifo 50 "$@"; "$@"; exit $?"#;

/// The machine's first process. Its devices have no addresses, so that only the ends send packets.
const INIT: &str = r#"#!/bin/sh
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
stty -echo -onlcr -icanon
modules=/usr/lib/uml/modules/$(uname -r)/kernel
for module in net/llc/llc net/802/stp lib/crc-ccitt net/ipv6/ipv6 net/bridge/bridge drivers/net/veth \
	net/sched/sch_htb net/sched/sch_netem net/sched/sch_codel net/sched/sch_fq_codel net/sched/sch_pie
do
	! [ -e $modules/$module.ko ] || insmod $modules/$module.ko
done
for scope in all default; do
	echo 1 >/proc/sys/net/ipv6/conf/$scope/disable_ipv6
done
ip link set vec0 up
ip link set vec1 up
echo dwell-box is up
set +e
number=0
while read -r line; do
	eval "$line" 2>&1
	echo "dwell-box did $number $?"
	number=$((number + 1))
done
"#;

const BRIDGE: &str = "
ip link add dev port0 type veth peer name port1
ip link add dev bridge0 type bridge mcast_snooping 0
ip link add dev bridge1 type bridge mcast_snooping 0
ip link set dev vec0 master bridge0
ip link set dev port0 master bridge0
ip link set dev port1 master bridge1
ip link set dev vec1 master bridge1
ip link set dev bridge0 up
ip link set dev bridge1 up
ip link set dev port0 up
ip link set dev port1 up";

/// Returns the input of `ip -batch` that sets up the device of an end. There is no neighbour discovery on the link.
fn device(number: usize) -> String {
    let (address, peer) = match number {
        0 => (Shaper::LEFT, Shaper::RIGHT),
        _ => (Shaper::RIGHT, Shaper::LEFT),
    };
    format!(
        "link set {DEVICE} addrgenmode none address {} up\n\
         address add {address}/24 dev {DEVICE}\n\
         neighbour add {peer} lladdr {} dev {DEVICE} nud permanent\n",
        hardware_address(number),
        hardware_address(1 - number)
    )
}

fn hardware_address(number: usize) -> String {
    format!("02:00:0a:5e:00:0{}", number + 1)
}

/// Returns the lines of shell that set a direction, whatever it was before.
fn commands(towards: Towards, link: &BoxLink) -> String {
    let (shaped, delayed) = towards.devices();
    let mut lines = String::new();
    match link.rate {
        None => {
            let _ = writeln!(lines, "{{ tc qdisc delete dev {shaped} root 2>&- || :; }}");
        }
        Some(rate) => {
            let rate = u64::from(rate);
            let burst = (rate / 8 * BURST.0 / 1_000_000_000).max(LEAST_BURST_BYTES);
            let words = link.discipline.words(link.ecn);
            let _ = writeln!(
                lines,
                "{{ tc qdisc show dev {shaped} | grep -q '^qdisc htb 1:' || tc qdisc replace dev {shaped} root \
                 handle 1: stab overhead -{LINK_HEADER} linklayer ethernet htb default 1; }}\n\
                 tc class replace dev {shaped} parent 1: classid 1:1 htb rate {rate}bit burst {burst} cburst {burst} \
                 quantum 1514\n\
                 tc qdisc replace dev {shaped} parent 1:1 {words}"
            );
        }
    }
    if link.delay == Nanos::ZERO {
        let _ = writeln!(lines, "{{ tc qdisc delete dev {delayed} root 2>&- || :; }}");
    } else {
        let micros = link.delay.0 / 1000;
        let _ = writeln!(lines, "tc qdisc replace dev {delayed} root netem delay {micros}us limit 100000");
    }
    lines
}

/// Returns the first of these disciplines in the output of `tc -s -j qdisc`.
fn parse(json: &str, kinds: &[&str]) -> Option<QueueStatistics> {
    let list: Vec<Value> = serde_json::from_str(json.trim()).ok()?;
    let queue = list.iter().find(|queue| queue["kind"].as_str().is_some_and(|kind| kinds.contains(&kind)))?;
    Some(QueueStatistics {
        packets: queue["packets"].as_u64()?,
        bytes: queue["bytes"].as_u64()?,
        dropped: queue["drops"].as_u64()?,
        marked: queue["ecn_mark"].as_u64(),
        waiting: queue["qlen"].as_u64()?,
    })
}

/// Returns the number of packets that a device of the thread's namespace dropped. 0 if the device is gone.
fn not_sent(device: &str) -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let counts = table.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    let dropped = counts.and_then(|counts| counts.split_ascii_whitespace().nth(11)?.parse().ok());
    dropped.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bottleneck(discipline: Discipline, ecn: bool) -> BoxLink {
        BoxLink { rate: BitsPerSecond::new(10_000_000), delay: Nanos::from_millis(25), discipline, ecn }
    }

    #[test]
    fn a_direction_is_shaped_before_it_is_delayed() {
        let lines = commands(Towards::Left, &bottleneck(Discipline::FqCodel, true));
        assert!(lines.contains("dev port1 parent 1:1 fq_codel ecn\n"), "{lines}");
        assert!(lines.contains("rate 10000000bit burst 3028 "), "{lines}");
        assert!(lines.contains("dev vec0 root netem delay 25000us"), "{lines}");
    }

    #[test]
    fn a_perfect_direction_has_no_queue() {
        let lines = commands(Towards::Right, &BoxLink::default());
        assert!(!lines.contains("htb") && !lines.contains("netem"), "{lines}");
    }

    #[test]
    fn a_discipline_marks_only_where_it_is_to() {
        assert_eq!(Discipline::Codel.words(false), "codel noecn");
        assert_eq!(Discipline::Pie.words(true), "pie ecn");
        assert_eq!(Discipline::Fifo { packets: 85 }.words(true), "pfifo limit 85");
    }

    #[test]
    fn what_tc_tells_of_the_queue_is_read() {
        let text = r#"[{"kind":"htb","handle":"1:","bytes":9,"packets":9,"drops":9,"qlen":9},
            {"kind":"codel","handle":"2:","parent":"1:1","options":{"ecn":true},"bytes":1000,"packets":7,"drops":1,
            "qlen":2,"count":1612,"ecn_mark":5,"drop_overlimit":0}]"#;
        let expected = QueueStatistics { packets: 7, bytes: 1000, dropped: 1, marked: Some(5), waiting: 2 };
        assert_eq!(parse(text, &["codel"]), Some(expected));
        assert_eq!(parse(text, &["pie"]), None);
        assert_eq!(parse("", &["codel"]), None);
    }
}
