//! Connections that have the addresses and ports of an earlier one, in the native core, where time is an argument.

use dwell_engine::{
    balance::{Balancer, Reason},
    response::Watch,
};
use dwell_probes::balancer::{Forward, Protocol, Real, Vip, VipKey};
use etherparse::TcpHeader;

use crate::{
    packets::{Client, address, real, v4},
    parity::native,
};

const MS: u64 = 1_000_000;

struct Scene {
    balancer: Balancer,
    second_chance: bool,
    now_ms: u64,
}

impl Scene {
    /// All connections of the VIP go to the backend 1.
    fn new() -> Scene {
        Scene::of(Forward::L2, false)
    }

    /// The same, where packets of unknown connections may go on to the other backend.
    fn with_second_chance() -> Scene {
        let mut scene = Scene::of(Forward::Ipip, true);
        scene.balancer.set_recent(1, &[[1, 2, 0, 0]; 7]);
        scene
    }

    fn of(forward: Forward, second_chance: bool) -> Scene {
        let mut balancer = native(Watch::default(), 64);
        for number in 1..=2 {
            balancer.set_real(number, &real(address("10.0.0.5"), forward, 70 + number));
        }
        let mut scene = Scene { balancer, second_chance, now_ms: 1000 };
        scene.lead_to(1);
        scene
    }

    fn lead_to(&mut self, real: u32) {
        let key = VipKey { address: v4().dst, protocol: Protocol::Tcp, port: Some(80) };
        let vip = Vip { number: 1, second_chance: self.second_chance, ..Vip::default() };
        self.balancer.set_vip(&key, &vip, &[real; 7]);
    }

    /// The backend of a packet that comes `after_ms` after the last one.
    fn pass(&mut self, after_ms: u64, frame: &[u8]) -> (Option<u32>, Reason) {
        self.now_ms += after_ms;
        let (decision, _) = self.balancer.packet(frame, 1, self.now_ms * MS, false, |_| {});
        (decision.real, decision.reason)
    }

    /// A connection to the backend 1 that carries a request; from then on new ones go to the backend 2.
    fn connect(&mut self, client: &Client) {
        assert_eq!(self.pass(1, &client.syn()), (Some(1), Reason::New));
        assert_eq!(self.pass(1, &client.data(0)), (Some(1), Reason::Connection));
        assert_eq!(self.pass(1, &client.data(100)), (Some(1), Reason::Connection));
        self.lead_to(2);
    }
}

#[test]
fn a_syn_after_an_end_is_placed_anew() {
    for end in [Client::fin, Client::rst] {
        let (mut scene, client) = (Scene::new(), v4());
        scene.connect(&client);
        assert_eq!(scene.pass(1, &end(&client)), (Some(1), Reason::Connection));
        assert_eq!(scene.pass(1, &client.data(0)), (Some(1), Reason::Connection), "the last ACK");
        let next = client.at(77_000_000);
        assert_eq!(scene.pass(20, &next.syn()), (Some(2), Reason::New));
        assert_eq!(scene.pass(1000, &next.syn()), (Some(2), Reason::Connection), "sent again");
        assert_eq!(scene.pass(1, &next.data(100)), (Some(2), Reason::Connection));
        // where it stays, whatever the table says later
        scene.lead_to(1);
        assert_eq!(scene.pass(1000, &next.syn()), (Some(2), Reason::Connection));
        assert_eq!(scene.pass(1, &next.fin()), (Some(2), Reason::Connection));
        assert_eq!(scene.pass(20, &client.syn()), (Some(1), Reason::New));
    }
}

/// The server may have ended it.
#[test]
fn a_syn_after_a_long_silence_is_placed_anew() {
    let (mut scene, client) = (Scene::new(), v4());
    scene.connect(&client);
    for flags in [|tcp: &mut TcpHeader| tcp.fin = true, |tcp: &mut TcpHeader| tcp.rst = true] {
        let no_beginning = |tcp: &mut TcpHeader| {
            tcp.syn = true;
            flags(tcp);
        };
        let no_beginning = client.tcp(no_beginning, &[]);
        assert_eq!(scene.pass(31_000, &no_beginning), (Some(1), Reason::Connection));
    }
    assert_eq!(scene.pass(29_000, &client.syn()), (Some(1), Reason::Connection));
    assert_eq!(scene.pass(31_000, &client.syn()), (Some(2), Reason::New));
    assert_eq!(scene.pass(1, &client.data(0)), (Some(2), Reason::Connection));
}

