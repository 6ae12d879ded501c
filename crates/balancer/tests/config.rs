//! What a configuration means, and how its faults are reported.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::{os::unix::fs::PermissionsExt, path::Path, time::Duration};

use dwell_balancer::config::{CheckKind, Choices, Config, Estimator, Forward, MetricsSettings, PolicyName, Protocol};
use dwell_engine::balance::Sampling;
use proptest::prelude::*;

const GOOD: &str = r#"
interface = "eth0"

[[vip]]
name = "web"
address = "192.0.2.10"
port = 443
forward = "ipip"

[[vip.backend]]
address = "10.0.0.2"
"#;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("lb.toml")).map_err(|error| error.to_string())
}

/// The faults of the good configuration with a replacement.
fn faults_with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    parse(&text).expect_err(&text)
}

#[test]
fn missing_keys_have_their_defaults() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.interface, "eth0");
    assert_eq!(config.pin, Path::new("/sys/fs/bpf/dwell/lb-eth0"));
    assert_eq!(config.socket, Path::new("/run/dwell/lb.sock"));
    assert_eq!((config.interval, config.estimator), (Duration::from_secs(1), Estimator::Auto));
    assert_eq!((config.hash_seed, config.limits.connections), (None, 1_000_000));
    assert_eq!(config.metrics, MetricsSettings::default());
    let vip = &config.vips[0];
    assert_eq!(vip.key.to_string(), "192.0.2.10:443/tcp");
    assert_eq!((vip.policy, vip.forward), (PolicyName::Maglev, Forward::Ipip));
    assert_eq!((vip.table_size, vip.measure, vip.by_source), (65_537, None, false));
    assert_eq!(vip.check, None);
    assert_eq!(vip.latency.steering.alpha_high, 1.5);
    assert_eq!(vip.latency.steering.alpha_low, 1.2);
    assert_eq!(vip.latency.steering.steady, Duration::from_millis(1500));
    let backend = &vip.backends[0];
    assert_eq!((backend.name.as_str(), backend.weight), ("10.0.0.2", 1.0));
}

#[test]
fn connections_have_a_choice_where_their_backend_is_remembered_by_one_balancer_alone() {
    let choices = |keys: &str, of_vip: &str| {
        let text = GOOD.replacen("port = 443", &format!("port = 443\n{of_vip}"), 1);
        parse(&format!("{keys}\n{text}")).map(|config| config.vips[0].choices)
    };
    assert_eq!(choices("", ""), Ok(Choices::Of(1)));
    assert_eq!(choices("", "choices = 3"), Ok(Choices::Of(3)));
    assert_eq!(choices("", "choices = \"all\""), Ok(Choices::All));
    let latency = "policy = \"latency\"";
    assert_eq!(choices("", latency), Ok(Choices::All));
    assert_eq!(choices("hash_seed = 16", latency), Ok(Choices::Of(1)), "several balancers place alike");
    assert_eq!(choices("hash_seed = 16", "choices = 2"), Ok(Choices::Of(2)), "unless they are told to");
    let second = format!("{latency}\nsecond_chance = true");
    assert_eq!(choices("", &second), Ok(Choices::Of(1)));
    assert!(choices("", &format!("{second}\nchoices = 2")).unwrap_err().contains("vip.choices"));
    assert_eq!(choices("", &format!("{latency}\nhash = \"source\"")), Ok(Choices::Of(1)));
    for other in ["protocol = \"udp\"", "hash = \"source\""] {
        let error = choices("", &format!("{other}\nchoices = 2")).unwrap_err();
        assert!(error.contains("vip.choices") && error.contains("remove it"), "{error}");
    }
    let shared = "shared.endpoints = [\"https://10.0.0.5:2379\"]\nshared.name = \"lb1\"";
    assert_eq!(choices(shared, latency), Ok(Choices::Of(1)));
    for wrong in ["choices = 5", "choices = \"most\""] {
        assert!(choices("", wrong).unwrap_err().contains('4'), "{wrong}");
    }
}

