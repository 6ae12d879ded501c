//! tcp-seq, compared with tshark's ack_rtt and tcptrace; tcp-timestamp, compared with pping.

use dwell_engine::{measure::Method, rtt::Config};
use serde_json::Value;

use crate::support::{Capture, Stats, capture, only, packets, replay, to};

/// Configures tcp-seq to count as tshark does: with the SYNs, whether or not there are timestamps.
fn by_seq() -> Config {
    Config { include_handshake: true, ..only(&[Method::TcpSeq]) }
}

/// Configures tcp-timestamp to count as pping does: with the SYNs and pure ACKs.
fn as_pping() -> Config {
    Config { include_handshake: true, stamp_acks: true, ..only(&[Method::TcpTimestamp]) }
}

/// Returns the reference flow: both endpoints and tshark's figures for the data of each.
fn tshark_flow(capture: &Capture) -> (String, String, Stats, Stats) {
    let flow = &capture.reference["ref"]["tshark"]["flows"][0];
    let end = |name: &str| {
        let text = flow[name].as_str().unwrap();
        let (address, port) = text.rsplit_once(':').unwrap();
        if address.contains(':') { format!("[{address}]:{port}") } else { text.to_owned() }
    };
    (
        end("a"),
        end("b"),
        Stats::from_json(&flow["ack_rtt_of_a_data_ms"]),
        Stats::from_json(&flow["ack_rtt_of_b_data_ms"]),
    )
}

fn measured(capture: &Capture, config: &Config, answered_by: &str) -> Stats {
    let replay = replay(config, &packets(&capture.path));
    Stats::of(to(&replay.samples, answered_by))
}

#[track_caller]
fn assert_near(ours: f64, theirs: f64, tolerance: f64) {
    assert!((ours - theirs).abs() <= tolerance, "{ours} for {theirs}");
}

#[test]
fn a01_without_loss_is_tsharks_list_to_the_microsecond() {
    let Some(a01) = capture("A01") else { return };
    let (client, server, of_client, of_server) = tshark_flow(&a01);
    measured(&a01, &by_seq(), &server).assert_is(of_client, "data of the client");
    // The other samples are of the SYN-ACK and of a lone FIN, which is not stamped.
    let ours = measured(&a01, &by_seq(), &client);
    assert_eq!((ours.n, of_server.n), (1, 2));
    assert_near(ours.max, of_server.max, 0.001);
}

#[test]
fn a02_with_loss_leaves_out_what_karn_forbids() {
    let Some(a02) = capture("A02") else { return };
    let (_, server, of_client, _) = tshark_flow(&a02);
    let ours = measured(&a02, &by_seq(), &server);
    // There are 13 retransmissions and 152 duplicate ACKs, and 45 of tshark's 358 samples were in flight meanwhile. Its
    // maximum of 1179 ms is a retransmission.
    assert_eq!((ours.n, of_client.n), (313, 358));
    assert_near(ours.min, of_client.min, 0.001);
    assert_near(ours.p50, of_client.p50, 0.1);
    let tcptrace = &a02.reference["ref"]["tcptrace"]["top"][0];
    // tcptrace skips retransmissions too; it rounds to 0.1 ms.
    assert_near(ours.max, tcptrace["RTT max"][0].as_f64().unwrap(), 0.06);
    let mean = tcptrace["RTT avg"][0].as_f64().unwrap();
    assert_near(ours.mean, mean, mean / 100.0);
}

#[test]
fn a03_many_flows_agree_but_for_fins_and_losses() {
    let Some(a03) = capture("A03") else { return };
    let samples = replay(&by_seq(), &packets(&a03.path)).samples;
    let totals = &a03.reference["ref"]["tshark"]["ack_rtt_ms"];
    let initiator = |sample: &&_| {
        let sample: &dwell_engine::measure::Sample = sample;
        sample.dst.address.to_string() == "192.168.1.7"
    };
    let to_initiator = Stats::of(samples.iter().filter(initiator));
    let to_responder = Stats::of(samples.iter().filter(|sample| !initiator(sample)));
    let theirs = Stats::from_json(&totals["acks_by_responder"]);
    // 47 of their samples answer a lone FIN, and about twenty were in flight when a SACK or a duplicate ACK came; 4 of
    // ours are ACKs of data and FIN together, or of segments that the capture lacks.
    assert_eq!((to_responder.n, theirs.n), (177, 207));
    assert_near(to_responder.min, theirs.min, 0.001);
    assert_near(to_responder.p50, theirs.p50, theirs.p50 / 10.0);
    let theirs = Stats::from_json(&totals["acks_by_initiator"]);
    assert_eq!((to_initiator.n, theirs.n), (408, 445));
    assert_near(to_initiator.min, theirs.min, 0.001);
    assert_near(to_initiator.p50, theirs.p50, theirs.p50 / 10.0);
}

#[test]
fn a09_thousand_requests_are_tsharks_list_without_the_fins() {
    let Some(a09) = capture("A09") else { return };
    let (client, server, of_client, of_server) = tshark_flow(&a09);
    for (end, theirs) in [(&server, of_client), (&client, of_server)] {
        let ours = measured(&a09, &by_seq(), end);
        assert_eq!(ours.n, theirs.n - 1, "to {end}");
        assert_near(ours.min, theirs.min, 0.001);
        assert_near(ours.p50, theirs.p50, 0.001);
        assert_near(ours.mean, theirs.mean, 0.001);
        assert_near(ours.max, theirs.max, 0.001);
    }
}