#[test]
fn data_that_is_sent_again_after_the_end_brings_no_connection_back() {
    for seq in [1000, u32::MAX - 150, 0x1_ffff - 150, 0x1_ffff - 50] {
        let connected = || {
            let (mut scene, client) = (Scene::new(), v4().at(seq));
            scene.connect(&client);
            scene.pass(1, &client.at(seq.wrapping_add(100)).data(100));
            (scene, client)
        };
        for end in [Client::fin, Client::rst] {
            let (mut scene, client) = connected();
            let last = client.at(seq.wrapping_add(200));
            for after_ms in [1, 5, 400, 800, 1600, 3200, 6400] {
                scene.pass(after_ms, &end(&last));
                scene.pass(after_ms, &client.at(seq.wrapping_add(100)).data(100));
            }
            scene.pass(1, &last.at(last.seq.wrapping_add(1)).data(0));
            assert_eq!(scene.pass(20, &client.syn()), (Some(2), Reason::New), "{seq}");
        }
        // A forged end, behind what the client sends next, at it, or ahead of it.
        for ahead in [-60_000, -100, 0, 100, 65_000, 200_000] {
            for end in [Client::fin, Client::rst] {
                let (mut scene, client) = connected();
                scene.pass(1, &end(&client.at(seq.wrapping_add(200).wrapping_add_signed(ahead))));
                scene.pass(1, &client.at(seq.wrapping_add(200)).data(2));
                assert_eq!(scene.pass(20, &client.syn()), (Some(1), Reason::Connection), "{seq} {ahead}");
            }
        }
        // Data was lost on the way here, and comes again after the end.
        let (mut scene, client) = connected();
        scene.pass(1, &client.at(seq.wrapping_add(300)).fin());
        scene.pass(3200, &client.at(seq.wrapping_add(200)).data(100));
        scene.pass(1, &client.at(seq.wrapping_add(301)).data(0));
        assert_eq!(scene.pass(20, &client.syn()), (Some(2), Reason::New), "{seq}");
    }
}

#[test]
fn a_reuse_that_comes_too_soon_is_followed_to_its_own_end() {
    let (mut scene, client) = (Scene::new(), v4());
    scene.connect(&client);
    scene.pass(1, &client.fin());
    let next = client.at(77_000_000);
    assert_eq!(scene.pass(5, &next.syn()), (Some(1), Reason::Connection));
    scene.pass(1, &next.data(100));
    scene.pass(1, &next.fin());
    assert_eq!(scene.pass(20, &client.syn()), (Some(2), Reason::New));
}

#[test]
fn a_connection_that_was_taken_up_on_its_way_is_placed_anew_too() {
    let (mut scene, client) = (Scene::new(), v4().at(3_000_000_000));
    assert_eq!(scene.pass(1, &client.data(100)), (Some(1), Reason::Fallback));
    scene.lead_to(2);
    assert_eq!(scene.pass(1, &client.fin()), (Some(1), Reason::Connection));
    assert_eq!(scene.pass(20, &client.syn()), (Some(2), Reason::New));
}

#[test]
fn an_end_by_somebody_who_does_not_know_the_connection_moves_nobody() {
    for end in [Client::fin, Client::rst] {
        let (mut scene, client) = (Scene::new(), v4());
        scene.connect(&client);
        for seq in [1 << 20, 1 << 30, u32::MAX - 70_000] {
            assert_eq!(scene.pass(1, &end(&client.at(seq))), (Some(1), Reason::Connection));
            assert_eq!(scene.pass(1000, &client.at(9).syn()), (Some(1), Reason::Connection), "{seq}");
        }
        // Nor do guesses bring its sequence number nearer to the forger's.
        for seq in (0..u32::MAX).step_by(1 << 24) {
            scene.pass(1, &client.at(seq.wrapping_add(1 << 23)).data(9));
        }
        assert_eq!(scene.pass(1, &end(&client.at(1 << 23))), (Some(1), Reason::Connection));
        assert_eq!(scene.pass(1000, &client.syn()), (Some(1), Reason::Connection));
    }
}

#[test]
fn an_ended_connection_comes_back_by_what_passes_its_end_alone() {
    for end in [Client::fin, Client::rst] {
        let (mut scene, client) = (Scene::new(), v4());
        scene.connect(&client);
        scene.pass(1, &end(&client.at(1100)));
        for seq in (71_100..u32::MAX - 70_000).step_by(1 << 26) {
            let other = client.at(seq);
            let syn_ack = other.tcp(|tcp| (tcp.syn, tcp.ack) = (true, true), &[]);
            let next = other.at(seq + 1001).data(9);
            for frame in [other.data(0), syn_ack, other.at(seq + 1).data(1000), other.fin(), next] {
                assert_eq!(scene.pass(10, &frame), (Some(1), Reason::Connection));
                assert_eq!(scene.balancer.open(1), 0, "{seq}");
            }
        }
        // Nor do they keep the client's port at the backend that gets no new connections.
        assert_eq!(scene.pass(1, &client.at(77_000_000).syn()), (Some(2), Reason::New));
    }
}