#[test]
fn keys_are_read_and_a_vip_overrides_the_latency_of_all() {
    let config = parse(
        r#"
        interface = "eth1"
        interval = "500ms"
        estimator = "pirate"
        hash_seed = 0x10
        [limits]
        connections = 5_000
        [health]
        ramp = "3s"
        [latency]
        steady = "5s"
        cap = 0.25
        [[vip]]
        name = "all"
        address = "2001:db8::53"
        protocol = "tcp"
        port = "any"
        policy = "latency"
        forward = "gue"
        gue_port = 9000
        hash = "source"
        table_size = 127
        latency.steady = "2s"
        health = { kind = "udp", port = 53, send = "x", interval = "1s", timeout = "200ms", rise = 3, fall = 1 }
        backend = [ { address = "10.0.0.2", name = "a", weight = 2 }, { address = "2001:db8::2", weight = 0.5 } ]
        "#,
    )
    .unwrap();
    assert_eq!((config.interval, config.estimator), (Duration::from_millis(500), Estimator::Pirate));
    assert_eq!((config.hash_seed, config.limits.connections), (Some(16), 5000));
    assert_eq!(config.health.ramp, Duration::from_secs(3));
    let vip = &config.vips[0];
    assert_eq!(vip.key.to_string(), "[2001:db8::53]:any/tcp");
    assert_eq!(vip.key.protocol, Protocol::Tcp);
    assert_eq!((vip.forward, vip.by_source), (Forward::Gue(9000), true));
    assert_eq!(vip.measure, Some(Sampling::default()), "the policy latency needs measurements");
    assert_eq!((vip.latency.steering.steady, vip.latency.steering.cap), (Duration::from_secs(2), 0.25));
    let check = vip.check.as_ref().unwrap();
    assert_eq!(check.kind, CheckKind::Udp { send: "x".into() });
    assert_eq!((check.port, check.rise, check.fall), (53, 3, 1));
    assert_eq!(check.timeout, Duration::from_millis(200));
    assert_eq!((vip.backends[0].name.as_str(), vip.backends[0].weight), ("a", 2.0));
    assert_eq!(vip.backends[1].weight, 0.5);
}

#[test]
fn all_connections_are_measured_or_none_or_one_of_so_many() {
    let measured = |keys: &str| {
        let text = GOOD.replacen("port = 443", &format!("port = 443\n{keys}"), 1);
        parse(&text).unwrap().vips[0].measure.map(Sampling::connections)
    };
    assert_eq!(measured("measure = false"), None);
    assert_eq!(measured("measure = true"), Some(1));
    assert_eq!(measured("measure = \"1/8\""), Some(8));
    assert_eq!(measured("policy = \"latency\"\nmeasure = \"1/1024\""), Some(1024));
}

