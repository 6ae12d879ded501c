//! New connections that may go to one of several backends: the one with the fewest open connections gets them.

use std::{collections::HashMap, time::Duration};

use dwell_engine::{
    balance::{Balancer, Heartbeat, Reason, WhenStale, members},
    response::Watch,
};
use dwell_probes::balancer::{Forward, Plane, Real, Sampling, Vip};

use super::{MS, TABLE, key};
use crate::{
    options,
    packets::{Client, address, real, v4},
    parity::native,
    tables::loaded,
};

fn backend(number: u32) -> Real {
    real(address("10.0.0.5"), Forward::L2, 70 + number)
}

fn vip(more_choices: u8) -> Vip {
    Vip { number: 1, more_choices, ..Vip::default() }
}

fn client(port: u16) -> Client {
    Client { port, ..v4() }
}

struct Scene {
    balancer: Balancer,
    now_ns: u64,
}

impl Scene {
    fn new(more_choices: u8, max_flows: u32) -> Scene {
        let mut balancer = native(Watch::default(), max_flows);
        (1..=2).for_each(|number| balancer.set_real(number, &backend(number)));
        balancer.set_vip(&key(), &vip(more_choices), &TABLE);
        let mut scene = Scene { balancer, now_ns: 1000 * MS };
        scene.renew();
        scene
    }

    fn renew(&mut self) {
        let stale_after = Duration::from_secs(10);
        let beat = Heartbeat { renewed_ns: self.now_ns, stale_after, when_stale: WhenStale::Keep };
        self.balancer.set_heartbeat(&beat, &[]);
    }

    fn pass(&mut self, frame: &[u8]) -> (u32, Reason) {
        self.now_ns += MS;
        let (decision, _) = self.balancer.packet(frame, 1, self.now_ns, false, |_| {});
        (decision.real.unwrap(), decision.reason)
    }

    /// Opens connections, and returns those of each backend.
    fn open(&mut self, ports: std::ops::Range<u16>) -> HashMap<u32, Vec<Client>> {
        let mut opened: HashMap<u32, Vec<Client>> = HashMap::new();
        for port in ports {
            let client = client(port);
            let (real, reason) = self.pass(&client.syn());
            assert!([Reason::New, Reason::Fewer].contains(&reason), "{reason:?}");
            assert_eq!(self.pass(&client.data(0)), (real, Reason::Connection));
            opened.entry(real).or_default().push(client);
        }
        opened
    }
}

#[test]
fn connections_are_spread_more_evenly_than_by_the_table_alone() {
    let difference = |more_choices| {
        let opened = Scene::new(more_choices, 2000).open(1000..2000);
        opened[&1].len().abs_diff(opened[&2].len())
    };
    // The table alone gives the first backend four of seven.
    assert!(difference(0) > 100);
    assert!(difference(1) < 10);
    assert!(difference(3) < 10);
}

#[test]
fn a_backend_whose_connections_do_not_end_gets_few_new_ones() {
    for (more_choices, most) in [(1, 300), (3, 60)] {
        let mut scene = Scene::new(more_choices, 4000);
        let mut stuck = 0;
        for port in 1000..2000 {
            for (number, clients) in scene.open(port..port + 1) {
                stuck += usize::from(number == 2);
                for client in clients.iter().filter(|_| number == 1) {
                    scene.pass(&client.fin());
                }
            }
        }
        assert!(scene.balancer.open(1) <= 1, "{}", scene.balancer.open(1));
        assert_eq!(scene.balancer.open(2), stuck as i64);
        // By the table alone three of seven.
        assert!(stuck < most, "{stuck} of 1000 with {more_choices}");
    }
}

#[test]
fn an_end_counts_once_and_a_forged_one_not_at_all() {
    let (mut scene, client) = (Scene::new(0, 100), client(1000));
    let (real, _) = scene.pass(&client.syn());
    scene.pass(&client.data(10));
    for (frame, open) in [
        (client.at(1 << 30).fin(), 1),
        (client.fin(), 0),
        (client.fin(), 0),
        (client.rst(), 0),
        (client.data(10), 0),
        (client.at(1010).data(10), 1),
        (client.syn(), 1),
        (client.rst(), 0),
    ] {
        scene.pass(&frame);
        assert_eq!(scene.balancer.open(real), open);
    }
    // An end after a long silence is of a connection that has not counted for long.
    scene.pass(&client.at(1020).data(10));
    scene.now_ns += 60_000 * MS;
    scene.pass(&client.fin());
    assert_eq!(scene.balancer.open(real), 1, "until somebody counts");
}

