//! The causes: each a file with what it means, which evidence speaks for and against it, and its remedies.

mod application;
pub(super) mod at_once;
mod backlog;
mod datagrams;
mod disk;
mod distance;
mod held;
mod local_queue;
mod loss;
pub(super) mod names;
mod pacing;
mod path_queue;
pub(super) mod peer;
mod reader;
mod receiver_window;
mod reordering;
pub(super) mod resets;
mod send_buffer;
pub(super) mod service;
pub(super) mod set_up;
mod slow_start;
pub(super) mod stalled_peer;
mod starved;
mod timeout;

use std::net::IpAddr;

use super::{Evidence, Fact, Group, Part, Process, Remedy, Role, Silences, Source, Sums, Times, Value};

/// The share of the time in which somebody waited that a cause must explain.
pub(super) const MIN_SHARE: f64 = 0.3;
/// The least wait of written bytes to leave that counts: shorter ones are those of any bytes between a write and the next
/// acknowledgement.
pub(super) const MIN_SEND_WAIT_NS: f64 = 5e6;

/// Why connections are slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The local application writes too little.
    SlowApplication,
    /// The send buffer holds less than a round trip needs.
    SmallSendBuffer,
    /// The peer's window is closed or small.
    ReceiverWindow,
    /// The local application does not read what has arrived.
    SlowReader,
    /// Packets wait in a queue of this host.
    LocalQueue,
    /// Packets wait in a queue on the path.
    PathQueue,
    /// Small requests, one after the other, to a peer that is far away.
    Distance,
    /// Packets are lost.
    Loss,
    /// The local application takes long to answer.
    SlowService,
    /// The peer takes long to answer.
    SlowAnswer,
    /// The local application waits for a disk.
    Disk,
    /// The local application waits for a processor.
    Starved,
    /// The last packets of messages are lost, which only a timeout shows.
    TailLoss,
    /// The peer acknowledges nothing.
    StalledPeer,
    /// Packets overtake each other.
    Reordering,
    /// Small writes wait for acknowledgements.
    Nagle,
    /// The congestion window is small after idleness.
    SlowStart,
    /// Connections open slowly.
    SlowSetUp,
    /// Name servers answer late.
    SlowNames,
    /// Datagrams are dropped at a full receive buffer of this host.
    DatagramDrops,
    /// More is written than the path takes.
    SendBacklog,
    /// The rate of a socket was limited by its program.
    Pacing,
}

/// What the evidence says of one cause.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Assessment {
    /// The share of the time in which somebody waited that the cause explains.
    pub(super) share: f64,
    /// Whether it is long enough, in its share and in physical terms.
    pub(super) holds: bool,
    /// The facts for and against it.
    pub(super) facts: Vec<Fact>,
}