#[test]
fn faults_of_single_keys() {
    let mut faults = Vec::new();
    for (from, to) in [
        ("interface = \"eth0\"", ""),
        ("interface = \"eth0\"", "interface = 0"),
        ("interface = \"eth0\"", "interface = \"\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\nintervall = \"1s\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\nfrobnicate = 1"),
        ("interface = \"eth0\"", "interface = \"eth0\"\ninterval = 1"),
        ("interface = \"eth0\"", "interface = \"eth0\"\ninterval = \"soon\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\ninterval = \"1ms\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\nestimator = \"lag\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\nhash_seed = 431499865196"),
        ("interface = \"eth0\"", "interface = \"eth0\"\nlimits = 5"),
        ("interface = \"eth0\"", "interface = \"eth0\"\nlimits.connections = 2"),
        ("interface = \"eth0\"", "interface = \"eth0\"\nlimits.connections = 1.5"),
        ("interface = \"eth0\"", "interface = \"eth0\"\nmetrics.listen = \"here\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\nmetrics = {}"),
        ("interface = \"eth0\"", "interface = \"eth0\"\nmetrics.otlp = \"localhost:4318\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\nmetrics = { listen = \"[::1]:1\", otlp_headers = \"f\" }"),
        ("interface = \"eth0\"", "interface = \"eth0\"\nchain = \"/sys/fs/bpf/slots\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\nlatency.alpha_low = 2"),
        ("interface = \"eth0\"", "interface = \"eth0\"\nlatency.floor = 0"),
        ("interface = \"eth0\"", "interface = \"eth0\"\nshared.name = \"lb1\""),
        (
            "interface = \"eth0\"",
            "interface = \"eth0\"\nshared = { name = \"lb1\", endpoints = \"https://etcd:2379\" }",
        ),
        ("interface = \"eth0\"", "interface = \"eth0\"\nshared = { name = \"lb1\", endpoints = [] }"),
        ("interface = \"eth0\"", "interface = \"eth0\"\nshared = { name = \"lb1\", endpoints = [\"etcd:2379\"] }"),
        (
            "interface = \"eth0\"",
            "interface = \"eth0\"\nshared = { name = \"lb1\", endpoints = [\"https://me:x@etcd:1\"] }",
        ),
        (
            "interface = \"eth0\"",
            "interface = \"eth0\"\nshared = { name = \"lb1\", endpoints = [\"http://etcd:2379\"], ca = \"ca.pem\" }",
        ),
        ("interface = \"eth0\"", "interface = \"eth0\"\ntunnel.source4 = \"10.0.0.0/16\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\ntunnel.source4 = \"127.0.0.1\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\ntunnel.source4 = \"0.0.3.4\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\ntunnel.source4 = \"224.0.0.1\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\ntunnel.source6 = \"::1\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\ntunnel.source6 = \"fe80::1\""),
        ("interface = \"eth0\"", "interface = \"eth0\"\ntunnel.source6 = \"ff00::\""),
        ("name = \"web\"", ""),
        ("name = \"web\"", "name = \"a b\""),
        ("\"192.0.2.10\"", "\"www.example.com\""),
        ("\"192.0.2.10\"", "\"0.0.0.0\""),
        ("\"192.0.2.10\"", "\"224.0.0.1\""),
        ("\"192.0.2.10\"", "\"::1\""),
        ("\"192.0.2.10\"", "\"::ffff:192.0.2.10\""),
        ("port = 443", ""),
        ("port = 443", "port = 0"),
        ("port = 443", "port = \"all\""),
        ("port = 443", "port = 443\nprotocol = \"sctp\""),
        ("port = 443", "port = 443\npolicy = \"fastest\""),
        ("port = 443", "port = 443\npolicy = \"latency\"\nmeasure = false"),
        ("port = 443", "port = 443\nmeasure = 8"),
        ("port = 443", "port = 443\nmeasure = \"1/10\""),
        ("port = 443", "port = 443\nmeasure = \"1/2048\""),
        ("port = 443", "port = 443\nmeasure = \"eighth\""),
        ("port = 443", "port = 443\nprotocol = \"udp\"\nquic = true\nmeasure = \"1/8\""),
        ("port = 443", "port = 443\nquic = true"),
        ("port = 443", "port = 443\nprotocol = \"udp\"\npolicy = \"latency\""),
        ("port = 443", "port = 443\nprotocol = \"udp\"\nquic = true\npolicy = \"latency\""),
        ("port = 443", "port = 443\nprotocol = \"udp\"\nquic = true\nmeasure = true"),
        ("port = 443", "port = 443\ntable_size = 65536"),
        ("port = 443", "port = 443\ntable_size = 2"),
        ("port = 443", "port = 443\nhash = \"client\""),
        ("forward = \"ipip\"", ""),
        ("forward = \"ipip\"", "forward = \"nat\""),
        ("address = \"10.0.0.2\"", ""),
        ("address = \"10.0.0.2\"", "address = \"10.0.0.2\"\nweight = -1"),
        ("address = \"10.0.0.2\"", "address = \"10.0.0.2\"\nweight = \"heavy\""),
        ("address = \"10.0.0.2\"", "address = \"10.0.0.2\"\nname = \"10.0.0.9\""),
        ("[[vip.backend]]", "[vip.backend]"),
        ("port = 443", "port = 443\nzero_rtt.window = \"1m\""),
        ("[[vip]]", "[[vip]"),
    ] {
        faults.push(format!("{to:?}\n    {}", faults_with(from, to)));
    }
    insta::assert_snapshot!(faults.join("\n"));
}

