//! The connections of one network namespace.

use std::{
    collections::{HashMap, HashSet},
    fs, mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use dwell_engine::{
    layers::Ends,
    measure::{Endpoint, Protocol},
    roles::{CLIENT_PORTS, Role},
    socket::{Reading, TcpInfo},
    why::{Connection, CountKind, Key},
};

use super::{
    super::{
        Error, before_first_byte,
        census::reading,
        diag::Diag,
        message::{SocketId, SocketReport},
    },
    MAX_CONNECTIONS, MAX_OMITTED, Wanted,
    attempts::Attempts,
    tally::Tally,
};
use crate::{clock::monotonic_ns, names::Requests};

/// The connections of a network namespace that are followed.
pub(super) struct Connections {
    pub(super) diag: Diag,
    attempts: Attempts,
    /// What their requests ask for.
    requests: Requests,
    /// By cookie.
    followed: HashMap<u64, Followed>,
    /// Their cookies, by their ends.
    by_ends: HashMap<Ends, u64>,
    /// The cookies of the panel; some may have ended.
    panel: Vec<u64>,
    /// Whether connections were polled, other than those of the panel, since the last check whether stamps would tell more.
    is_polled: bool,
    /// Connections that are being opened, by cookie: when they were first and last seen, with packets sent again.
    opening: HashMap<u64, Opening>,
    /// Cookies of connections that are not of the target.
    others: HashSet<u64>,
    /// Cookies of connections of the target beyond the limit, and how many there were besides.
    omitted: HashSet<u64>,
    omitted_before: u64,
    /// Ends at which programs listen, with the socket of the listener; 0 if there are several.
    listening: HashMap<Endpoint, u32>,
    /// Local ports that the kernel gives to clients.
    given_to_clients: RangeInclusive<u16>,
    dumped_ns: Option<u64>,
    /// When the processes of connections were searched for last, and when before.
    searched_ns: [u64; 2],
}

struct Opening {
    inode: u32,
    /// The other end, which is the server.
    server: Endpoint,
    /// Whether a service of the target opens it.
    is_upstream: bool,
    first_ns: u64,
    last_ns: u64,
    retries: u32,
}

/// A connection that is followed.
pub(super) struct Followed {
    key: SocketId,
    inode: u32,
    /// The process that has it, once it is found.
    pub(super) pid: Option<u32>,
    pub(super) ends: Ends,
    pub(super) role: Role,
    pub(super) counted: CountKind,
    pub(super) connection: Connection,
    /// The connection since it joined the panel, which is polled more often than all connections are.
    pub(super) closely: Option<Connection>,
    /// Whether it was in the panel before, so that it is counted there.
    pub(super) was_in_panel: bool,
    /// When bytes were last seen to have moved; 0 if they never were.
    moved_ns: u64,
    /// Of one that was found because its process was searched for, when it began and how far apart such searches are.
    pub(super) by_chance: Option<(u64, u64)>,
    /// The same of any other one, of searches for connections, if it has just begun.
    begun: Option<(u64, u64)>,
    /// Whether it has just begun, and the first answer had passed when it was found.
    pub(super) was_answered: bool,
}

/// A connection on which no byte has moved for this long leaves the panel.
const RESTING_NS: u64 = 2_000_000_000;

impl Followed {
    fn is_lively(&self, now_ns: u64) -> bool {
        self.moved_ns > 0 && now_ns.saturating_sub(self.moved_ns) < RESTING_NS
    }

    /// Whose connections it is counted with.
    pub(super) fn group_key(&self) -> Key {
        Key { pid: self.pid, ..Key::of(&self.ends, self.role) }
    }

    /// Tells that it was over when it was to be polled again. Of those that live shorter than searches are apart, the more are
    /// found the longer they live.
    fn end(&mut self) {
        /// One that was found stands for at most this many: where searches seldom find any, their number says little.
        const MOST: f64 = 20.0;
        let lived_ns = |begun_ns| self.connection.last().time_ns.saturating_sub(begun_ns).max(1);
        let found = |(begun_ns, apart_ns)| (apart_ns as f64 / lived_ns(begun_ns) as f64).clamp(1.0, MOST);
        let others = self.by_chance.map(|by_chance| found(by_chance) - 1.0);
        // A search finds all that live as long as two searches are apart.
        let is_brief = self.by_chance.or(self.begun).is_some_and(|(begun_ns, apart_ns)| lived_ns(begun_ns) < apart_ns);
        for connection in [&mut self.connection].into_iter().chain(&mut self.closely) {
            connection.end();
            others.into_iter().for_each(|others| connection.stand_for(others));
            if is_brief {
                connection.was_brief();
            }
        }
    }

    /// Adds a poll of all connections. Returns how long a request has waited whose answer has begun since the poll before.
    fn observe(&mut self, now: &Reading) -> Option<u64> {
        let moved = |reading: &Reading| (reading.info.bytes_acked, reading.info.bytes_received);
        if moved(now) != moved(self.connection.last()) {
            self.moved_ns = now.time_ns;
        }
        let answered_ns = self.connection.observe(now);
        match &mut self.closely {
            Some(closely) => closely.observe(now),
            None => answered_ns,
        }
    }
}

impl Connections {
    /// Prepares to look into the network namespace of the calling thread.
    pub(super) fn open() -> Result<Connections, Error> {
        Ok(Connections {
            diag: Diag::open()?,
            attempts: Attempts::open(),
            requests: Requests::open(),
            followed: HashMap::new(),
            by_ends: HashMap::new(),
            panel: Vec::new(),
            is_polled: true,
            opening: HashMap::new(),
            others: HashSet::new(),
            omitted: HashSet::new(),
            omitted_before: 0,
            listening: HashMap::new(),
            given_to_clients: given_to_clients(),
            dumped_ns: None,
            searched_ns: [monotonic_ns(); 2],
        })
    }

    pub(super) fn len(&self) -> usize {
        self.followed.len()
    }

    /// Returns the other ends of those that are followed or being opened.
    pub(super) fn peers(&self) -> impl Iterator<Item = IpAddr> {
        let followed = self.followed.values().map(|followed| followed.ends.dst.address);
        followed.chain(self.opening.values().map(|opening| opening.server.address))
    }

    /// Whether one is being opened.
    pub(super) fn is_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    /// Whether stamps of bytes would tell more of one.
    pub(super) fn calls_for_stamps(&mut self) -> bool {
        mem::take(&mut self.is_polled) && self.followed.values().any(|followed| followed.connection.calls_for_stamps())
    }

    pub(super) fn inodes(&self) -> impl Iterator<Item = u32> {
        self.followed.values().map(|followed| followed.inode)
    }

    /// Returns the processes that serve connections.
    pub(super) fn servers(&self) -> impl Iterator<Item = u32> {
        self.followed.values().filter(|followed| followed.role == Role::Server).filter_map(|followed| followed.pid)
    }

    /// Assigns connections to their processes.
    pub(super) fn assign(&mut self, target: &Wanted) {
        for followed in self.followed.values_mut() {
            let inode = match followed.inode {
                // It is to be accepted yet, by a process that listens.
                0 => listener(&self.listening, &followed.ends.src),
                _ => Some(&followed.inode),
            };
            followed.pid = inode.and_then(|inode| Some(target.owners.get(inode)?.pid));
        }
    }

    /// Finds the ends at which programs listen.
    pub(super) fn find_listeners(&mut self) -> Result<(), Error> {
        self.listening.clear();
        self.diag.dump_listening(&mut |_, report| {
            let listener = self.listening.entry(report.key.ends().src);
            listener.and_modify(|inode| *inode = 0).or_insert(report.inode);
        })?;
        // A process may have been given a connection of another one.
        self.others.clear();
        Ok(())
    }

    /// Tells that the processes of connections are searched for now.
    pub(super) fn begin_search(&mut self) {
        self.searched_ns = [monotonic_ns(), self.searched_ns[0]];
    }

    /// Looks for new connections and those that have ended, and polls all. New ones are followed while there is `room`.
    pub(super) fn dump(&mut self, target: &mut Wanted, tally: &mut Tally, room: &mut usize) -> Result<(), Error> {
        let begun_ns = monotonic_ns();
        self.is_polled = true;
        let mut seen = HashSet::with_capacity(self.followed.len());
        let (mut new, mut of_servers) = (Vec::new(), HashSet::new());
        let (followed, opening, requests) = (&mut self.followed, &mut self.opening, &self.requests);
        let (others, omitted) = (&self.others, &self.omitted);
        self.diag.dump_connected_and_opening(&mut |time_ns, report| {
            let cookie = report.key.cookie();
            if let Some(info) = report.info.filter(TcpInfo::is_opening) {
                let is_upstream = !target.selected.matches(&report.key.ends());
                let is_wanted = !is_upstream || target.serves(report.inode);
                if opening.len() < MAX_CONNECTIONS && is_wanted {
                    let (inode, server, first_ns) = (report.inode, report.key.ends().dst, time_ns);
                    let new = Opening { inode, server, is_upstream, first_ns, last_ns: first_ns, retries: 0 };
                    let seen = opening.entry(cookie).or_insert(new);
                    (seen.last_ns, seen.retries) = (time_ns, info.retransmissions);
                }
                return;
            }
            seen.insert(cookie);
            match (followed.get_mut(&cookie), report.info) {
                (Some(followed), Some(info)) => {
                    // It has none until the program accepts it.
                    followed.inode = report.inode;
                    let answered_ns = followed.observe(&reading(time_ns, report, info));
                    tally.answer(followed, requests, answered_ns);
                }
                (None, Some(info)) if !others.contains(&cookie) && !omitted.contains(&cookie) => {
                    let ends = report.key.ends();
                    let serves = target.serves(report.inode);
                    if serves {
                        of_servers.insert(ends);
                    }
                    if target.selected.matches(&ends) || serves {
                        new.push((ends, *report, reading(time_ns, report, info)));
                    }
                }
                _ => {}
            }
        })?;
        self.others.retain(|cookie| seen.contains(cookie));
        let before = self.omitted.len();
        self.omitted.retain(|cookie| seen.contains(cookie));
        self.omitted_before += (before - self.omitted.len()) as u64;
        if new.len() > *room {
            // Those on which data was sent last.
            let ago_ms = |info: &TcpInfo| info.last_data_sent_ms.min(info.last_data_received_ms);
            new.sort_by_key(|(_, _, now)| ago_ms(&now.info));
        }
        self.end(tally, |cookie, followed| !seen.contains(cookie) && followed.connection.last().time_ns < begun_ns);
        let is_unowned = |opening: &Opening| !target.owners.contains_key(&opening.inode);
        if (!new.is_empty() || self.opening.values().any(is_unowned)) && target.selected.is_of_processes() {
            target.find_owners();
        }
        for (ends, report, now) in new {
            // A service that talks to itself waits for nobody else.
            let is_own = of_servers.contains(&ends) && of_servers.contains(&Ends { src: ends.dst, dst: ends.src });
            if is_own && !target.selected.matches(&ends) {
                self.others.insert(report.key.cookie());
                continue;
            }
            self.admit(ends, &report, &now, target, room);
        }
        self.end_opening(target, tally, begun_ns, &seen);
        self.dumped_ns = Some(begun_ns);
        self.read_requests();
        Ok(())
    }

    /// Adds the time that connections took to open, or until opening them was given up: from the search before the first
    /// that found them. Those that took less than the time between two searches are not seen. Those that are `open` now were
    /// answered.
    fn end_opening(&mut self, target: &Wanted, tally: &mut Tally, begun_ns: u64, open: &HashSet<u64>) {
        let before_ns = self.dumped_ns.unwrap_or(begun_ns);
        for (cookie, opened) in self.opening.extract_if(|_, opening| opening.last_ns < begun_ns) {
            if !target.selected.is_of_processes() || target.owners.contains_key(&opened.inode) {
                let until_ns = begun_ns.min(opened.last_ns.saturating_add(begun_ns.saturating_sub(before_ns)));
                let took_ns = until_ns.saturating_sub(opened.first_ns);
                let silent = (!open.contains(&cookie)).then_some(opened.server);
                tally.evidence.add_set_up(took_ns, opened.retries.into(), silent);
                if opened.is_upstream {
                    tally.evidence.upstream_set_ups.add(took_ns);
                }
            }
        }
    }

    fn admit(&mut self, ends: Ends, report: &SocketReport, now: &Reading, target: &mut Wanted, room: &mut usize) {
        let cookie = report.key.cookie();
        if target.selected.is_of_processes() {
            let Some(owner) = target.owners.get(&report.inode).copied() else {
                // One that is not accepted yet may be the target's later.
                if report.inode != 0 {
                    self.others.insert(cookie);
                }
                return;
            };
            target.watch(owner.pid);
        }
        let (role, is_upstream) = (self.role(&ends), !target.selected.matches(&ends));
        if is_upstream && role == Role::Server {
            self.others.insert(cookie);
            return;
        }
        if *room == 0 {
            if self.omitted.len() < MAX_OMITTED {
                self.omitted.insert(cookie);
            }
            return;
        }
        *room -= 1;
        let dumped_ns = self.dumped_ns.filter(|_| is_new(&now.info));
        // Searches for connections do not find that of a process which is not known to have it yet.
        let [searched_ns, before_ns] = self.searched_ns;
        let missing_ns = dumped_ns.map(|dumped_ns| if is_upstream { dumped_ns.min(before_ns) } else { dumped_ns });
        let mut connection = match missing_ns {
            Some(missing_ns) => {
                let mut connection = Connection::new(role, &before_first_byte(missing_ns));
                connection.observe(now);
                connection
            }
            None => Connection::new(role, now),
        };
        let sent_ns = now.last_sent_ns();
        let by_chance = missing_ns.filter(|_| is_upstream).map(|_| (sent_ns, searched_ns - before_ns));
        let answered = if role == Role::Client { now.info.bytes_received } else { now.info.bytes_sent };
        let was_answered = dumped_ns.is_some() && answered > Some(0);
        let begun = dumped_ns.map(|dumped_ns| (sent_ns, now.time_ns.saturating_sub(dumped_ns)));
        connection.set_ends(ends);
        let other = self.by_ends.get(&Ends { src: ends.dst, dst: ends.src });
        let other = other.and_then(|cookie| self.followed.get_mut(cookie));
        // The other end may be beyond the limit; both have one address, and both are the target's.
        let is_here =
            role == Role::Client && ends.src.address == ends.dst.address && !target.selected.is_of_processes();
        let counted = match (is_upstream, other.is_some() || is_here) {
            (true, _) => CountKind::Upstream,
            (_, true) => CountKind::WithPeer,
            _ => CountKind::Whole,
        };
        if let Some(other) = other.filter(|other| other.counted == CountKind::Whole) {
            other.counted = CountKind::WithPeer;
        }
        self.by_ends.insert(ends, cookie);
        let (key, inode) = (report.key, report.inode);
        let pid = target.owners.get(&inode).map(|owner| owner.pid);
        let (closely, was_in_panel, moved_ns) = (None, false, 0);
        let followed = Followed {
            key,
            inode,
            pid,
            ends,
            role,
            counted,
            connection,
            closely,
            was_in_panel,
            moved_ns,
            by_chance,
            begun,
            was_answered,
        };
        self.followed.insert(cookie, followed);
    }

    /// The end that somebody listens at is the server. Where the listener is gone, the other end has a port of those that
    /// the kernel gives to clients.
    fn role(&self, ends: &Ends) -> Role {
        match listener(&self.listening, &ends.src).is_some() {
            true => Role::Server,
            false => Role::by_ports(ends, Protocol::TCP, &self.given_to_clients).unwrap_or(Role::Client),
        }
    }

    /// Has a panel of connections on which bytes move, as far as there are: so many that this host has accepted, and so
    /// many that it has opened. Those on which nothing has moved for a while make room for others.
    pub(super) fn choose_panel(&mut self, most: usize, tally: &mut Tally) {
        let now_ns = monotonic_ns();
        for role in [Role::Server, Role::Client] {
            let mut room = most;
            for followed in self.followed.values_mut().filter(|it| it.role == role && it.closely.is_some()) {
                match followed.is_lively(now_ns) {
                    true => room = room.saturating_sub(1),
                    false => tally.leave_panel(followed),
                }
            }
            let others = self.followed.values_mut().filter(|it| it.role == role && it.closely.is_none());
            for new in others.filter(|it| it.is_lively(now_ns)).take(room) {
                let mut closely = Connection::new(role, new.connection.last());
                closely.set_ends(new.ends);
                new.closely = Some(closely);
            }
        }
        let panel = self.followed.iter().filter(|(_, followed)| followed.closely.is_some());
        self.panel = panel.map(|(cookie, _)| *cookie).collect();
    }

    /// Polls each connection that is followed; or, if there are so many that a panel has been chosen, each of those.
    pub(super) fn query(&mut self, tally: &mut Tally, is_of_panel: bool) -> Result<(), Error> {
        self.is_polled |= !is_of_panel;
        // To look at thousands that are not polled would cost more than the polls.
        let keys: Vec<SocketId> = match is_of_panel {
            true => self.panel.iter().filter_map(|cookie| Some(self.followed.get(cookie)?.key)).collect(),
            false => self.followed.values().map(|followed| followed.key).collect(),
        };
        let mut ended = HashSet::new();
        let (followed, requests) = (&mut self.followed, &self.requests);
        self.diag.query(&keys, &mut |time_ns, key, report| {
            let cookie = key.cookie();
            let info = report.and_then(|report| Some((report, report.info?)));
            match (followed.get_mut(&cookie), info.filter(|(_, info)| info.is_connected())) {
                (Some(followed), Some((report, info))) if !is_of_panel => {
                    let answered_ns = followed.observe(&reading(time_ns, report, info));
                    tally.answer(followed, requests, answered_ns);
                }
                (Some(followed), Some((report, info))) => {
                    if let Some(closely) = &mut followed.closely {
                        let answered_ns = closely.observe(&reading(time_ns, report, info));
                        tally.answer(followed, requests, answered_ns);
                    }
                }
                _ => {
                    ended.insert(cookie);
                }
            }
        })?;
        if !ended.is_empty() {
            self.end(tally, |cookie, _| ended.contains(cookie));
        }
        self.read_requests();
        Ok(())
    }

    /// Reads requests after a poll: at the next one, those that have been answered since were sent before it.
    fn read_requests(&mut self) {
        self.requests.read();
    }

    /// Adds what all connections have shown, and follows none any more. Returns how many were not followed.
    pub(super) fn end_all(&mut self, target: &Wanted, tally: &mut Tally) -> u64 {
        // What is still being opened has taken at least the time until now.
        self.end_opening(target, tally, monotonic_ns(), &HashSet::new());
        self.by_ends.clear();
        let requests = &self.requests;
        self.followed.drain().for_each(|(_, mut followed)| tally.add(&mut followed, requests));
        if let Some(failed) = self.attempts.failed() {
            *tally.evidence.failed_attempts.get_or_insert(0) += failed.attempts;
            *tally.evidence.established_resets.get_or_insert(0) += failed.resets;
        }
        mem::take(&mut self.omitted).len() as u64 + self.omitted_before
    }

    /// Adds what the connections that have ended have shown.
    fn end(&mut self, tally: &mut Tally, has_ended: impl Fn(&u64, &Followed) -> bool) {
        for (_, mut followed) in self.followed.extract_if(|cookie, followed| has_ended(cookie, followed)) {
            self.by_ends.remove(&followed.ends);
            followed.end();
            tally.add(&mut followed, &self.requests);
        }
    }
}

/// The local ports that the kernel gives to clients in the network namespace of the calling thread.
fn given_to_clients() -> RangeInclusive<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ports = text.split_ascii_whitespace().map(|port| port.parse().ok());
    match (ports.next().flatten(), ports.next().flatten()) {
        (Some(first), Some(last)) => first..=last,
        _ => CLIENT_PORTS,
    }
}