#[test]
fn an_end_of_no_known_connection_opens_none() {
    let mut scene = Scene::new(1, 100);
    for (port, end) in [(1000, client(1000).fin()), (1001, client(1001).rst())] {
        let (real, reason) = scene.pass(&end);
        assert_eq!((reason, scene.balancer.open(real)), (Reason::Fallback, 0), "{port}");
        scene.pass(&end);
        assert_eq!(scene.balancer.open(real), 0, "{port}");
    }
    let (real, _) = scene.pass(&client(1002).data(10));
    assert_eq!(scene.balancer.open(real), 1, "it may go on");
}

#[test]
fn a_connection_that_leaves_its_backend_is_open_at_the_new_one_alone() {
    let (mut scene, client) = (Scene::new(1, 100), client(1000));
    let (first, _) = scene.pass(&client.syn());
    scene.balancer.set_real(first, &Real { down: true, ..backend(first) });
    let (second, reason) = scene.pass(&client.syn());
    assert_eq!((second, reason), (3 - first, Reason::Moved));
    assert_eq!((scene.balancer.open(first), scene.balancer.open(second)), (0, 1));
    scene.pass(&client.data(10));
    scene.pass(&client.fin());
    assert_eq!((scene.balancer.open(first), scene.balancer.open(second)), (0, 0));
}

#[test]
fn capacity_decides_how_many_connections_are_few() {
    let mut scene = Scene::new(3, 4000);
    for (number, capacity) in [(1, 1000), (2, 250)] {
        scene.balancer.set_real(number, &Real { capacity, ..backend(number) });
    }
    let opened = scene.open(1000..2000);
    let share = opened[&2].len() as f64 / 1000.0;
    assert!((0.19..0.21).contains(&share), "{share}");
}

/// A scene in which a connection chooses among all of these backends, with their weights.
fn of_all(weights: &[(u32, f64)]) -> Scene {
    let mut scene = Scene::new(3, 4000);
    scene.balancer.set_vip(&key(), &Vip { of_all: true, ..vip(3) }, &TABLE);
    for (number, _) in weights {
        scene.balancer.set_real(*number, &backend(*number));
    }
    scene.balancer.set_members(1, &members(weights));
    scene
}

#[test]
fn of_all_backends_the_one_with_the_fewest_connections_for_its_weight_gets_each() {
    let weights: Vec<(u32, f64)> = (1..=100).map(|number| (number, f64::from(1 + number % 4))).collect();
    let mut scene = of_all(&weights);
    // Each connection makes the most even picture that there can be.
    let opened = scene.open(1000..1750);
    for (number, weight) in &weights {
        assert_eq!(opened[number].len() as f64, 3.0 * weight, "{number}");
    }
}

/// Its connections stay open, and those of clients are short.
#[test]
fn what_a_flood_leaves_behind_sends_clients_to_no_single_backend() {
    let mut scene = of_all(&[(1, 1.0), (2, 1.0), (3, 1.0)]);
    let opened = scene.open(1000..2500);
    for client in &opened[&2][..6] {
        scene.pass(&client.fin());
    }
    let [_, taken @ ..] = in_turn(&mut scene, 3000..3300);
    assert!(taken.iter().all(|taken| *taken > 50), "{taken:?}");
}

/// Opens connections one after the other, each of which ends before the next, and returns how many each backend had.
fn in_turn(scene: &mut Scene, ports: std::ops::Range<u16>) -> [u32; 4] {
    let mut taken = [0; 4];
    for port in ports {
        for (number, clients) in scene.open(port..port + 1) {
            taken[number as usize] += 1;
            scene.pass(&clients[0].fin());
        }
    }
    taken
}

#[test]
fn backends_that_are_alike_take_turns_although_connections_end_at_once() {
    let mut scene = of_all(&[(1, 1.0), (2, 1.0), (3, 0.0)]);
    assert_eq!(scene.open(1000..1002).len(), 2, "one stays at each");
    let taken = in_turn(&mut scene, 1002..1402);
    assert_eq!(taken[3], 0, "without weight");
    assert!(taken[1].abs_diff(taken[2]) < 60, "{taken:?}");
}

#[test]
fn of_idle_backends_each_gets_what_the_table_gives_it() {
    let mut scene = of_all(&[(1, 1.01), (2, 1.0)]);
    let [_, first, second, _] = in_turn(&mut scene, 1000..1700);
    // Four and three of seven.
    assert!(first.abs_diff(400) < 60 && second.abs_diff(300) < 60, "{first} and {second}");
}

