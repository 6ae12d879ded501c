//! Two balancers that agree on weights through etcd. Each has a client and servers of its own, at the same addresses, so
//! that they see different traffic of the same VIP.

use std::{
    cell::RefCell, net::TcpStream, os::unix::fs::PermissionsExt, sync::atomic::Ordering, thread, time::Duration,
};

use dwell_testbed::{Namespace, skip::lacks_program};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    scene::{Scene, ask},
    support::{Process, eventually, ip, skipped, spawn, tool, tool_here},
    traffic::events,
};

/// A server of etcd to which each balancer has a link of its own.
pub struct Etcd {
    space: Namespace,
    folder: tempfile::TempDir,
    run: RefCell<Option<Process>>,
}

/// The store's address at the link of a balancer, from 1.
pub fn store(link: usize) -> String {
    format!("10.90.{link}.1")
}

impl Etcd {
    pub fn new(name: &str, scenes: &[&Scene]) -> Etcd {
        let etcd = Etcd {
            space: Namespace::create(&format!("lb-{name}-etcd")).unwrap(),
            folder: tempfile::tempdir().unwrap(),
            run: RefCell::default(),
        };
        for (link, scene) in (1..).zip(scenes) {
            let there = scene.balancer.name();
            ip(
                &etcd.space,
                &format!(
                    "link add lb{link} type veth peer name store netns {there}\n\
                     addr add {}/24 dev lb{link}\nlink set lb{link} up\n",
                    store(link)
                ),
            );
            ip(&scene.balancer, &format!("addr add 10.90.{link}.2/24 dev store\nlink set store up\n"));
        }
        etcd
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Makes an authority, and certificates of the server and of the balancers.
    fn certify(&self) {
        let configuration = self.path("openssl.cnf");
        let text = format!(
            "[req]\ndistinguished_name = name\n[name]\n\
             [ca]\nbasicConstraints = critical,CA:TRUE\n\
             [server]\nbasicConstraints = critical,CA:FALSE\nextendedKeyUsage = serverAuth,clientAuth\n\
             subjectAltName = IP:{},IP:{}\n\
             [client]\nbasicConstraints = critical,CA:FALSE\nextendedKeyUsage = clientAuth\n",
            store(1),
            store(2)
        );
        std::fs::write(&configuration, text).unwrap();
        for name in ["ca", "server", "client"] {
            let (certificate, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
            let fixed = format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} -extensions {name}"
            );
            let mut arguments: Vec<&str> = fixed.split(' ').collect();
            arguments.extend(["-config", &configuration, "-out", &certificate, "-keyout", &key]);
            let (ca, ca_key) = (self.path("ca.pem"), self.path("ca.key"));
            if name != "ca" {
                arguments.extend(["-CA", &ca, "-CAkey", &ca_key]);
            }
            tool_here("openssl", &arguments);
        }
    }

    /// Starts it with TLS for whoever has a certificate.
    fn start(&self) {
        let [certificate, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.path(name));
        self.run_with(&[
            "--listen-client-urls=https://0.0.0.0:2379",
            "--advertise-client-urls=https://10.90.1.1:2379",
            &format!("--cert-file={certificate}"),
            &format!("--key-file={key}"),
            &format!("--trusted-ca-file={ca}"),
            "--client-cert-auth",
        ]);
    }

    /// Starts it without TLS, and waits until it answers.
    pub fn start_in_clear(&self) {
        self.run_with(&["--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://10.90.1.1:2379"]);
        let listens = || self.space.enter(|| TcpStream::connect("127.0.0.1:2379").is_ok()).unwrap();
        eventually("the store listens", listens);
    }

    fn run_with(&self, options: &[&str]) {
        ip(&self.space, "link set lo up\n");
        let data = format!("--data-dir={}", self.path("data"));
        let own = [
            data.as_str(),
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=default=http://127.0.0.1:2380",
            // What it writes survives the process, which is all that these tests end.
            "--unsafe-no-fsync",
        ];
        *self.run.borrow_mut() = Some(spawn(&self.space, "etcd", &[&own, options].concat()));
    }

    /// Sends a request to its JSON gateway, without TLS.
    fn ask(&self, path: &str, body: &str) {
        let url = format!("http://127.0.0.1:2379/v3/{path}");
        tool(&self.space, "curl", &["--silent", "--fail", "--show-error", "--data", body, &url]);
    }

    fn stop(&self) {
        let process = self.run.take().unwrap();
        process.signal(Signal::SIGTERM);
        process.end();
    }

    /// The keys of `[shared]` for a balancer at a link.
    fn keys(&self, link: usize, name: &str) -> String {
        format!(
            "[shared]\nname = \"{name}\"\nendpoints = [\"https://{}:2379\"]\nca = \"{}\"\ncertificate = \"{}\"\nkey = \"{}\"\n",
            store(link),
            self.path("ca.pem"),
            self.path("client.pem"),
            self.path("client.key"),
        )
    }
}

/// What a status says of the other balancers.
fn shared(scene: &Scene) -> Value {
    scene.status()["shared"].clone()
}