/// A cause's file.
struct Rule {
    name: &'static str,
    /// The verdict, up to the share of the time.
    sentence: &'static str,
    /// The parts of the time that it explains; none where it is no time of connections.
    parts: &'static [Part],
    assess: fn(&Evidence) -> Assessment,
    remedies: fn(&Evidence) -> Vec<Remedy>,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 22] = [
        Cause::SlowApplication,
        Cause::SmallSendBuffer,
        Cause::ReceiverWindow,
        Cause::SlowReader,
        Cause::LocalQueue,
        Cause::PathQueue,
        Cause::Distance,
        Cause::Loss,
        Cause::SlowService,
        Cause::SlowAnswer,
        Cause::Disk,
        Cause::Starved,
        Cause::TailLoss,
        Cause::StalledPeer,
        Cause::Reordering,
        Cause::Nagle,
        Cause::SlowStart,
        Cause::SlowSetUp,
        Cause::SlowNames,
        Cause::DatagramDrops,
        Cause::SendBacklog,
        Cause::Pacing,
    ];

    fn rule(self) -> &'static Rule {
        match self {
            Cause::SlowApplication => &application::RULE,
            Cause::SmallSendBuffer => &send_buffer::RULE,
            Cause::ReceiverWindow => &receiver_window::RULE,
            Cause::SlowReader => &reader::RULE,
            Cause::LocalQueue => &local_queue::RULE,
            Cause::PathQueue => &path_queue::RULE,
            Cause::Distance => &distance::RULE,
            Cause::Loss => &loss::RULE,
            Cause::SlowService => &service::RULE,
            Cause::SlowAnswer => &peer::RULE,
            Cause::Disk => &disk::RULE,
            Cause::Starved => &starved::RULE,
            Cause::TailLoss => &timeout::RULE,
            Cause::StalledPeer => &stalled_peer::RULE,
            Cause::Reordering => &reordering::RULE,
            Cause::Nagle => &held::RULE,
            Cause::SlowStart => &slow_start::RULE,
            Cause::SlowSetUp => &set_up::RULE,
            Cause::SlowNames => &names::RULE,
            Cause::DatagramDrops => &datagrams::RULE,
            Cause::SendBacklog => &backlog::RULE,
            Cause::Pacing => &pacing::RULE,
        }
    }

    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        self.rule().name
    }

    /// Whether another cause that holds is nearer to what is to be mended. A slow reader closes its window, a peer that is
    /// gone causes timeouts, packets that overtake each other make the shortest round trip too short to tell queues by, and
    /// a program that waits for a disk or a processor is slow.
    pub(super) fn is_explained_by(self, others: &[Cause]) -> bool {
        let nearer: &[Cause] = match self {
            Cause::ReceiverWindow => &[Cause::SlowReader, Cause::Disk, Cause::Starved],
            Cause::TailLoss | Cause::Loss => &[Cause::StalledPeer],
            Cause::PathQueue => &[Cause::Reordering],
            Cause::SlowReader | Cause::SlowService | Cause::SlowApplication => &[Cause::Disk, Cause::Starved],
            _ => &[],
        };
        others.iter().any(|other| nearer.contains(other))
    }

    /// Whether it is what a queue loses that is too full, and not another cause.
    pub(super) fn is_overflow_of(self, first: Cause) -> bool {
        matches!((self, first), (Cause::Loss | Cause::TailLoss, Cause::PathQueue | Cause::LocalQueue))
    }

    /// Returns the verdict, where the cause explains this share of the time.
    pub(super) fn sentence(self, share: f64) -> String {
        format!("{} {:.0} % of the time.", self.rule().sentence, share * 100.0)
    }

    /// Returns the parts of the time that it explains.
    pub(super) fn parts(self) -> &'static [Part] {
        self.rule().parts
    }

    pub(super) fn assess(self, evidence: &Evidence) -> Assessment {
        (self.rule().assess)(evidence)
    }

    pub(super) fn remedies(self, evidence: &Evidence) -> Vec<Remedy> {
        (self.rule().remedies)(evidence)
    }
}

/// The threshold of a figure in physical terms: false where the figure is unknown.
fn reaches(figure: Option<f64>, least: f64) -> bool {
    figure.is_some_and(|figure| figure >= least)
}

/// The threshold of a wait that polls found: longer than they are apart, or it may be of their making.
pub(super) fn reaches_by_polls(evidence: &Evidence, wait_ns: Option<f64>, least_ns: f64) -> bool {
    reaches_between(evidence.poll_interval_ns(), wait_ns, least_ns)
}

/// The threshold of waits in turns, and of small segments, of which polls that are far apart know more than they find.
fn reaches_by_turns(evidence: &Evidence, wait_ns: Option<f64>, least_ns: f64) -> bool {
    reaches_between(evidence.turn_resolution_ns(), wait_ns, least_ns)
}

/// A wait that is this many times as long as the time between two readings is one.
pub(super) const INTERVALS: f64 = 2.0;

/// Fewer waits may be chance.
const FEW_WAITS: u64 = 10;

/// Whether waits take `least_ns` or more in the mean, if each ends with at least one of `segments`. Unlike the length of one
/// wait, their sum is right in the mean however far apart polls are: divided by `segments` it is the least mean wait. A few may be
/// chance, and without segments their number is unknown.
fn reaches_by_segments(waits: &Silences, segments: u64, least_ns: f64) -> bool {
    // A connection that was over before the next poll has its wait, and not the segment that ended it.
    let answers = segments.max(waits.count) as f64;
    waits.count >= FEW_WAITS && segments > 0 && waits.sum_ns as f64 >= answers * least_ns
}