#[test]
fn keys_without_effect_are_warned_of() {
    let keys = "port = 443\ngue_port = 6081\nlatency.floor = 0.1\nhealth = { kind = \"icmp\", port = 80 }";
    let text = GOOD.replace("port = 443", keys).replace("[[vip.backend]]", "[[vip.backend]]\nserver_id = 1");
    let config = parse(&text).unwrap();
    let keys: Vec<_> = config.warnings.iter().map(|warning| warning.key.as_str()).collect();
    assert_eq!(keys, ["vip.gue_port", "vip.latency", "vip.health.port", "vip.backend.server_id"]);
    insta::assert_snapshot!(config.warnings[0], @r#"lb.toml:8: vip.gue_port: it has no effect, as forward is not "gue"; remove it"#);
    assert_eq!(config.vips[0].check.as_ref().map(|check| check.port), Some(0));
    assert_eq!(parse(&text.replace("\"ipip\"", "\"gue\"\nmeasure = true")).unwrap().warnings.len(), 2);
}

#[test]
fn faults_of_checks() {
    let mut faults = Vec::new();
    for health in [
        "{}",
        "{ kind = \"smtp\" }",
        "{ kind = \"tcp\", interval = \"1s\", timeout = \"2s\" }",
        "{ kind = \"tcp\", rise = 0 }",
        "{ kind = \"http\", path = \"health\" }",
        "{ kind = \"http\", status = 700 }",
        "{ kind = \"http\", host = \"a b\" }",
        "{ kind = \"tcp\", path = \"/\" }",
        "{ kind = \"https\" }",
        "{ kind = \"https\", ca = \"nowhere.pem\" }",
        "{ kind = \"https\", ca = \"ca.pem\", any_certificate = true }",
        "{ kind = \"https\", any_certificate = true, tls_name = \"a b\" }",
    ] {
        let health = format!("port = 443\nhealth = {health}");
        faults.push(format!("{health:?}\n    {}", faults_with("port = 443", &health)));
    }
    let any = "port = \"any\"\nhealth = { kind = \"tcp\" }";
    faults.push(format!("{any:?}\n    {}", faults_with("port = 443", any)));
    insta::assert_snapshot!(faults.join("\n"));
}

#[test]
fn what_balancers_share_has_its_defaults_and_secrets_are_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let made = rcgen::generate_simple_self_signed(vec!["lb1".to_owned()]).unwrap();
    file("ca.pem", &made.cert.pem(), 0o644);
    file("lb.key", &made.signing_key.serialize_pem(), 0o600);
    file("password", "secret\n", 0o640);
    let parse = |shared: &str| {
        let text = format!("{GOOD}\n[shared]\nendpoints = [\"https://etcd:2379\"]\n{shared}");
        Config::parse(&text, &folder.path().join("lb.toml")).map_err(|error| error.to_string())
    };
    let shared = parse("name = \"lb1\"").unwrap().shared.unwrap();
    assert_eq!((shared.prefix.as_str(), shared.name.as_str()), ("/dwell/lb/", "lb1"));
    assert_eq!((shared.authorities, shared.identity, shared.login), (None, None, None));
    assert!(!parse("").unwrap().shared.unwrap().name.is_empty(), "the host has a name");
    let all = "name = \"lb1\"\nprefix = \"/a\"\nca = \"ca.pem\"\ncertificate = \"ca.pem\"\nkey = \"lb.key\"\n\
               user = \"me\"\npassword_file = \"password\"";
    let config = parse(all).unwrap();
    let shared = config.shared.as_ref().unwrap();
    assert_eq!((shared.prefix.as_str(), shared.authorities.as_ref().map(Vec::len)), ("/a/", Some(1)));
    assert_eq!(shared.login.as_ref().unwrap().1.0, "secret");
    let shown = format!("{config:?}");
    assert!(!shown.contains("secret") && !shown.contains("PRIVATE"), "{shown}");
    file("open.key", &made.signing_key.serialize_pem(), 0o644);
    file("open", "secret", 0o604);
    for (keys, fault) in [
        ("certificate = \"ca.pem\"", "shared.key: it is missing, but certificate is there; write key too"),
        ("key = \"lb.key\"", "shared.certificate: it is missing, but key is there"),
        ("certificate = \"ca.pem\"\nkey = \"open.key\"", "can reach"),
        ("certificate = \"lb.key\"\nkey = \"lb.key\"", "contains no certificate"),
        ("certificate = \"ca.pem\"\nkey = \"password\"", "contains no key"),
        ("ca = \"nowhere\"", "shared.ca: "),
        ("user = \"me\"", "shared.password_file: it is missing"),
        ("user = \"me\"\npassword_file = \"open\"", "chmod 600 it"),
        ("name = \"a b\"", "shared.name: "),
        ("prefix = \"a b\"", "shared.prefix: it is not a prefix of keys"),
    ] {
        let faults = parse(keys).unwrap_err();
        assert!(faults.contains(fault) && !faults.contains("secret"), "{keys}: {faults}");
    }
}