#[test]
fn among_all_backends_one_that_is_down_or_a_silent_control_plane_leaves_it_to_the_table() {
    let (mut by_table, mut scene) = (Scene::new(0, 4000), of_all(&[(1, 0.001), (2, 1.0)]));
    assert_eq!(scene.open(990..1000).len(), 2, "an idle one is tried");
    assert_eq!(scene.open(1000..1050).keys().collect::<Vec<_>>(), [&2]);
    scene.balancer.set_real(2, &Real { down: true, ..backend(2) });
    assert_eq!(scene.open(1050..1100).keys().collect::<Vec<_>>(), [&1]);
    let mut silent = of_all(&[(1, 0.001), (2, 1.0)]);
    silent.now_ns += 11_000 * MS;
    for port in 1000..1100 {
        assert_eq!(silent.pass(&client(port).syn()), by_table.pass(&client(port).syn()));
    }
}

#[test]
fn a_list_that_holds_not_all_backends_is_none() {
    let backends = |count| (1..=count).map(|number| (number, 1.0)).collect::<Vec<_>>();
    assert_eq!(members(&backends(127)).len(), 256);
    assert!(members(&backends(128)).is_empty());
    assert!(members(&[(1, 0.0)]).is_empty());
    assert_eq!(members(&[(7, 0.5), (8, 0.0), (9, 1e-9)]), [2, 0, 7, 65_536, 9, 1]);
}

#[test]
fn a_backend_that_is_down_is_no_choice() {
    let mut scene = Scene::new(3, 4000);
    scene.open(1000..1010);
    let with_both = scene.balancer.open(2);
    scene.balancer.set_real(2, &Real { down: true, ..backend(2) });
    scene.open(1010..1200);
    assert_eq!(scene.balancer.open(2), with_both, "{}", scene.balancer.open(1));
}

#[test]
fn what_is_not_remembered_goes_where_the_table_says() {
    let mut by_table = Scene::new(0, 4000);
    let [mut full, mut under_way, mut silent] = [100, 4000, 4000].map(|flows| Scene::new(1, flows));
    // Connections of which each goes on for seconds keep their places.
    for port in 1000..1100 {
        full.pass(&client(port).syn());
    }
    for _ in 0..4 {
        full.now_ns += 1100 * MS;
        for port in 1000..1100 {
            full.pass(&client(port).data(10));
        }
    }
    full.renew();
    silent.now_ns += 11_000 * MS;
    let mut reasons: HashMap<Reason, u32> = HashMap::new();
    for port in 2000..2400 {
        let (real, _) = by_table.pass(&client(port).syn());
        let (found, reason) = full.pass(&client(port).syn());
        *reasons.entry(reason).or_default() += 1;
        assert!(found == real || reason == Reason::Fewer);
        assert_eq!(under_way.pass(&client(port).data(10)), (real, Reason::Fallback));
        // Nobody has corrected the counts for long.
        assert_eq!(silent.pass(&client(port).syn()), (real, Reason::New));
    }
    assert!(reasons.contains_key(&Reason::Full), "{reasons:?}");
}

/// A backend that accepts connections and answers nothing for half a minute.
struct Stall {
    /// The part of new connections that it still got after ten seconds.
    part: f64,
    /// For how long its oldest request had waited at the end of each second.
    oldest_s: Vec<f64>,
}

/// Twenty clients per second connect and ask; the first backend answers each at once, and its connections last for a
/// second.
fn stall(sampling: Sampling) -> Stall {
    let mut scene = Scene::new(1, 4000);
    scene.balancer.set_vip(&key(), &Vip { measured: true, sampling, ..vip(1) }, &TABLE);
    (1..=2).for_each(|number| scene.balancer.set_real(number, &Real { sampling, ..backend(number) }));
    let (mut answered, mut stuck, mut oldest_s) = (Vec::<Client>::new(), [0; 30], Vec::new());
    for second in 0..30 {
        let end_ns = scene.now_ns + 1000 * MS;
        let mut before = std::mem::take(&mut answered).into_iter();
        for at in 0..20 {
            let port = 1000 + 20 * second + at;
            for (number, clients) in scene.open(port..port + 1) {
                scene.pass(&clients[0].data(100));
                stuck[usize::from(second)] += u32::from(number == 2);
                if number == 1 {
                    let acknowledged = |tcp: &mut etherparse::TcpHeader| {
                        tcp.ack = true;
                        tcp.acknowledgment_number = 500;
                    };
                    scene.pass(&clients[0].at(1100).tcp(acknowledged, &[]));
                    answered.push(clients[0].clone());
                }
            }
            scene.now_ns += 40 * MS;
            if let Some(client) = before.next() {
                scene.pass(&client.fin());
            }
        }
        scene.now_ns = end_ns;
        let found = scene.balancer.sweep(end_ns, drop);
        oldest_s.push(found.pending(2).oldest_ns().unwrap_or(0) as f64 / 1e9);
        assert_eq!(found.pending(1).count(), 0);
        scene.renew();
    }
    Stall { part: f64::from(stuck[10..].iter().sum::<u32>()) / 400.0, oldest_s }
}

