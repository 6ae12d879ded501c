//! Agents with keys of their own.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use dwell_fleet::{
    CollectorAddress, Error, Identity, Key, KeyFile, Refusal, Server, Token, ask_for_key, wire::AgentName,
};
use dwell_testbed::harness::eventually;

use crate::support::{Memory, agent, collector};

struct Office {
    folder: tempfile::TempDir,
    key: Key,
}

impl Office {
    fn new() -> Office {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.key");
        Key::create(&path).unwrap();
        Office { key: Key::read(&path).unwrap(), folder }
    }

    fn list(&self) -> std::path::PathBuf {
        self.folder.path().join("agents")
    }

    /// Makes the key of an agent.
    fn enroll(&self, name: &str) -> Key {
        let name = AgentName::try_from(name.to_owned()).unwrap();
        let path = self.key.enroll(&name, &self.list()).unwrap();
        assert_eq!(path, self.folder.path().join(format!("{name}.key")));
        let key = Key::read(&path).unwrap();
        assert_eq!(key.agent(), Some(&name));
        fs::remove_file(path).unwrap();
        key
    }

    fn identity(&self) -> Identity {
        Identity::from_agents(&self.key, &self.list()).unwrap()
    }
}

#[test]
fn an_agents_key_is_good_for_its_name_alone() {
    let (office, memory) = (Office::new(), Arc::new(Memory::default()));
    let [web, db] = ["web", "db"].map(|name| Identity::from_key(&office.enroll(name)));
    let server = collector(&office.identity(), &memory);
    let address = server.address().to_string();
    let friend = agent("web", 1, &address, &web);
    friend.push(1);
    eventually("it is stored", || memory.numbers(friend.run) == [1]);
    drop(friend);
    eventually("it is gone", || server.agents() == 0);
    let impostor = agent("web", 2, &address, &db);
    impostor.wait_for_failure("its key is that of 'db', not of 'web'");
    assert!(server.refusals().get(Refusal::Impostor) > 0);
    // Neither the collector's own key nor that of another fleet makes an agent.
    for key in [&office.key, &Office::new().enroll("web")] {
        let stranger = agent("web", 3, &address, &Identity::from_key(key));
        stranger.wait_for_failure("");
    }
    assert_eq!(server.agents(), 0);
}

#[test]
fn an_agents_key_cannot_act_as_a_collector() {
    let (office, memory) = (Office::new(), Arc::new(Memory::default()));
    let [web, db] = ["web", "db"].map(|name| office.enroll(name));
    let web = Identity::from_key(&web);
    let start = |identity: &Identity| {
        let address = "127.0.0.1:0".parse().unwrap();
        dwell_fleet::Server::start(address, identity.clone(), dwell_fleet::Limits::default(), Arc::clone(&memory), &[])
    };
    assert!(matches!(start(&web), Err(Error::NotCollector)));
    assert!(matches!(Identity::from_agents(&db, &office.list()), Err(Error::NotCollector)));
    assert!(matches!(
        db.enroll(&AgentName::try_from("c".to_owned()).unwrap(), &office.list()),
        Err(Error::NotCollector)
    ));
    // A collector with the secret of another fleet, or with the shared key of one that an agent's secret makes up.
    let other = Office::new();
    other.enroll("web");
    let server = collector(&other.identity(), &memory);
    let misled = agent("web", 1, &server.address().to_string(), &web);
    misled.wait_for_failure("the collector's key does not match ours");
}