/// Whether the balancers see each other and one leads.
fn are_together(scenes: [&Scene; 2]) -> bool {
    let seen = scenes.map(shared);
    let names = serde_json::json!(["a", "b"]);
    seen.iter().all(|seen| seen["members"] == names && seen["problem"].is_null() && !seen["leader"].is_null())
        && seen[0]["leader"] == seen[1]["leader"]
}

/// Returns the number of the set and the hash of the table that both have, once they have the same set.
fn same_table(scenes: [&Scene; 2]) -> (u64, String) {
    let mut same = None;
    eventually("both have the same set", || {
        let of = |scene: &Scene| {
            let status = scene.status();
            (status["shared"]["set"].as_u64(), status["vips"][0]["table_hash"].as_str().map(str::to_owned))
        };
        let [one, other] = scenes.map(of);
        if one.0.is_some() && one.0 == other.0 {
            assert_eq!(one.1, other.1, "equal sets make equal tables");
            same = one.0.zip(one.1);
        }
        same.is_some()
    });
    same.unwrap()
}

pub fn share(scene: &Scene, server: usize) -> f64 {
    scene.backend(server)["share"].as_f64().unwrap()
}

#[test]
fn root_two_balancers_agree_on_weights_through_etcd_and_each_goes_on_without_it() {
    if skipped() || lacks_program("etcd") {
        return;
    }
    let [one, two] = [Scene::new("shared1", 3), Scene::new("shared2", 3)];
    let both = [&one, &two];
    let etcd = Etcd::new("shared", &both);
    etcd.certify();
    etcd.start();
    let vip = "policy = \"latency\"\nlatency = { rate = 0.5, cap = 1.0, floor = 0.1, regress = 0.5 }\n\
               health = { kind = \"tcp\", interval = \"100ms\", timeout = \"100ms\" }";
    for (link, (scene, name)) in (1..).zip([(&one, "a"), (&two, "b")]) {
        let top = format!("interval = \"200ms\"\nhealth.ramp = \"0s\"\n{}", etcd.keys(link, name));
        scene.configure(&top, vip, &[0, 1, 2]);
        let at = format!("{}:2379", store(link));
        eventually("the store listens", || scene.balancer.enter(|| TcpStream::connect(&at).is_ok()).unwrap());
        scene.run();
    }
    eventually("they see each other", || are_together(both));
    let choices: Vec<_> = both.map(|scene| scene.ok(&["status"])).into();
    assert!(choices[0].contains("a with b: ") && choices[1].contains("b with a: "), "{choices:?}");

    // Only the second has a slow server, and the first hardly any traffic.
    two.servers[2].delay_ms.store(40, Ordering::Relaxed);
    let loads = [one.load(4), two.load(45)];
    loads.iter().for_each(|load| load.go_on());
    eventually("the first avoids what is slow at the second", || share(&one, 2) < 0.167);
    for _ in 0..5 {
        same_table(both);
    }
    let leader = shared(&one)["leader"].as_str().unwrap().to_owned();
    let (leading, following) = if leader == "a" { (&one, &two) } else { (&two, &one) };
    let backend = following.backend(2);
    assert_eq!(backend["reason"], "shared", "{backend}");

    following.ok(&["drain", "s0"]);
    eventually("a drain at one is one at both", || both.iter().all(|scene| share(scene, 0) == 0.0));
    let [leads, follows] = if leader == "a" { ["a", "b"] } else { ["b", "a"] };
    eventually("both say where it was drained", || {
        let backend = leading.backend(0);
        backend["phase"] == "draining" && backend["explanation"] == format!("drained at {follows}")
    });
    let undone = leading.lb(&["drain", "s0", "--undo"]);
    let warning = format!("'s0' is drained at {follows}, which counts for all: undo it there");
    assert!(undone.stdout == "nothing to change\n" && undone.stderr.contains(&warning), "{undone}");
    let text = following.ok(&["status"]);
    assert!(text.contains(&format!("by this balancer alone: ask {leads} too")), "{text}");
    following.ok(&["drain", "s0", "--undo"]);
    eventually("so is its end", || both.iter().all(|scene| share(scene, 0) > 0.0));

    // The leader dies. The other goes on, and leads.
    let (before, _) = same_table(both);
    leading.kill();
    eventually("the other leads", || {
        let shared = shared(following);
        shared["leader"] == *if leader == "a" { "b" } else { "a" }
            && shared["members"].as_array().map(Vec::len) == Some(1)
    });
    following.servers[2].delay_ms.store(0, Ordering::Relaxed);
    following.servers[1].delay_ms.store(40, Ordering::Relaxed);
    let alone = following.load(30);
    eventually("weights move on", || shared(following)["set"].as_u64() > Some(before) && share(following, 1) < 0.2);
    assert_eq!(alone.end(), [""; 0]);
    leading.run();
    eventually("they see each other again", || are_together(both));
    same_table(both);
    loads.iter().for_each(|load| load.go_on());

    // Without the store both keep the last table, and say so.
    for load in loads {
        assert_eq!(load.end(), [""; 0]);
    }
    eventually("weights come back", || both.iter().all(|scene| (0..3).all(|server| share(scene, server) > 0.2)));
    // A set that is written in the last moment of the store may reach one of them alone.
    eventually("weights rest", || {
        let before = same_table(both);
        thread::sleep(Duration::from_secs(2));
        same_table(both) == before
    });
    etcd.stop();
    eventually("both say that it is away", || both.iter().all(|scene| !shared(scene)["problem"].is_null()));
    let tables = both.map(|scene| scene.status()["vips"][0]["table_hash"].clone());
    for scene in both {
        let status = scene.status();
        let warnings = status["warnings"].to_string();
        assert!(
            warnings.contains("the store of [shared] is away") && warnings.contains("of weights stays"),
            "{warnings}"
        );
        assert!(scene.ok(&["status"]).contains("THE STORE IS AWAY"));
    }
    let sets = both.map(|scene| shared(scene)["set"].as_u64().unwrap());
    match sets[0].abs_diff(sets[1]) {
        0 => assert_eq!(tables[0], tables[1]),
        // The last one reached one of them alone.
        apart => assert_eq!(apart, 1, "{sets:?}"),
    }
    // What its own checks find down gets nothing.
    assert_eq!(both.map(|scene| scene.spread(30).len()), [3, 3]);
    one.servers[0].die();
    eventually("it is down", || share(&one, 0) == 0.0);
    assert_eq!(one.spread(40).get(&0), None);
    assert!(two.spread(60).contains_key(&0), "the other sees nothing of that");
    // A process that starts without the store goes on with the last set too.
    two.kill();
    two.run();
    assert_eq!(two.status()["vips"][0]["table_hash"], tables[1]);
    let mut open = two.connect().unwrap();
    let server = ask(&mut open).unwrap();

    etcd.start();
    eventually("they agree again", || are_together(both));
    eventually("half of them see it down, which is enough", || both.iter().all(|scene| share(scene, 0) == 0.0));
    same_table(both);
    assert_eq!(ask(&mut open).unwrap(), server);
    let run = one.end();
    let told = events(&run.stdout, "lb.shared");
    let is_away: Vec<bool> = told.iter().map(|event| !event["problem"].is_null()).collect();
    assert!(is_away.contains(&true) && is_away.last() == Some(&false), "{told:?}");
}