/// The threshold of a wait that was found by readings which are this far apart.
fn reaches_between(interval_ns: f64, wait_ns: Option<f64>, least_ns: f64) -> bool {
    reaches(wait_ns, least_ns.max(interval_ns * INTERVALS))
}

/// The time between two readings as a fact. `None` for a capture, which has none.
fn interval(what: &'static str, ns: f64, method: &'static str) -> Option<Fact> {
    (ns > 0.0).then(|| time(what, Some(ns), method))
}

/// How often something must have happened while dwell looked: fewer may be chance. A capture may be of one request, and has
/// all that this one waited for.
fn least_count(evidence: &Evidence, while_looking: u64) -> u64 {
    match evidence.source {
        Source::Sockets => while_looking,
        Source::Capture | Source::Stamps => 1,
    }
}

fn fact(what: &'static str, value: Option<Value>, method: &'static str) -> Fact {
    Fact { what, value, method, speaks_for: true }
}

fn time(what: &'static str, ns: Option<f64>, method: &'static str) -> Fact {
    fact(what, ns.map(Value::Time), method)
}

fn share(what: &'static str, share: Option<f64>, method: &'static str) -> Fact {
    fact(what, share.map(Value::Share), method)
}

/// The fact that most connections use BBR, if they do: it does not slow down for single losses, and keeps queues short.
fn bbr(evidence: &Evidence) -> Option<Fact> {
    let what = "connections with BBR, which single losses do not slow down";
    (evidence.with_bbr * 2 > evidence.connections)
        .then(|| fact(what, Some(Value::Count(evidence.with_bbr)), "sock_diag cong"))
}

/// The remedy that makes the running connections use BBR, unless most of them do.
fn use_bbr(evidence: &Evidence, effect: &'static str) -> Option<Remedy> {
    let command = || format!("sudo dwell run --congestion bbr --pid {}", pid(evidence));
    bbr(evidence).is_none().then(|| remedy(command(), effect))
}

/// A silence of this length may be meant.
pub(super) const LONG_NS: f64 = 50e6;

/// Whether a process may take its time on purpose, as for long polls, for consumers that wait for messages, and for what is sent
/// at a pace: what it takes is `long_ns` or longer, and it neither computes nor waits for a disk. On a busy host it waits for a
/// processor whenever it wakes up, and sleeps for most of the time all the same.
fn may_be_meant(evidence: &Evidence, mean_ns: Option<f64>, long_ns: f64) -> bool {
    const LITTLE: f64 = 0.05;
    let is_idle = |it: Process| {
        let is_little = [it.busiest_thread, it.disk, it.stopped].iter().all(|it| *it < LITTLE);
        is_little && it.waiting_thread < starved::MIN_WAITING
    };
    reaches(mean_ns, long_ns) && evidence.process.is_some_and(is_idle)
}

/// The waits of requests, as polls of sockets found them.
pub(super) struct Turns<'a> {
    part: Part,
    /// This host's end.
    role: Role,
    waits: &'a Silences,
    /// The least number of answers that polls are sure of; 0 if it is not known, as of a capture.
    answers: u64,
}