/// Whether a connection that was not there before has just begun: what it sent can only be counted from its first byte.
fn is_new(info: &TcpInfo) -> bool {
    const RECENT_US: u64 = 1_000_000;
    info.busy_us.is_some_and(|us| us < RECENT_US)
}

/// Returns the socket that listens at an end of this host: at its address, or at all addresses, where one of IPv6 listens for IPv4
/// too.
fn listener<'a>(listening: &'a HashMap<Endpoint, u32>, end: &Endpoint) -> Option<&'a u32> {
    let v6: IpAddr = Ipv6Addr::UNSPECIFIED.into();
    let all = if end.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { v6 };
    let at = |address| listening.get(&Endpoint { address, port: end.port });
    [end.address, all, v6].into_iter().find_map(at)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn a_client_whose_port_is_that_of_a_listener_at_another_address_is_no_server() {
        let end = |text: &str| {
            let end: SocketAddr = text.parse().unwrap();
            Endpoint { address: end.ip(), port: end.port() }
        };
        let listening = [("127.0.0.1:45000", 7), ("0.0.0.0:80", 8), ("[::]:80", 9), ("[::]:443", 10)];
        let listening = listening.map(|(at, inode)| (end(at), inode)).into();
        let at = |text| listener(&listening, &end(text)).copied();
        assert_eq!((at("127.0.0.1:45000"), at("192.0.2.1:45000")), (Some(7), None));
        assert_eq!((at("192.0.2.1:80"), at("[2001:db8::1]:80")), (Some(8), Some(9)));
        assert_eq!((at("192.0.2.1:443"), at("[2001:db8::1]:443")), (Some(10), Some(10)));
    }
}