#[test]
fn a10_begins_in_the_middle_and_lacks_its_first_segments() {
    let Some(a10) = capture("A10") else { return };
    let (client, server, of_client, of_server) = tshark_flow(&a10);
    for (end, theirs) in [(&server, of_client), (&client, of_server)] {
        let ours = measured(&a10, &by_seq(), end);
        assert_eq!(ours.n, theirs.n - 1, "to {end}");
        assert_near(ours.min, theirs.min, 0.001);
        assert_near(ours.p50, theirs.p50, 0.005);
        assert_near(ours.mean, theirs.mean, 0.01);
        assert_near(ours.max, theirs.max, 0.001);
    }
}

#[test]
fn a12_cooked_and_half_missing_gives_what_can_be_known() {
    let Some(a12) = capture("A12") else { return };
    let samples = replay(&by_seq(), &packets(&a12.path)).samples;
    // Each of 21 connections starts in the middle: 28 of tshark's 106 samples answer the first captured segment of a
    // side, and one of 2.06 s comes from a side that is first captured then. 14 of ours are ACKs of more than was
    // captured, which tshark skips.
    assert_eq!(samples.len(), 91);
    let ours = Stats::of(&samples);
    let theirs = &a12.reference["ref"];
    let least = Stats::from_json(&theirs["tshark"]["ack_rtt_ms"]["acks_by_initiator"]).min;
    assert_near(ours.min, least, 0.001);
    // A page that was read for 21 seconds before its last byte was acknowledged.
    let think = Stats::from_json(&theirs["request_response"]["think_ms"]);
    assert_near(ours.max, think.max, 0.001);
}

#[test]
fn a13_one_direction_gives_nothing_at_all() {
    let Some(a13) = capture("A13") else { return };
    let config = Config { stamp_acks: true, include_handshake: true, ..only(&Method::ALL) };
    assert!(replay(&config, &packets(&a13.path)).samples.is_empty());
    assert!(replay(&by_seq(), &packets(&a13.path)).samples.is_empty());
}

/// Returns pping's samples. It names a flow by the answering side: "src+dst" of the packet with the echo.
fn pping_to(capture: &Capture, answered_by: &str) -> Stats {
    let plain = answered_by.replace(['[', ']'], "");
    let flows = capture.reference["ref"]["pping"]["top"].as_array().unwrap();
    let named = |flow: &&Value| {
        let name = flow["flow"].as_str().unwrap();
        name.starts_with(&format!("{plain}+"))
    };
    Stats::from_json(flows.iter().find(named).unwrap())
}

#[test]
fn pping_measures_the_same_if_asked_for_the_same() {
    // The SYN, which pping does not report for the initiator, and the retransmissions of A02, whose echo it treats as a
    // repetition.
    for (id, more_of_client, more_of_server) in [("A01", 0, 1), ("A02", 4, 1), ("A09", 0, 0), ("A10", 0, 1)] {
        let Some(capture) = capture(id) else { return };
        let (client, server, ..) = tshark_flow(&capture);
        for (end, more) in [(&client, more_of_client), (&server, more_of_server)] {
            let (ours, theirs) = (measured(&capture, &as_pping(), end), pping_to(&capture, end));
            assert_eq!(ours.n, theirs.n + more, "{id}, to {end}");
            assert_near(ours.min, theirs.min, 0.001);
            assert_near(ours.p50, theirs.p50, 0.001);
            if more == 0 {
                ours.assert_is(theirs, id);
            }
        }
    }
}

#[test]
fn timestamps_agree_with_the_truth_of_the_link() {
    // Emulated round trips without queues: 100 ms and 10 ms.
    for (id, base_ms, samples) in [("A01", 100.0, 175), ("A02", 10.0, 271)] {
        let Some(capture) = capture(id) else { return };
        let (client, server, of_client, _) = tshark_flow(&capture);
        let config = only(&[Method::TcpTimestamp]);
        let ours = measured(&capture, &config, &server);
        assert_eq!(ours.n, samples);
        assert!(ours.min >= base_ms && ours.min < base_ms * 1.05, "{ours}");
        // A clock of 100 Hz marks every third packet, so the spread is the same.
        let pping = pping_to(&capture, &server);
        assert_near(ours.p50, pping.p50, 0.001);
        assert_near(ours.mean, pping.mean, 0.01);
        assert_near(ours.max, pping.max, 0.001);
        assert_near(ours.min, of_client.min, 0.001);
        // the server sends no data
        assert_eq!(measured(&capture, &config, &client).n, 0);
    }
}

#[test]
fn a10_timestamps_and_sequence_numbers_agree() {
    let Some(a10) = capture("A10") else { return };
    let (client, server, of_client, of_server) = tshark_flow(&a10);
    let config = only(&[Method::TcpTimestamp]);
    measured(&a10, &config, &server).assert_is(of_client, "to the server");
    measured(&a10, &config, &client).assert_is(of_server, "to the client");
}

/// tshark's `tcp.analysis.retransmission`, without those of a lone SYN.
#[test]
fn retransmissions_are_as_many_as_tshark_finds() {
    for (id, count) in [("A01", 0), ("A02", 13), ("A03", 1)] {
        let Some(capture) = capture(id) else { return };
        for method in [Method::TcpSeq, Method::TcpTimestamp] {
            let samples = capture.samples(&[method]);
            let found: u64 = samples.iter().map(|sample| sample.path.retransmitted).sum();
            assert_eq!(found, count, "{id} {method}");
        }
    }
}