/// The text of a VIP.
fn vip(name: &str, rest: &str) -> String {
    format!("[[vip]]\nname = \"{name}\"\nforward = \"l2\"\n{rest}\n")
}

#[test]
fn faults_of_several_tables_together() {
    let text = [
        "interface = \"eth0\"\nlimits = { vips = 3, reals = 2 }\n".to_owned(),
        vip("a", "address = \"192.0.2.1\"\nport = 80"),
        vip("b", "address = \"192.0.2.1\"\nport = 80"),
        vip("c", "address = \"192.0.2.1\"\nport = \"any\""),
        vip("a", "address = \"192.0.2.2\"\nport = \"any\"\nbackend = [{ address = \"192.0.2.1\" }]"),
        vip("e", "address = \"192.0.2.2\"\nport = 1"),
        vip(
            "f",
            "address = \"192.0.2.3\"\nport = 1\ntable_size = 3\n\
             backend = [{ address = \"10.0.0.1\" }, { address = \"10.0.0.1\", name = \"x\" },\n\
             { address = \"10.0.0.2\", name = \"x\" }, { address = \"10.0.0.3\" }, { address = \"10.0.0.4\" }]",
        ),
    ];
    insta::assert_snapshot!(parse(&text.concat()).unwrap_err());
}

#[test]
fn one_address_may_have_several_ports_and_protocols() {
    let text = [
        "interface = \"eth0\"\n".to_owned(),
        vip("a", "address = \"192.0.2.1\"\nport = 80"),
        vip("b", "address = \"192.0.2.1\"\nport = 81"),
        vip("c", "address = \"192.0.2.1\"\nport = \"any\"\nprotocol = \"udp\""),
    ];
    assert_eq!(parse(&text.concat()).unwrap().vips.len(), 3);
}

#[test]
fn all_faults_are_reported_at_once_in_the_order_of_the_file() {
    let text = "interface = 1\ninterval = 2\n[[vip]]\nname = 3\n[[vip]]\nport = 4\n";
    let faults = parse(text).unwrap_err();
    let lines: Vec<_> = faults.lines().map(|line| line.split(':').nth(1).unwrap()).collect();
    let mut sorted = lines.clone();
    sorted.sort_unstable();
    assert_eq!(lines, sorted, "{faults}");
    assert!(lines.len() >= 8, "{faults}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::read(Path::new("/nowhere/lb.toml")).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("cannot read the configuration '/nowhere/lb.toml': "), "{message}");
}

/// The good configuration, or the example with all keys, with some lines removed, doubled or given another value.
fn damaged() -> impl Strategy<Value = String> {
    let example = include_str!("../../../examples/lb.toml").replace("\n# ", "\n");
    let lines: Vec<String> = example.lines().chain(GOOD.lines()).map(str::to_owned).collect();
    let value = prop_oneof![
        Just("-1".to_owned()),
        Just("1e300".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("nan".to_owned()),
        Just("\"\"".to_owned()),
        Just("\"::\"".to_owned()),
        Just("\"9999999h\"".to_owned()),
        Just("[]".to_owned()),
        Just("{ a = 1 }".to_owned()),
        "[ -~\\n\u{e9}]{0,12}",
    ];
    let change = (any::<prop::sample::Index>(), 0..4u8, value);
    prop::collection::vec(change, 1..8).prop_map(move |changes| {
        let mut lines = lines.clone();
        for (at, kind, value) in changes {
            let at = at.index(lines.len());
            match kind {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[at].clone()),
                2 => lines[at] = value,
                _ => {
                    let key = lines[at].split('=').next().unwrap_or_default();
                    lines[at] = format!("{key}= {value}");
                }
            }
        }
        lines.join("\n")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_is_accepted_or_refused_with_a_location(text in damaged()) {
        if let Err(faults) = parse(&text) {
            prop_assert!(faults.contains("lb.toml"), "{faults}");
        }
    }
}