/// The list is what counts, at any time.
#[test]
fn an_agent_that_is_taken_off_the_list_or_gets_a_new_key_is_refused_by_its_old_one() {
    let (office, memory) = (Office::new(), Arc::new(Memory::default()));
    let old = office.enroll("web");
    let server = collector(&office.identity(), &memory);
    let address = server.address().to_string();
    let connected = agent("web", 1, &address, &Identity::from_key(&old));
    connected.wait_until_connected();
    let list = fs::read_to_string(office.list()).unwrap();
    fs::write(office.list(), format!("# rack 3 is ours\n\n{}db # 12 disks\n", list.replace('\n', "  # the front\n")))
        .unwrap();
    let new = office.enroll("web");
    let text = fs::read_to_string(office.list()).unwrap();
    let [rack, "", web, "db # 12 disks"] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(rack, "# rack 3 is ours");
    assert!(web.starts_with("web ") && web.ends_with("  # the front") && !list.contains(web), "{web}");
    // At the latest with the next check.
    connected.wait_for_failure("its key is not accepted any more");
    drop(connected);
    let renewed = agent("web", 2, &address, &Identity::from_key(&new));
    renewed.wait_until_connected();
    drop(renewed);
    // A later line replaces an earlier one of the same name.
    let list = fs::read_to_string(office.list()).unwrap();
    fs::write(office.list(), format!("{list}web 1\n")).unwrap();
    agent("web", 4, &address, &Identity::from_key(&new)).wait_for_failure("the collector does not accept our key");
    // Whatever else is wrong with the list.
    fs::write(office.list(), b"# caf\xe9\nx y z\n").unwrap();
    agent("web", 3, &address, &Identity::from_key(&new)).wait_for_failure("the collector does not accept our key");
}

fn name(text: &str) -> AgentName {
    AgentName::try_from(text.to_owned()).unwrap()
}

fn enroll(collector: &CollectorAddress, token: &Token, file: &Path) -> Result<(), Error> {
    let file = KeyFile::prepare(file)?;
    file.keep(&ask_for_key(collector, token)?)
}

