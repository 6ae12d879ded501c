//! `--fail-if`: exit statuses, sentences and the objects that say why.

use serde_json::Value;

use crate::{
    fleet::{ended, pair},
    records::{object, of_type},
    support::{Run, dwell, dwell_reading, skipped},
    wire::{capture, pings},
};

/// Eight pings, each answered after 5 ms, judged by `conditions`.
fn judged(verb: &[&str], conditions: &[&str]) -> Run {
    let conditions = conditions.iter().flat_map(|condition| ["--fail-if", condition]);
    let arguments: Vec<&str> = verb.iter().copied().chain(conditions).collect();
    dwell_reading(&arguments, &capture(&pings(8)))
}

const RTT: &[&str] = &["rtt", "-r", "-", "--format", "none"];

fn last_line(run: &Run) -> &str {
    run.stderr.lines().last().unwrap_or_default()
}

#[test]
fn a_replay_fails_if_a_condition_holds() {
    for (conditions, status, words) in [
        (&["p99<1us"][..], 0, "over 8 samples: p99<1us does not hold"),
        (&["p99>1us"], 1, "over 8 samples: p99>1us holds, so this run has failed"),
        (&["icmp max>1us or icmp max>1h"], 1, "over 8 samples: icmp max>1h does not hold"),
        (&["max>1h", "count<9"], 1, "there are 8 samples: count<9 holds, so this run has failed"),
        (
            &["tcp p50>1h"],
            1,
            "there are no samples of tcp: whether tcp p50>1h holds is unknown, so this run has failed",
        ),
        (&["tcp count>0"], 0, "there are no samples of tcp: tcp count>0 does not hold"),
        (&["tcp count<1"], 1, "there are no samples of tcp: tcp count<1 holds, so this run has failed"),
    ] {
        for more in [&[][..], &["--aggregate"]] {
            let run = judged(&[RTT, more].concat(), conditions);
            assert_eq!(run.status, Some(status), "{conditions:?} {more:?}: {run}");
            assert!(last_line(&run).ends_with(words), "{conditions:?} {more:?}: {run}");
        }
    }
}

#[test]
fn what_became_of_conditions_is_in_the_last_object() {
    let run = judged(&["rtt", "-r", "-", "--format", "jsonl"], &["icmp p99>1us or dns p99>1us"]);
    assert_eq!(run.status, Some(1));
    let verdict = &of_type(&run.stdout, "rtt.status")[0]["fail_if"];
    assert_eq!(verdict["failed"], true);
    let [held, unknown] = &verdict["conditions"].as_array().unwrap()[..] else { panic!("{verdict}") };
    assert_eq!((&held["condition"], &held["of"]), (&"icmp p99>1us".into(), &"icmp".into()));
    assert_eq!((&held["count"], &held["holds"]), (&8.into(), &true.into()));
    assert!(held["value_ns"].as_u64().unwrap() > 1_000, "{held}");
    assert_eq!((&unknown["count"], &unknown["value_ns"], &unknown["holds"]), (&0.into(), &Value::Null, &Value::Null));

    let plain = judged(&["rtt", "-r", "-", "--format", "jsonl"], &[]);
    assert_eq!((plain.status, &object(plain.stdout.lines().last().unwrap())["fail_if"]), (Some(0), &Value::Null));
}

#[test]
fn responses_are_judged_by_the_figures_of_their_summary() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/one-direction.pcap.gz");
    let judged = |condition: &str| {
        let run = dwell(&["response", "-r", capture, "--format", "jsonl", "--fail-if", condition]);
        let verdict = of_type(&run.stdout, "response.status").pop().unwrap()["fail_if"].clone();
        (run, verdict)
    };
    let (good, verdict) = judged("max>1h or count<1");
    assert_eq!((good.status, &verdict["failed"]), (Some(0), &false.into()), "{}", good.stderr);
    let (bad, verdict) = judged("p50>1us");
    assert_eq!((bad.status, &verdict["failed"]), (Some(1), &true.into()), "{}", bad.stderr);
    let responses = verdict["conditions"][0]["count"].as_u64().unwrap();
    assert!(last_line(&bad).contains(&format!(" over {responses} responses: p50>1us holds")), "{}", bad.stderr);
    let (unknown, verdict) = judged("syn-ack p50>1us");
    assert_eq!((unknown.status, &verdict["failed"]), (Some(1), &true.into()), "{}", unknown.stderr);
}

#[test]
fn a_program_without_connections_fails_a_condition_but_keeps_its_own_failure() {
    let run = |program: &str| dwell(&["run", "--format", "jsonl", "--fail-if", "mean>50ms", "--", "sh", "-c", program]);
    let quiet = run("true");
    assert_eq!(quiet.status, Some(1), "{quiet}");
    assert!(last_line(&quiet).contains("there are no samples of sender: whether mean>50ms holds"), "{quiet}");
    assert_eq!(run("exit 7").status, Some(7));
}

#[test]
fn root_agents_judge_the_bytes_of_their_host_and_collectors_those_of_all_paths() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("fleet-judged");
    let judge = |condition| ["--format", "jsonl", "--fail-if", condition];
    let collector = office.collect(&pair.left, &judge("network count<1 or rx application count>0"));
    let agent = office.agent(&pair.left, "a", &judge("tx total count>0"));
    office.waits_for_agents(1);
    let (agent, collector) = (ended(agent, 0), ended(collector, 1));
    for (run, kind, failed, words) in [
        (&agent, "agent.status", false, "there are no bytes of tx total: tx total count>0 does not hold"),
        (
            &collector,
            "collect.status",
            true,
            "there are no bytes of network: network count<1 holds, so this run has failed",
        ),
    ] {
        assert!(run.stderr.contains(words), "{run}");
        let last = of_type(&run.stdout, kind).pop().unwrap();
        assert_eq!((&last["last"], &last["fail_if"]["failed"]), (&true.into(), &failed.into()), "{last}");
    }
}

#[test]
fn a_malformed_condition_is_refused_with_its_place() {
    for (verb, condition, words) in [
        (&["rtt", "-r", "-"][..], "p98>5ms", "at character 1: 'p98' is not a figure; the figures are count, mean, min"),
        (&["rtt", "-r", "-"], "udp p99>5ms", "at character 1: 'udp' is not a method; before a figure, write tcp, "),
        (&["response", "-r", "-"], "p99=5ms", "at character 4: compare with >, >=, < or <="),
        (&["stack"], "rx queueing p99>5ms", "at character 1: 'rx queueing' is not a segment"),
        (
            &["collect", "--listen", "127.0.0.1:0", "--store", "x"],
            "tx network p99>5ms",
            "at character 1: 'tx network' is not a segment",
        ),
        (&["agent", "--collector", "127.0.0.1:1"], "network p99>5ms", "at character 1: 'network' is not a segment"),
        (&["run"], "p99>5ms", "at character 1: 'p99' is not a figure; the figures are count, mean, max"),
    ] {
        let run = judged(verb, &[condition]);
        assert_eq!(run.status, Some(2), "{condition}: {run}");
        assert!(run.stderr.contains(words), "{condition}: {run}");
    }
}