#[test]
fn a_backend_that_answers_nothing_is_avoided_for_as_long_as_its_clients_wait() {
    // Where only some connections are measured, the others do not show that they wait.
    for sampling in [1, 8].map(|connections| Sampling::one_of(connections).unwrap()) {
        let stall = stall(sampling);
        // By the table alone three of seven; with two choices both of which are that backend, (3/7)².
        assert!(stall.part < 0.25, "{sampling}: {} of new connections", stall.part);
    }
}

#[test]
fn the_alert_for_a_backend_that_stalls_fires() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/prometheus/dwell-lb.rules.yml");
    let rules = std::fs::read_to_string(rules).unwrap();
    let limit =
        rules.lines().find_map(|line| line.split_once("dwell_lb_backend_oldest_pending_seconds > ")?.1.parse().ok());
    let limit: f64 = limit.expect("a rule has a limit");
    let stall = stall(Sampling::default());
    assert!(stall.oldest_s[15..].iter().all(|oldest_s| *oldest_s > limit), "{:?}", stall.oldest_s);
}

impl Scene {
    /// Opens connections, and returns those that the table alone would have placed elsewhere, with their backends.
    fn chosen(&mut self, ports: std::ops::Range<u16>) -> Vec<(Client, u32)> {
        let mut chosen = Vec::new();
        for port in ports {
            let (real, reason) = self.pass(&client(port).syn());
            self.pass(&client(port).data(0));
            if reason == Reason::Fewer {
                chosen.push((client(port), real));
            }
        }
        assert!(chosen.len() > 20, "{}", chosen.len());
        chosen
    }

    /// Lets a time pass in which no client sends anything.
    fn silence(&mut self, seconds: u64) {
        for _ in 0..seconds.div_ceil(10) {
            self.now_ns += 10_000 * MS;
            self.balancer.sweep(self.now_ns, drop);
        }
    }

    /// Returns how many of some connections are still known.
    fn known(&mut self, clients: &[(Client, u32)]) -> usize {
        let is_known = |(client, real): &&(Client, u32)| match self.pass(&client.at(1100).data(10)) {
            (there, Reason::Connection) => there == *real,
            (_, reason) => {
                assert_eq!(reason, Reason::Fallback);
                false
            }
        };
        clients.iter().filter(is_known).count()
    }
}

#[test]
fn a_silent_connection_is_remembered_while_the_table_has_room() {
    let mut scene = Scene::new(3, 4000);
    let chosen = scene.chosen(1000..1200);
    for (client, _) in &chosen[10..20] {
        scene.pass(&client.fin());
    }
    scene.silence(300);
    let (open, ended) = (&chosen[..10], &chosen[10..20]);
    assert_eq!((scene.known(open), scene.known(ended)), (10, 0));
    // Whoever has gone on in three seconds may be silent for longer than two hours, when keepalives of TCP come.
    for _ in 0..2 {
        scene.now_ns += 1100 * MS;
        assert_eq!(scene.known(open), 10);
    }
    scene.silence(8000);
    assert_eq!((scene.known(open), scene.known(&chosen[20..])), (10, 0));
    scene.silence(8200);
    assert_eq!(scene.known(open), 0);
}

/// The core counts time in ticks that wrap after 18 minutes; connections are remembered for longer.
#[test]
fn a_request_that_is_never_answered_waits_for_a_minute_once() {
    let mut scene = Scene::new(3, 4000);
    scene.balancer.set_vip(&key(), &Vip { measured: true, ..vip(3) }, &TABLE);
    let chosen = scene.chosen(1000..1200);
    for _ in 0..3 {
        scene.now_ns += 1100 * MS;
        assert_eq!(scene.known(&chosen), chosen.len());
    }
    let mut pending = Vec::new();
    for _ in 0..250 {
        scene.now_ns += 10_000 * MS;
        let found = scene.balancer.sweep(scene.now_ns, drop);
        pending.push((1..=2).map(|real| found.pending(real).count()).sum::<u64>());
    }
    assert!(pending[4] >= chosen.len() as u64, "{pending:?}");
    assert!(pending[7..].iter().all(|count| *count == 0), "{pending:?}");
    assert_eq!(scene.known(&chosen), chosen.len());
}