fn address(server: &Server) -> CollectorAddress {
    server.address().to_string().parse().unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_token_gives_an_agent_its_key_once() {
    let (office, memory) = (Office::new(), Arc::new(Memory::default()));
    let token = office.key.issue_token(&name("web"), &office.list(), HOUR).unwrap();
    let server = collector(&office.identity(), &memory);
    // It is brought to the host as text.
    let token: Token = token.to_string().parse().unwrap();
    let file = office.folder.path().join("own.key");
    enroll(&address(&server), &token, &file).unwrap();
    let key = Key::read(&file).unwrap();
    assert_eq!(key.agent(), Some(&name("web")));
    let web = agent("web", 1, &server.address().to_string(), &Identity::from_key(&key));
    web.wait_until_connected();
    eventually("the collector knows", || *memory.enrolled.lock().unwrap() == [Ok(name("web"))]);
    // A thief comes too late, and a file is not overwritten.
    let again = enroll(&address(&server), &token, &office.folder.path().join("thief.key")).unwrap_err();
    assert!(again.to_string().contains("the token is not valid"), "{again}");
    assert!(!office.folder.path().join("thief.key").exists());
    assert_eq!(server.agents(), 1);
}

#[test]
fn a_token_is_good_for_nothing_else_and_not_for_ever() {
    let (office, memory) = (Office::new(), Arc::new(Memory::default()));
    let server = {
        office.enroll("db");
        collector(&office.identity(), &memory)
    };
    let refused = |token: &Token| {
        let error = enroll(&address(&server), token, &office.folder.path().join("none.key")).unwrap_err();
        assert!(error.to_string().contains("the token is not valid"), "{error}");
    };
    let expired = office.key.issue_token(&name("web"), &office.list(), Duration::ZERO).unwrap();
    refused(&expired);
    let first = office.key.issue_token(&name("web"), &office.list(), HOUR).unwrap();
    let second = office.key.issue_token(&name("web"), &office.list(), HOUR).unwrap();
    refused(&first);
    let foreign = Office::new();
    let foreign = foreign.key.issue_token(&name("web"), &foreign.list(), HOUR).unwrap();
    let error = enroll(&address(&server), &foreign, &office.folder.path().join("none.key")).unwrap_err();
    assert!(matches!(error, Error::Enrolment { .. }), "{error}");
    // Its key makes nobody an agent, whatever it is called.
    let path = office.folder.path().join("token.key");
    let text = second.to_string();
    let [_, private, public]: [&str; 3] = text.split(':').collect::<Vec<_>>().try_into().unwrap();
    fs::write(&path, format!("dwell-agent-key 1\nname web\nprivate {private}\ncollector {public}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let disguised = Identity::from_key(&Key::read(&path).unwrap());
    agent("web", 1, &server.address().to_string(), &disguised).wait_for_failure("its key is not accepted");
    enroll(&address(&server), &second, &office.folder.path().join("web.key")).unwrap();
    assert_eq!(fs::read_to_string(office.folder.path().join("agents.tokens")).unwrap(), "");
    // An agent's own key is no token.
    let web = fs::read_to_string(office.folder.path().join("web.key")).unwrap();
    let of = |at: usize| web.lines().nth(at).unwrap().split(' ').nth(1).unwrap();
    refused(&format!("web:{}:{}", of(2), of(3)).parse().unwrap());
}

/// Whoever has a stolen key is not let in again with the agent that it was stolen from.
#[test]
fn an_agent_that_comes_back_to_the_list_has_another_key() {
    let office = Office::new();
    let key = |office: &Office| {
        let path = office.key.enroll(&name("web"), &office.list()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        text
    };
    let stolen = key(&office);
    fs::write(office.list(), "").unwrap();
    assert_ne!(key(&office), stolen);
}

#[test]
fn a_token_is_not_used_up_where_its_agent_cannot_be_added() {
    let (office, memory) = (Office::new(), Arc::new(Memory::default()));
    let token = office.key.issue_token(&name("web"), &office.list(), HOUR).unwrap();
    let server = collector(&office.identity(), &memory);
    fs::write(office.list(), "no name of an agent\n").unwrap();
    let file = office.folder.path().join("own.key");
    let error = enroll(&address(&server), &token, &file).unwrap_err();
    assert!(error.to_string().contains("is not the name of an agent"), "{error}");
    eventually("the collector tells it too", || memory.enrolled.lock().unwrap().iter().any(Result::is_err));
    fs::write(office.list(), "").unwrap();
    enroll(&address(&server), &token, &file).unwrap();
    assert_eq!(fs::read_dir(office.folder.path()).unwrap().filter(|file| is_new(file.as_ref().unwrap())).count(), 0);
}

fn is_new(file: &fs::DirEntry) -> bool {
    file.path().extension().is_some_and(|extension| extension == "new")
}

#[test]
fn tokens_that_are_made_at_once_are_all_there() {
    let office = Office::new();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (office, name) = (&office, name(&format!("web-{number}")));
            scope.spawn(move || office.key.issue_token(&name, &office.list(), HOUR).unwrap());
        }
    });
    assert_eq!(fs::read_to_string(office.folder.path().join("agents.tokens")).unwrap().lines().count(), 16);
}

#[test]
fn text_that_is_no_token_and_files_that_hold_none_are_named() {
    for text in ["", "web", "web:00", "web:00:00", "a b:00:00", "web:zz:00", "web:00:00:00"] {
        assert!(matches!(text.parse::<Token>(), Err(Error::Token)), "{text}");
    }
    let office = Office::new();
    let token = office.key.issue_token(&name("web"), &office.list(), HOUR).unwrap();
    let mode = |file: &str| fs::metadata(office.folder.path().join(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("agents.tokens"), 0o600);
    assert!(!format!("{token:?}").contains("web:"), "no message contains a token");
    fs::write(office.folder.path().join("agents.tokens"), "web\n").unwrap();
    let error = office.key.issue_token(&name("db"), &office.list(), HOUR).unwrap_err();
    assert!(matches!(error, Error::Tokens { line: 1, .. }), "{error}");
}

#[test]
fn files_that_are_no_keys_or_lists_are_named() {
    let office = Office::new();
    let path = office.folder.path().join("file");
    let read = |text: &str| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Key::read(&path)
    };
    let broken = format!("dwell-agent-key 1\nname web\nprivate {}\n", "zz".repeat(32));
    assert!(matches!(read(&broken), Err(Error::AgentKey { .. })));
    assert!(matches!(read(&broken.replace('1', "2")), Err(Error::AgentKey { .. }) | Ok(Key::Collector(_))));
    fs::write(&path, "web\ndb 3 # in the cellar\n\nthree words here\n").unwrap();
    let error = Identity::from_agents(&office.key, &path).unwrap_err();
    assert!(error.to_string().starts_with("line 4 of /"), "{error}");
    assert!(matches!(Identity::from_agents(&office.key, Path::new("/none")), Err(Error::File { .. })));
}