#[test]
fn an_end_with_other_numbers_makes_nobody_lose_a_place() {
    for end in [Client::fin, Client::rst] {
        let (mut scene, client) = (Scene::new(), v4());
        scene.connect(&client);
        scene.pass(1, &end(&client.far()));
        scene.balancer.sweep((scene.now_ms + 20_000) * MS, drop);
        assert_eq!(scene.pass(20_001, &client.at(1100).data(9)), (Some(1), Reason::Connection));
        // Nor does it move anybody off a backend that is down.
        let down = Real { down: true, ..real(address("10.0.0.5"), Forward::L2, 71) };
        scene.balancer.set_real(1, &down);
        scene.pass(1, &end(&client.far()));
        assert_eq!(scene.pass(1, &client.far().syn()), (Some(1), Reason::Connection));
    }
}

#[test]
fn a_client_that_has_closed_its_side_keeps_its_backend_while_it_receives() {
    let (mut scene, client) = (Scene::new(), v4());
    scene.connect(&client);
    scene.pass(1, &client.fin());
    for _ in 0..100 {
        assert_eq!(scene.pass(10, &client.data(0)), (Some(1), Reason::Connection));
        assert_eq!(scene.pass(5, &client.far().syn()), (Some(1), Reason::Connection));
    }
}

#[test]
fn ends_are_recognized_after_any_number_of_bytes() {
    let (mut scene, client) = (Scene::new(), v4().at(u32::MAX - 500_000));
    scene.connect(&client);
    let mut seq = client.seq;
    for step in 0..200_u32 {
        seq = seq.wrapping_add(1460 * (1 + step % 100));
        // some were lost on the way here, and some come late
        scene.pass(1, &client.at(seq).data(1460));
        scene.pass(1, &client.at(seq.wrapping_sub(14_600)).data(1460));
    }
    scene.pass(1, &client.at(seq.wrapping_add(1460)).fin());
    assert_eq!(scene.pass(20, &client.syn()), (Some(2), Reason::New));
}

/// How far a client's sequence numbers are from those of the connection before, where it uses its port again: by the clock
/// (RFC 6528), or Linux where the port still waits (tcp_tw_reuse: 65,537 behind the last one).
const USED_AGAIN: [u32; 4] = [65_537 + 101, 20_000_000, 1 << 31, u32::MAX - (2 << 20)];

#[test]
fn a_packet_of_another_connection_with_the_same_ports_may_go_on() {
    for ahead in USED_AGAIN {
        let (mut scene, client) = (Scene::with_second_chance(), v4().at(0x1_ff00));
        scene.connect(&client);
        // The end of the first one and the beginning of the other passed another balancer.
        let other = client.at(client.seq.wrapping_add(ahead));
        for frame in [other.data(0), other.data(100), other.at(other.seq + 9).fin(), other.rst()] {
            assert_eq!(scene.pass(1000, &frame), (Some(1), Reason::Second), "{ahead}");
            assert_eq!(scene.pass(1, &frame), (Some(1), Reason::Second), "{ahead}");
        }
        // If its beginning comes here too, it goes where other balancers send it.
        assert_eq!(scene.pass(1000, &other.syn()), (Some(2), Reason::Second), "{ahead}");
        // Nothing has been learnt: the first one may still be there, and the others forged.
        assert_eq!(scene.pass(1, &client.at(client.seq + 100).data(9)), (Some(1), Reason::Connection), "{ahead}");
    }
}

#[test]
fn a_packet_of_the_same_connection_needs_no_second_chance() {
    let mut scene = Scene::with_second_chance();
    let client = v4().at(u32::MAX - 1_000_000);
    scene.connect(&client);
    let mut seq = client.seq.wrapping_add(100);
    for bytes in (1..1400).step_by(7) {
        seq = seq.wrapping_add(bytes);
        let here = client.at(seq.wrapping_sub(bytes));
        assert_eq!(scene.pass(1000, &here.data(bytes as usize)), (Some(1), Reason::Connection));
        // What was sent again, a keepalive, and what is ahead of packets that were lost.
        for (after_ms, at, payload) in
            [(1, here.seq, bytes), (1000, seq.wrapping_sub(1), 0), (1000, seq.wrapping_sub(1 << 20), 9), (1, seq, 100)]
        {
            let frame = client.at(at).data(payload as usize);
            assert_eq!(scene.pass(after_ms, &frame), (Some(1), Reason::Connection), "{at}");
        }
        seq = seq.wrapping_add(100);
    }
    assert_eq!(scene.pass(1, &client.at(seq + 200_000).data(9)), (Some(1), Reason::Connection));
}

#[test]
fn without_a_second_chance_a_known_port_leads_to_its_backend_whatever_comes() {
    for ahead in USED_AGAIN {
        let (mut scene, client) = (Scene::new(), v4());
        scene.connect(&client);
        let other = client.at(client.seq.wrapping_add(ahead));
        for frame in [other.syn(), other.data(0), other.data(100)] {
            assert_eq!(scene.pass(1000, &frame), (Some(1), Reason::Connection), "{ahead}");
        }
    }
}