#[test]
fn root_a_balancer_logs_in_to_etcd_and_without_a_login_it_does_not_start() {
    if skipped() || ["etcd", "curl"].into_iter().any(lacks_program) {
        return;
    }
    let scene = Scene::new("login", 2);
    let etcd = Etcd::new("login", &[&scene]);
    etcd.start_in_clear();
    // Keys from /dwell/lb/ up to what follows that prefix.
    let permission =
        r#"{"name":"lb","perm":{"permType":"READWRITE","key":"L2R3ZWxsL2xiLw==","range_end":"L2R3ZWxsL2xiMA=="}}"#;
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"root"}"#),
        ("role/add", r#"{"name":"root"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("user/add", r#"{"name":"lb","password":"secret"}"#),
        ("role/add", r#"{"name":"lb"}"#),
        ("role/grant", permission),
        ("user/grant", r#"{"user":"lb","role":"lb"}"#),
        ("enable", "{}"),
    ] {
        etcd.ask(&format!("auth/{path}"), body);
    }
    let file = etcd.path("password");
    let configure = |password: &str| {
        std::fs::write(&file, password).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let shared = format!(
            "metrics.listen = \"127.0.0.1:9469\"\n[shared]\nname = \"a\"\nendpoints = [\"http://{}:2379\"]\nuser = \"lb\"\npassword_file = \"{file}\"\n",
            store(1)
        );
        scene.configure(&shared, "", &[0, 1]);
    };
    configure("wrong");
    let refused = scene.lb_alone(&["run", &scene.path("lb.toml")]);
    assert_eq!(refused.status, Some(3), "{refused}");
    assert!(refused.stderr.contains("authentication failed") && !refused.stderr.contains("wrong"), "{refused}");
    configure("secret\n");
    scene.run();
    eventually("it leads", || shared(&scene)["leader"] == "a" && !shared(&scene)["set"].is_null());
    let warnings = scene.status()["warnings"].to_string();
    assert!(warnings.contains("does not use TLS"), "{warnings}");
    assert_eq!(scene.spread(20).len(), 2);
    let has = |line: &str| scene.get_metrics().contains(&format!("dwell_lb_shared_{line}\n"));
    eventually("metrics say so", || ["store_up 1", "members 1", "leads 1", "differing 0"].into_iter().all(has));
    // A server that was restarted knows nobody who had logged in.
    etcd.stop();
    eventually("it is away", || !shared(&scene)["problem"].is_null());
    eventually("metrics say so too", || ["store_up 0", "leads 0"].into_iter().all(has));
    etcd.start_in_clear();
    eventually("it leads again", || shared(&scene)["problem"].is_null() && shared(&scene)["leader"] == "a");
}
