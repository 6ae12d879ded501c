//! Verbs that need no running balancer.

use crate::support::dwell;

#[test]
fn all_faults_of_a_configuration_are_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.toml");
    std::fs::write(&path, "interfac = 1\n[[vip]]\nname = \"a\"\n").unwrap();
    let path = path.display().to_string();
    for verb in ["check", "run"] {
        let run = dwell(&["lb", verb, &path]);
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run}");
        let faults = run.stderr.replace(&path, "lb.toml");
        insta::assert_snapshot!("faults", faults);
    }
}

#[test]
fn a_missing_balancer_is_reported_with_a_remedy() {
    for verb in [&["status"][..], &["reload"], &["drain", "a"], &["top"], &["weight", "a", "1"]] {
        let run = dwell(&[&["lb"], verb, &["--socket", "/nowhere/lb.sock"]].concat());
        assert_eq!((run.status, run.stdout.as_str()), (Some(3), ""), "{run}");
        assert!(run.stderr.contains("is `dwell lb run` running?"), "{run}");
    }
}

#[test]
fn a_store_that_is_none_is_refused_before_anything_is_attached() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (config, store) = (path("lb.toml"), path("letter"));
    let text = format!(
        "interface = \"lo\"\napi.socket = \"{}\"\n[[vip]]\nname = \"web\"\naddress = \"192.0.2.1\"\nport = 80\n\
         forward = \"l2\"\nbackend = [{{ address = \"240.0.0.1\" }}]\n",
        path("lb.sock")
    );
    std::fs::write(&config, text).unwrap();
    std::fs::write(&store, "Dear Sir or Madam, ".repeat(100)).unwrap();
    let run = dwell(&["lb", "run", &config, "--store", &store]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run}");
    assert!(run.stderr.contains("is not a store of dwell: name another file"), "{run}");
}

#[test]
fn help_of_each_verb() {
    let verbs =
        ["run", "check", "reload", "status", "drain", "add", "remove", "weight", "where", "top", "detach", "decap"];
    let mut all = vec![dwell(&["lb", "--help"])];
    all.extend(verbs.iter().map(|verb| dwell(&["lb", verb, "--help"])));
    for help in &all {
        assert_eq!((help.status, help.stderr.as_str()), (Some(0), ""), "{help}");
        for line in help.stdout.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
    let text: Vec<_> = all.into_iter().map(|help| help.stdout).collect();
    insta::assert_snapshot!(text.join("\n----\n"));
}

#[test]
fn a_check_warns_of_what_cannot_work_and_not_of_neighbours_that_nobody_has_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.toml").display().to_string();
    let check = |pin: &str, address: &str| {
        let text = format!(
            "interface = \"lo\"\npin = \"{pin}\"\n[[vip]]\nname = \"web\"\naddress = \"{address}\"\nport = 80\nforward = \"l2\"\n\
             backend = [{{ address = \"198.51.100.1\", weight = 1e-9 }}, {{ address = \"198.51.100.2\" }}]\n"
        );
        std::fs::write(&path, text).unwrap();
        dwell(&["lb", "check", &path]).stdout
    };
    let pinned = folder.path().join("pin").display().to_string();
    let text = check(&pinned, "192.0.2.1");
    assert!(text.contains("198.51.100.1: weight 0.000000001, less than 0.1 % of new connections"), "{text}");
    assert!(text.contains("the weight of '198.51.100.1' is next to nothing: it gets about one in 65537 new"), "{text}");
    assert!(text.contains("is not in a BPF file system"), "{text}");
    assert!(!text.contains("MAC address") && !text.contains("answer its health checks to themselves"), "{text}");
    let text = check("pins", "192.0.2.1");
    assert!(text.contains("pin 'pins' depends on the folder in which dwell is started"), "{text}");
}

#[test]
fn a_check_shows_what_a_configuration_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.toml");
    let text = "interface = \"lo\"\nlimits.connections = 10_000\n[[vip]]\nname = \"web\"\naddress = \"192.0.2.1\"\n\
                port = 80\nforward = \"l2\"\nhealth = { kind = \"http\", port = 8080 }\ntable_size = 101\n\
                backend = [{ address = \"240.0.0.1\", name = \"a\", weight = 3 }, { address = \"240.0.0.2\" }]\n\
                [[vip]]\nname = \"none\"\naddress = \"2001:db8::1\"\nport = \"any\"\nforward = \"gue\"\nprotocol = \"udp\"\n";
    std::fs::write(&path, text).unwrap();
    let run = dwell(&["lb", "check", &path.display().to_string()]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    // Whether there is a route depends on the host.
    let lines = run.stdout.lines().filter(|line| !line.contains("240.0.0.") || !line.starts_with("warning"));
    let lines: Vec<_> = lines.collect();
    insta::assert_snapshot!(lines.join("\n"));
}
