//! `dwell agent --all-namespaces`: an agent that follows the connections of containers beside its own.

use crate::{
    fleet::{ended, pair, patiently},
    stack::SERVER,
    stack_namespaces::Chat,
    support::{Pair, skipped},
};

/// No other test's: the connections of all namespaces are followed.
const PORT: u16 = 5213;

#[test]
fn root_an_agent_reports_all_namespaces_of_its_host_and_not_its_own_connection() {
    if skipped() {
        return;
    }
    // The agent is on the right. Its connection to the collector crosses two namespaces that it watches.
    let (hosts, office) = pair("fleet-all");
    let collector = office.collect(&hosts.left, &[]);
    let wanted = format!("port {PORT} or port 4790");
    let agent = office.agent_of(&hosts.right, "a", &["--all-namespaces", "--filter", &wanted]);
    let containers = ["fleet-all-a", "fleet-all-b"].map(Pair::start);
    let mut chats = Vec::new();
    for (container, messages) in containers.iter().zip([30, 50]) {
        chats.push((Chat::new(&container.left, &container.right, &SERVER.to_string(), PORT), messages));
        chats.push((Chat::new(&container.left, &container.left, "127.0.0.1", PORT), messages + 5));
    }
    chats.iter_mut().for_each(|(chat, messages)| chat.send(*messages));
    let of_loopback = "SELECT ifnull(sum(count), 0) FROM paths
        WHERE src = '127.0.0.1' AND segment = 'end-to-end' AND tx_host = 'a' AND rx_host = 'a'";
    patiently("loopback is joined", || office.number(of_loopback) >= Some((35 + 55) * 5));
    ended(agent, 0);
    ended(collector, 0);
    // A kernel may miss an event now and then.
    let nearly = |sql: &str, bytes: i64| {
        let count = office.number(sql).unwrap_or(0);
        assert!((bytes / 2..=bytes).contains(&count), "{count} of {bytes}: {sql}");
    };
    nearly(of_loopback, (35 + 55) * 10);
    for (container, bytes) in containers.iter().zip([300, 500]) {
        let of = |src: &str, direction: &str, namespace: &str| {
            format!(
                "SELECT sum(count) FROM intervals WHERE segment = 'total' AND NOT retransmitted
                    AND src = '{src}' AND direction = '{direction}' AND namespace = '{namespace}'"
            )
        };
        nearly(&of("10.78.0.1", "tx", container.left.name()), bytes);
        nearly(&of("10.78.0.1", "rx", container.right.name()), bytes);
        nearly(&of("127.0.0.1", "tx", container.left.name()), bytes + 50);
        nearly(&of("127.0.0.1", "rx", container.left.name()), bytes + 50);
    }
    // Bytes of the same numbers that two containers send at once are in no path, and so not in a wrong one.
    let joined = "SELECT sum(count) FROM paths WHERE src = '10.78.0.1' AND segment = 'end-to-end' AND tx_host = 'a'";
    let ambiguous = "SELECT max(value) FROM counter WHERE name = 'ambiguous'";
    let joined = office.number(joined).unwrap_or(0) + 2 * office.number(ambiguous).unwrap_or(0);
    assert!((400..=800).contains(&joined), "{joined}");
    let own = "SELECT count(*) FROM intervals WHERE sport = 4790 OR dport = 4790";
    assert_eq!(office.number(own), Some(0), "the agent's own connection");
}