#[test]
fn a_backend_that_leaves_waits_for_no_silent_connection() {
    let mut scene = Scene::new(3, 4000);
    let chosen = scene.chosen(1000..1200);
    scene.balancer.set_real(1, &Real { leaving: true, ..backend(1) });
    scene.silence(100);
    let found = scene.balancer.sweep(scene.now_ns, drop);
    assert_eq!(found.tracked(1), 0);
    assert!(found.tracked(2) > 50, "{}", found.tracked(2));
    let stays = chosen.iter().filter(|(_, real)| *real == 2).count();
    assert_eq!(scene.known(&chosen), stays);
}

#[test]
fn a_table_without_room_forgets_what_is_silent() {
    let mut scene = Scene::new(3, 400);
    let chosen = scene.chosen(1000..1470);
    scene.silence(100);
    assert_eq!(scene.known(&chosen), 0);
}

fn opened(plane: &mut Plane) -> [u64; 3] {
    let loads = plane.real_loads().unwrap();
    [1, 2, 3].map(|number| loads[number].opened)
}

#[test]
fn root_the_kernel_counts_open_connections_and_each_sweep_corrects_them() {
    let Some(mut plane) = loaded(&options()) else { return };
    plane.set_vip(&key(), &vip(1)).unwrap();
    for number in 1..=2 {
        plane.set_real(number, &backend(number)).unwrap();
    }
    plane.set_table(1, &TABLE).unwrap();
    plane.renew(Duration::from_secs(60), WhenStale::Keep).unwrap();
    let open = |plane: &mut Plane, ports: std::ops::Range<u16>| {
        let before = opened(plane);
        for port in ports {
            plane.replay_packet(&client(port).syn()).unwrap();
            plane.replay_packet(&client(port).data(10)).unwrap();
        }
        let now = opened(plane);
        [now[0] - before[0], now[1] - before[1]]
    };
    let [first, second] = open(&mut plane, 1000..1400);
    assert!(first.abs_diff(second) < 10, "{first} and {second}");
    let counters = plane.counters().unwrap();
    assert!(counters.get(Reason::Fewer) > 50, "{counters:?}");
    // All stay open, so a correction changes nothing.
    plane.sweep(|_| {}).unwrap();
    let [first, second] = open(&mut plane, 1400..1600);
    assert!(first.abs_diff(second) < 10, "{first} and {second}");
    // They fall silent without an end. Then counts begin anew.
    std::thread::sleep(options().active_timeout + Duration::from_millis(500));
    for port in 1000..1600 {
        plane.replay_packet(&client(port).fin()).unwrap();
    }
    plane.sweep(|_| {}).unwrap();
    let [first, second] = open(&mut plane, 2000..2200);
    assert!(first.abs_diff(second) < 10, "{first} and {second}");
}

#[test]
fn root_the_kernel_gives_a_connection_to_the_backend_with_the_fewest_for_its_weight() {
    let Some(mut plane) = loaded(&options()) else { return };
    plane.set_vip(&key(), &Vip { of_all: true, ..vip(0) }).unwrap();
    for number in 1..=3 {
        plane.set_real(number, &backend(number)).unwrap();
    }
    plane.set_table(1, &TABLE).unwrap();
    plane.renew(Duration::from_secs(60), WhenStale::Keep).unwrap();
    let open = |plane: &mut Plane, list: &[(u32, f64)], ports: std::ops::Range<u16>| {
        let before = opened(plane);
        plane.set_members(&[(1, &members(list))]).unwrap();
        ports.for_each(|port| drop(plane.replay_packet(&client(port).syn()).unwrap()));
        let now = opened(plane);
        [0, 1, 2].map(|at| now[at] - before[at])
    };
    // The table has no third backend, the list has.
    assert_eq!(open(&mut plane, &[(1, 0.5), (2, 1.5), (3, 1.0)], 1000..1024), [4, 12, 8]);
    // It is replaced at once, and who has fewest catches up.
    assert_eq!(open(&mut plane, &[(1, 1.0), (2, 1.0), (3, 1.0)], 1024..1036), [8, 0, 4]);
    // Without a list the table decides.
    let [first, second, third] = open(&mut plane, &[], 1036..1136);
    assert_eq!((first + second, third), (100, 0));
}
