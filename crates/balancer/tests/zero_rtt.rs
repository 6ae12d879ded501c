//! The policy `zero-rtt`: its configuration.

use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::Path};

use dwell_balancer::config::{Config, ConfigError, PolicyName};
use dwell_engine::balance::HeavyScope;

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

fn vip(head: &str, zero: &str, backends: &str) -> String {
    format!(
        "interface = \"eth0\"\n[[vip]]\nname = \"h3\"\naddress = \"198.51.100.1\"\nport = 443\n\
         forward = \"l2\"\npolicy = \"zero-rtt\"\n{head}\nbackend = [{backends}]\n{zero}\n"
    )
}

fn zero(rest: &str) -> String {
    format!("[vip.zero_rtt]\nlayout = [{{ rotation = 0, key = \"{KEY}\" }}]\n{rest}")
}

const TWO: &str = "{ address = \"10.0.0.2\", server_id = 1 }, { address = \"10.0.0.3\", server_id = 0xbeef }";
const UDP: &str = "protocol = \"udp\"";

fn parse(text: &str) -> Result<Config, Vec<String>> {
    Config::parse(text, Path::new("lb.toml")).map_err(|error| match error {
        ConfigError::Faults(faults) => faults.iter().map(ToString::to_string).collect(),
        other => vec![other.to_string()],
    })
}

fn faults(text: &str) -> String {
    parse(text).expect_err("it is wrong").join("\n")
}

#[test]
fn keys_are_read() {
    let text = vip(
        UDP,
        &zero("percentile = 0.5\nalpha = 2\nrtt = \"30ms\"\nheavy = \"any\"\nunroutable = \"hash\"\nheavy_most = 7"),
        TWO,
    );
    let config = parse(&text).expect("it is right");
    let vip = &config.vips[0];
    assert_eq!((vip.policy, vip.quic, vip.measure), (PolicyName::ZeroRtt, true, None));
    let ids: Vec<_> = vip.backends.iter().map(|backend| backend.server_id).collect();
    assert_eq!(ids, [Some(1), Some(0xbeef)]);
    let zero = vip.zero_rtt.as_ref().expect("it has the policy");
    assert!(zero.heavy_scope == HeavyScope::Any && zero.is_unroutable_hashed);
    assert_eq!(zero.heavy.most, 7);
    assert_eq!(zero.overload.percentile, 0.5);
    assert_eq!(zero.overload.margin.as_millis(), 60);
    assert!(zero.layouts[0].is_stamped());
    assert!(!format!("{config:?}").contains("10, 11, 12"), "the key is not shown");
}

#[test]
fn a_load_lives_longer_than_open_connections_take_to_renew_it() {
    let text = |more| vip(UDP, &zero(more), TWO);
    let stale = |text: &str| {
        let config = parse(text).expect("it is right");
        let zero = config.vips[0].zero_rtt.clone().expect("it has the policy");
        zero.overload.stale.expect("a load may be too old").as_secs()
    };
    let renewed_s = 2 * 40;
    assert!((renewed_s + 10..=renewed_s + 40).contains(&stale(&text(""))));
    assert_eq!(stale(&text("load_lifetime = \"7s\"")), 7);
}

#[test]
fn a_key_is_read_from_a_file_next_to_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("cid.key");
    let readable_by = |mode| std::fs::set_permissions(&key, Permissions::from_mode(mode)).expect("it is ours");
    std::fs::write(&key, format!("{KEY}\n")).expect("a file");
    readable_by(0o640);
    let zero = "[vip.zero_rtt]\nlayout = [{ rotation = 3, key_file = \"cid.key\" }]\n";
    let text = vip(UDP, zero, TWO);
    let config = Config::parse(&text, &folder.path().join("lb.toml")).expect("it is right");
    let other = parse(&vip(UDP, &format!("[vip.zero_rtt]\nlayout = [{{ rotation = 3, key = \"{KEY}\" }}]"), TWO));
    assert_eq!(config.vips[0].zero_rtt, other.expect("it is right").vips[0].zero_rtt);
    let missing = faults(&text);
    assert!(missing.contains("vip.zero_rtt.layout.key_file: cannot read 'cid.key'"), "{missing}");
    readable_by(0o644);
    let exposed = Config::parse(&text, &folder.path().join("lb.toml")).expect_err("others have the key").to_string();
    let problem = format!("key_file: every user of this host can reach the key in '{0}'; chmod 600 {0}", key.display());
    assert!(exposed.contains(&problem), "{exposed}");
}

#[test]
fn each_fault_names_line_key_and_remedy() {
    let cases = [
        (vip("", &zero(""), TWO), "vip.policy: QUIC does not run over TCP; write protocol"),
        (vip(UDP, "", TWO), "vip.zero_rtt: the policy \"zero-rtt\" needs the key"),
        (vip(UDP, "[vip.zero_rtt]\n", TWO), "vip.zero_rtt.layout: there is no layout"),
        (
            vip(UDP, &zero(""), "{ address = \"10.0.0.2\" }"),
            "vip.backend.server_id: backend '10.0.0.2' has no server_id",
        ),
        (
            vip(UDP, &zero(""), "{ address = \"10.0.0.2\", server_id = 70000 }"),
            "the server_id 70000 of backend '10.0.0.2' does not fit into 2 octets",
        ),
        (
            vip(UDP, &zero(""), "{ address = \"10.0.0.2\", server_id = 1 }, { address = \"10.0.0.3\", server_id = 1 }"),
            "both have the server_id 1",
        ),
        (
            vip("protocol = \"udp\"\nmeasure = true", &zero(""), TWO),
            "vip.measure: packets that are routed by connection ID are not measured",
        ),
        (
            vip(UDP, "[vip.zero_rtt]\nlayout = [{ rotation = 0, key = \"1234\" }]", TWO),
            "it is not a key; write 32 hexadecimal digits",
        ),
        (
            vip(UDP, "[vip.zero_rtt]\nlayout = [{ rotation = 0 }]", TWO),
            "the encryption of connection IDs is not configured",
        ),
        (
            vip(UDP, "[vip.zero_rtt]\nlayout = [{ rotation = 7, clear = true }]", TWO),
            "vip.zero_rtt.layout.rotation: 7 is out of range",
        ),
        (
            vip(
                UDP,
                &format!(
                    "[vip.zero_rtt]\nlayout = [{{ rotation = 1, key = \"{KEY}\" }}, {{ rotation = 1, clear = true }}]"
                ),
                TWO,
            ),
            "another layout has the rotation 1",
        ),
        (
            vip(
                UDP,
                "[vip.zero_rtt]\nlayout = [{ rotation = 1, clear = true, server_id_bytes = 15, nonce_bytes = 8 }]",
                TWO,
            ),
            "must have at most 19",
        ),
        (vip(UDP, &zero("percentile = 2"), TWO), "vip.zero_rtt.percentile: 2 is out of range"),
        (vip(UDP, &zero("heavi = \"any\""), TWO), "heavi"),
    ];
    for (text, wanted) in cases {
        let faults = faults(&text);
        assert!(faults.contains(wanted), "wanted {wanted:?}, found:\n{faults}");
        assert!(faults.starts_with("lb.toml:"), "{faults}");
        assert!(!faults.contains(KEY), "a key is never shown: {faults}");
    }
}
