//! Agents that get their keys from the collector.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::{
    fleet::{pair, patiently},
    support::{DWELL, dwell, skipped, spawn},
};

#[test]
fn root_an_agent_gets_its_key_by_a_token_and_keeps_it() {
    if skipped() {
        return;
    }
    let (pair, office) = pair("enrolment");
    let (key, list, own) = (office.path("key"), office.path("agents"), office.path("own.key"));
    let (key, list, own) = (key.to_str().unwrap(), list.to_str().unwrap(), own.to_str().unwrap());
    let made = dwell(&["collect", "--new-token", "a", "--key-file", key, "--agents", list]);
    assert_eq!((made.status, made.stderr.as_str(), made.stdout.lines().count()), (Some(0), "", 1), "{made}");
    let token = office.path("token");
    fs::write(&token, &made.stdout).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let token = token.to_str().unwrap();
    let collector = office.collect(&pair.left, &["--agents", list]);
    let at = office.at();
    let agent = ["agent", "--collector", &at, "--key-file", own, "--token-file", token, "--buffer-dir", "none"];
    let first = spawn(&pair.right, DWELL, &agent);
    office.waits_for_agents(1);
    assert_eq!(office.number("SELECT count(*) FROM host WHERE name = 'a'"), Some(1));
    assert_eq!(fs::metadata(own).unwrap().permissions().mode() & 0o777, 0o600);
    let run = first.interrupt();
    assert!(run.stderr.contains("the collector has made the key of a"), "{run}");
    let key_text = fs::read_to_string(own).unwrap();
    // The token is spent, and not asked for again.
    let again = spawn(&pair.right, DWELL, &agent);
    patiently("the agent is connected again", || office.number("SELECT count(*) FROM run") >= Some(2));
    again.interrupt();
    assert_eq!(fs::read_to_string(own).unwrap(), key_text);
    let thief = office.path("thief.key");
    let thief = spawn(
        &pair.left,
        DWELL,
        &["agent", "--collector", &at, "--key-file", thief.to_str().unwrap(), "--token-file", token],
    );
    let thief = thief.end();
    assert_eq!(thief.status, Some(3), "{thief}");
    assert!(thief.stderr.contains("the token is not valid: it was used before"), "{thief}");
    let run = collector.interrupt();
    assert!(run.stderr.contains("a has its key, at "), "{run}");
}
