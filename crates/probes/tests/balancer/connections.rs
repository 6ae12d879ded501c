//! Which backend a connection has, and when it gets another one.

use dwell_engine::rtt::Counter;
use dwell_probes::balancer::{Plane, Protocol, Real, Reason, Vip, VipKey};

use crate::{
    fixtures::{ask, l2, pass, plane, why},
    packets::{Client, v4, v6},
};

#[test]
fn root_connections_stay_until_they_are_over() {
    let Some(mut plane) = plane(l2()) else { return };
    let client = v4();
    assert_eq!(pass(&mut plane, &client.syn()), (Some(1), Reason::New));
    plane.set_table(1, &[2; 7]).unwrap();
    assert_eq!(pass(&mut plane, &client.syn()), (Some(1), Reason::Connection));
    assert_eq!(pass(&mut plane, &client.data(5)), (Some(1), Reason::Connection));
    assert_eq!(plane.sweep(drop).unwrap().of(1), 1);
    // A backend that is down keeps established connections, and gets no new ones.
    let down = Real { down: true, ..l2() };
    plane.set_real(1, &down).unwrap();
    assert_eq!(pass(&mut plane, &client.data(5)), (Some(1), Reason::Connection));
    assert_eq!(pass(&mut plane, &client.syn()), (Some(1), Reason::Connection));
    assert_eq!(pass(&mut plane, &client.fin()), (Some(1), Reason::Connection));
    assert_eq!(pass(&mut plane, &client.at(996).data(4)), (Some(1), Reason::Connection), "sent again");
    let told = plane.sweep(drop).unwrap();
    assert_eq!((told.of(1), told.tracked(1)), (0, 1));
    // Its last ACK still goes there, and its addresses and ports can be used again.
    assert_eq!(pass(&mut plane, &client.data(0)), (Some(1), Reason::Connection));
    assert_eq!(pass(&mut plane, &client.syn()), (Some(2), Reason::New));
    assert_eq!(pass(&mut plane, &client.data(5)), (Some(2), Reason::Connection));
    // A forged RST does not end an active connection, and a SYN after it does not move it.
    plane.set_table(1, &[1; 7]).unwrap();
    plane.set_real(1, &l2()).unwrap();
    assert_eq!(pass(&mut plane, &client.far().rst()), (Some(2), Reason::Connection));
    assert_eq!(pass(&mut plane, &client.syn()), (Some(2), Reason::Connection));
    assert_eq!(pass(&mut plane, &client.data(5)), (Some(2), Reason::Connection));
    assert_eq!(plane.sweep(drop).unwrap().of(2), 1);
    // A backend that is unreachable for a while keeps established connections.
    let second = Real { next_hop: None, ..l2() };
    plane.set_real(2, &second).unwrap();
    assert_eq!(pass(&mut plane, &client.data(5)), (Some(2), Reason::NoRoute));
    // A backend that was removed keeps no connections.
    plane.remove_reals(&[2]).unwrap();
    assert_eq!(pass(&mut plane, &client.data(5)), (Some(1), Reason::Moved));
    assert_eq!(pass(&mut plane, &client.data(5)), (Some(1), Reason::Connection));
}

#[test]
fn root_a_connection_that_never_was_leaves_a_backend_that_is_down() {
    let Some(mut plane) = plane(l2()) else { return };
    let (tcp, udp) = (v4(), v6());
    assert_eq!(pass(&mut plane, &tcp.syn()), (Some(1), Reason::New));
    assert_eq!(pass(&mut plane, &udp.udp(b"q")), (Some(1), Reason::New));
    plane.set_real(1, &Real { down: true, ..l2() }).unwrap();
    // As long as the table still selects it, there is no better choice.
    assert_eq!(pass(&mut plane, &tcp.syn()), (Some(1), Reason::Connection));
    let mixed: Vec<u32> = (0..101).map(|at| 1 + u32::from(at >= 3)).collect();
    for vip in [1, 2] {
        plane.set_table(vip, &mixed).unwrap();
    }
    assert_eq!(pass(&mut plane, &tcp.syn()), (Some(2), Reason::Moved));
    assert_eq!(pass(&mut plane, &udp.udp(b"q")), (Some(2), Reason::Moved));
    // 97 % of the table is up, so the rest finds another backend at the next attempt.
    for port in 1000..1300 {
        let client = Client { port, ..v4() };
        assert_eq!(ask(&mut plane, &client.syn()).decision.real, Some(2));
    }
}

#[test]
fn root_unknown_connections_are_taken_up_but_not_for_a_rst() {
    let Some(mut plane) = plane(l2()) else { return };
    let client = v4();
    assert_eq!(pass(&mut plane, &client.rst()), (Some(1), Reason::Fallback));
    assert_eq!(plane.sweep(drop).unwrap().total(), 0);
    assert_eq!(pass(&mut plane, &client.data(1)), (Some(1), Reason::Fallback));
    plane.set_table(1, &[2; 7]).unwrap();
    assert_eq!(pass(&mut plane, &client.data(1)), (Some(1), Reason::Connection));
    let asked = Client { port: 9, ..v4() };
    assert_eq!(why(&mut plane, &asked.syn()), Reason::New);
    assert_eq!(why(&mut plane, &asked.syn()), Reason::New);
    assert_eq!(plane.sweep(drop).unwrap().total(), 1);
}

#[test]
fn root_a_flood_leaves_connections_where_they_are() {
    let Some(mut plane) = plane(l2()) else { return };
    let known: Vec<Client> = (1..=100).map(|port| Client { port, ..v4() }).collect();
    for client in &known {
        for frame in [client.syn(), client.data(0), client.data(9)] {
            plane.replay_packet(&frame).unwrap();
        }
    }
    plane.set_table(1, &[2; 7]).unwrap();
    // There are more than the table has slots.
    for port in 1000..4000 {
        plane.replay_packet(&Client { port, ..v4() }.syn()).unwrap();
    }
    // They have replaced each other.
    let counters = plane.counters().unwrap();
    assert!(counters.table.get(Counter::FlowsEvicted) > 1000, "{counters:?}");
    let full = counters.get(Reason::Full);
    let mut kept = 0;
    for client in &known {
        kept += u32::from(pass(&mut plane, &client.data(9)) == (Some(1), Reason::Connection));
    }
    assert_eq!(kept, 100);
    assert_eq!(plane.counters().unwrap().get(Reason::Full), full);
}

#[test]
fn root_all_connections_of_a_client_may_go_to_one_backend() {
    let Some(mut plane) = plane(l2()) else { return };
    let table: Vec<u32> = (0..101).map(|at| 1 + at % 2).collect();
    plane.set_table(1, &table).unwrap();
    let backends = |plane: &mut Plane| {
        let mut seen = [0; 3];
        for port in 1000..1200 {
            let client = Client { port, ..v4() };
            seen[ask(plane, &client.syn()).decision.real.unwrap() as usize] += 1;
        }
        [seen[1], seen[2]]
    };
    let spread = backends(&mut plane);
    assert!(spread.iter().all(|count| *count > 60), "{spread:?}");
    let key = VipKey { address: v4().dst, protocol: Protocol::Tcp, port: Some(80) };
    let vip = Vip { number: 1, by_source: true, ..Vip::default() };
    plane.set_vip(&key, &vip).unwrap();
    let together = backends(&mut plane);
    assert!(together.contains(&200), "{together:?}");
    // Without its VIP, the packet is not for the balancer.
    plane.remove_vips(&[key]).unwrap();
    assert_eq!(why(&mut plane, &v4().syn()), Reason::NotVip);
}