impl Turns<'_> {
    /// Of fewer waits in so many answers it is not known that they are more than chance.
    const ONE_IN: u64 = 20;
    const MANY: u64 = 2;

    /// The waits for this host.
    pub(super) fn served(evidence: &Evidence) -> Turns<'_> {
        let (role, answers) = (Role::Server, evidence.answered_polls[0]);
        Turns { part: Part::Service, role, waits: &evidence.sums.service, answers }
    }

    /// The waits for peers.
    pub(super) fn awaited(evidence: &Evidence) -> Turns<'_> {
        let (role, answers) = (Role::Client, evidence.answered_polls[1]);
        Turns { part: Part::Answer, role, waits: &evidence.sums.answer, answers }
    }

    /// Whether polls saw any.
    pub(super) fn has_waits(&self) -> bool {
        self.waits.count > 0
    }

    /// The mean of those that polls saw.
    pub(super) fn mean_ns(&self) -> Option<f64> {
        self.waits.mean_ns()
    }

    /// Whether the mean wait for an answer is less than `least_ns`, whatever polls found and did not find.
    fn are_shorter(&self, evidence: &Evidence, least_ns: f64) -> bool {
        self.answers > 0 && self.most_ns(evidence) < least_ns
    }

    /// The longest that the mean over all answers can be, or that over those of the peer on which half of the time was spent: many
    /// quick answers of others do not make up for these.
    fn most_ns(&self, evidence: &Evidence) -> f64 {
        let mean_ns = |times: &Times, answers: u64| times.sum(&[self.part, Part::Unexplained]) / answers.max(1) as f64;
        let own_ns = |group: &&Group| group.times.get(self.part);
        let is_of = |group: &&Group| group.key.role == self.role && group.answered_polls > 0;
        let most = evidence.groups.iter().filter(is_of).max_by(|a, b| own_ns(a).total_cmp(&own_ns(b)));
        let most = most.filter(|group| own_ns(group) * 2.0 >= evidence.sums.times.get(self.part));
        let all_ns = mean_ns(&evidence.sums.times, self.answers);
        most.map_or(all_ns, |group| all_ns.max(mean_ns(&group.times, group.answered_polls)))
    }

    /// Whether there were many more answers than polls saw requests wait for: those came between two polls.
    pub(super) fn are_mostly_unseen(&self) -> bool {
        self.answers >= (self.waits.count * Turns::MANY).max(1)
    }

    /// The mean over all answers, where most of them were not waited for at polls. It speaks against a cause if nearly all were not.
    pub(super) fn over_all(&self, evidence: &Evidence) -> Option<Fact> {
        let what = match self.role {
            Role::Server => "at most, in the mean over all answers of this host, of which most came between two polls",
            Role::Client => "at most, in the mean over all answers of peers, of which most came between two polls",
        };
        let are_few = self.waits.count > 0 && self.waits.count * Turns::ONE_IN < self.answers;
        let fact = || unless(are_few, time(what, Some(self.most_ns(evidence)), "polls"));
        self.are_mostly_unseen().then(fact)
    }

    /// Whether they are enough of the time in which somebody waited. What is unknown between two polls counts as what is
    /// known, if that is not next to nothing of it.
    fn have_their_share(&self, evidence: &Evidence) -> bool {
        let (own_ns, all_ns) = (evidence.sums.times.get(self.part), evidence.sums.times.total());
        let is_known = evidence.source == Source::Sockets
            && self.waits.count >= FEW_WAITS
            && self.waits.count * Turns::ONE_IN >= self.answers;
        let unknown_ns = if is_known { evidence.sums.times.get(Part::Unexplained) } else { 0.0 };
        own_ns > 0.0 && own_ns >= (all_ns - unknown_ns) * MIN_SHARE
    }
}

/// The fact that the ends do not take turns, if they do not: what one sends is then no answer to the other.
fn both_ways(evidence: &Evidence, answers: &Silences) -> Option<Fact> {
    const MANY: u64 = 2;
    let what = "pauses after which the same end went on, so that not all that followed were answers";
    let (pauses, answers) = (evidence.sums.pause.count.max(evidence.sums.went_on), answers.count);
    let goes_on = pauses > 0 && pauses * MANY >= answers;
    goes_on.then(|| unless(true, fact(what, Some(Value::Count(pauses)), "polls"))).or_else(|| unasked(evidence))
}

/// The fact that the ends speak when they like, if they do: then neither answers the other, nor waits for it.
fn unasked(evidence: &Evidence) -> Option<Fact> {
    /// Some turns have no more than usual by chance.
    const SOME: u64 = 3;
    let what = "turns in which an end said more than usual: it may speak unasked, as in a chat";
    let Sums { unasked, service, answer, .. } = &evidence.sums;
    let are_many = *unasked > 0 && unasked * SOME >= service.count.max(answer.count);
    are_many.then(|| unless(true, fact(what, Some(Value::Count(*unasked)), "polls")))
}

/// A fact that speaks against the cause if `is_against` holds.
fn unless(is_against: bool, fact: Fact) -> Fact {
    Fact { speaks_for: fact.speaks_for && !is_against, ..fact }
}

fn remedy(command: String, effect: &'static str) -> Remedy {
    Remedy { command, effect }
}

/// The port and filter arguments of other verbs for the target.
pub(super) fn port(evidence: &Evidence) -> String {
    evidence.target.port.map_or_else(String::new, |port| format!(" --port {port}"))
}

/// The process, or a word that stands for it.
fn pid(evidence: &Evidence) -> String {
    evidence.target.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string())
}

/// The peer, or a word that stands for it.
pub(super) fn peer_address(evidence: &Evidence) -> String {
    evidence.target.peer.map_or_else(|| "HOST".to_owned(), |peer| peer.to_string())
}

/// The peer as in a filter of ss and in the address of a page, where IPv6 has brackets, which a shell must not read.
pub(super) fn peer_in_brackets(evidence: &Evidence) -> String {
    match evidence.target.peer {
        Some(peer @ IpAddr::V6(_)) => format!("'[{peer}]'"),
        _ => peer_address(evidence),
    }
}

/// The server's port, or a word that stands for it.
pub(super) fn port_number(evidence: &Evidence) -> String {
    evidence.target.port.map_or_else(|| "PORT".to_owned(), |port| port.to_string())
}

/// A command at the peer's host.
fn at_peer(evidence: &Evidence, command: &str) -> String {
    at_host(evidence.target.peer, command)
}

/// A command at the server's host.
pub(super) fn at_server(evidence: &Evidence, command: &str) -> String {
    match (evidence.target.role, evidence.target.seen_from) {
        (Some(Role::Server), None) => command.to_owned(),
        (Some(Role::Server), server) => at_host(server, command),
        _ => at_peer(evidence, command),
    }
}

/// A command at a host, which may be this one, or not known. The shell of another one reads it once more.
fn at_host(host: Option<IpAddr>, command: &str) -> String {
    let host = match host {
        Some(host) if host.is_loopback() => return command.to_owned(),
        host => host.map_or_else(|| "HOST".to_owned(), |host| host.to_string()),
    };
    match command.contains(['"', '\'', '$', '|', '*']) {
        true => format!("ssh {host} '{}'", command.replace('\'', r"'\''")),
        false => format!("ssh {host} {command}"),
    }
}

/// A command that measures round trips with the peer, on the device that leads there. `and` narrows the filter.
fn round_trips(evidence: &Evidence, and: &str) -> String {
    let peer = peer_address(evidence);
    let device = format!("$(ip -o route get {peer} | grep -oP ' dev \\K\\S+')");
    format!("sudo dwell rtt -i {device} --filter 'host {peer}{and}' --duration 10s")
}

/// Attempts to open connections that failed, if there were any.
pub(super) fn failed_attempts(evidence: &Evidence) -> Option<Fact> {
    let what = "attempts to open a connection failed in this network namespace, also those of others";
    let failed = evidence.failed_attempts.filter(|count| *count > 0)?;
    Some(fact(what, Some(Value::Count(failed)), "/proc/net/snmp AttemptFails"))
}

/// What sockets of UDP show.
pub(super) fn datagram_facts(evidence: &Evidence) -> Vec<Fact> {
    let Some(figures) = &evidence.datagrams else {
        return Vec::new();
    };
    vec![
        fact("sockets of UDP", Some(Value::Count(figures.sockets)), "sock_diag"),
        fact("datagrams dropped at a full receive buffer", Some(Value::Count(figures.dropped)), "sock_diag"),
        share("datagrams waited to be read", Some(figures.waiting), "sock_diag, looks"),
        fact("longest receive queue", Some(Value::Bytes(figures.longest_queue_bytes)), "sock_diag, looks"),
    ]
}

/// What a process did, in the facts of causes that lie in the application.
fn process_facts(evidence: &Evidence) -> Vec<Fact> {
    let is_doubtful = |it: Process| it.may_be_background && it.waiting_thread >= starved::MIN_WAITING;
    process_facts_of(evidence, evidence.process.is_some_and(is_doubtful))
}

/// What the process did; with `are_waits_against` what its threads waited for speaks against the cause.
fn process_facts_of(evidence: &Evidence, are_waits_against: bool) -> Vec<Fact> {
    let process = evidence.process.as_ref();
    let waited =
        |what, of: fn(&Process) -> f64, method| unless(are_waits_against, share(what, process.map(of), method));
    let mut facts = vec![
        share("its busiest thread ran", process.map(|it| it.busiest_thread), "/proc/PID/task/*/schedstat"),
        waited("a thread waited for a processor", |it| it.waiting_thread, "/proc/PID/task/*/schedstat"),
        waited("a thread waited for a disk", |it| it.disk, "/proc/PID/task/*/stat"),
    ];
    let stopped = process.map(|it| it.stopped).filter(|share| *share > 0.0);
    facts.extend(stopped.map(|stopped| share("its threads were stopped", Some(stopped), "/proc/PID/task/*/stat")));
    facts
}

/// Assesses a program that is slow for the reason that `is_why` confirms: one of the causes that lie in it must hold.
fn slow_program(evidence: &Evidence, parts: &[Part], is_why: bool) -> Assessment {
    let waited = evidence.sums.times.share_of(parts);
    let mut facts = vec![share("the program neither read, answered nor wrote", Some(waited), "sock_diag, polls")];
    // Looks are samples: another one may find the other one to be longer.
    let is_either = |it: Process| it.disk >= disk::MIN_DISK && it.waiting_thread >= starved::MIN_WAITING;
    let is_rivalled = evidence.process.is_some_and(is_either);
    facts.extend(process_facts_of(evidence, is_rivalled));
    let apart_ns = evidence.process.map_or(0.0, |it| it.look_interval_ns);
    facts.extend(interval("time between two looks at threads", apart_ns, "/proc/PID/task/*/stat"));
    let is_slow = [Cause::SlowReader, Cause::SlowService, Cause::SlowApplication];
    let is_slow = is_slow.iter().any(|cause| cause.assess(evidence).holds);
    Assessment { share: waited, holds: is_slow && is_why, facts }
}

/// From this share of the time on it matters what a thread waited for, and that it was stopped.
const SOME: f64 = 0.2;

/// Whether the process was stopped for a part of the time that matters.
pub(super) fn is_stopped(evidence: &Evidence) -> bool {
    evidence.process.is_some_and(|it| it.stopped >= SOME)
}

/// What to do about an application that is slow, where nothing is known of its process.
fn unknown_process(evidence: &Evidence) -> Vec<Remedy> {
    let port = port_number(evidence);
    let command = format!("sudo ss -tnp sport = :{port} or dport = :{port}");
    let command = evidence.target.seen_from.map_or(command.clone(), |end| at_host(Some(end), &command));
    let effect = "names the process that has these connections: ask for it by its ID, which shows what it does";
    let name = evidence.target.pid.is_none().then(|| remedy(command, effect));
    let calls = remedy(
        format!("sudo strace -f -c -w -p {}", pid(evidence)),
        "what the process did is not known: shows in which calls it waits (Ctrl-C ends it)",
    );
    name.into_iter().chain([calls]).collect()
}

/// What to do about an application that is slow, by what it did meanwhile: it computed, waited for a processor or a disk,
/// was stopped, or waited for something else.
fn application_remedies(evidence: &Evidence) -> Vec<Remedy> {
    const MUCH: f64 = 0.5;
    let pid = pid(evidence);
    let Some(process) = evidence.process else {
        return unknown_process(evidence);
    };
    if is_stopped(evidence) {
        return vec![
            remedy(format!("kill -CONT {pid}"), "it is stopped, as by SIGSTOP or Ctrl-Z: lets it go on"),
            remedy(
                format!("grep -E '^(State|TracerPid)' /proc/{pid}/status"),
                "shows whether a debugger has stopped it, which then must let it go on",
            ),
        ];
    }
    let mut remedies = Vec::new();
    if process.waiting_thread >= SOME {
        remedies.push(remedy(
            format!("sudo renice -n -5 -p {pid}"),
            "it waits for a processor: give it precedence, or move other work away",
        ));
    }
    if process.disk >= SOME {
        remedies.push(remedy("iostat -x 1 5".to_owned(), "it waits for a disk: shows which one is busy"));
    }
    if process.busiest_thread >= MUCH {
        remedies.push(remedy(
            format!("sudo perf top -p {pid}"),
            "one of its threads is busy computing: shows in which functions",
        ));
    }
    if remedies.is_empty() {
        remedies.push(remedy(
            format!("sudo strace -f -c -w -p {pid}"),
            "it neither computes nor waits for a processor or a disk: shows in which calls it waits (Ctrl-C ends it)",
        ));
    }
    remedies
}
