//! Agents and collectors with certificates.

use std::{
    fs,
    path::Path,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::Duration,
};

use dwell_fleet::{Error, Event, Identity, Refusal};
use dwell_testbed::harness::eventually;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::support::{Memory, agent, collector};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        fs::write(folder.join(format!("{name}.ca")), issuer.pem()).unwrap();
        Authority(issuer)
    }

    /// The identity of a certificate for a name.
    fn identity(&self, folder: &Path, ca: &str, name: &str) -> Identity {
        self.sign(folder, name);
        let [cert, key] = ["cert", "key"].map(|kind| folder.join(format!("{name}.{kind}")));
        Identity::from_certificates(&cert, &key, &folder.join(format!("{ca}.ca"))).unwrap()
    }

    /// Writes a certificate for a name, and its key, or replaces them, as tools do that renew certificates.
    fn sign(&self, folder: &Path, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        for (kind, text) in [("cert", certificate.pem()), ("key", key.serialize_pem())] {
            let new = folder.join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, folder.join(format!("{name}.{kind}"))).unwrap();
        }
    }
}

#[test]
fn a_certificate_of_the_right_authority_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, memory) = (folder.path(), Arc::new(Memory::default()));
    let (ours, theirs) = (Authority::new(folder, "ours"), Authority::new(folder, "theirs"));
    let server = collector(&ours.identity(folder, "ours", "localhost"), &memory);
    let at = |host: &str| format!("{host}:{}", server.address().port());

    let friend = agent("a", 1, &at("localhost"), &ours.identity(folder, "ours", "a"));
    friend.wait_until_connected();
    friend.push(1);
    eventually("it is stored", || memory.numbers(friend.run) == [1]);

    // Trusts the collector, but has a certificate from another authority.
    let stranger = agent("b", 2, &at("localhost"), &theirs.identity(folder, "ours", "b"));
    stranger.wait_for_failure("the collector does not accept our certificate: no authority in its --ca");
    eventually("it is counted", || server.refusals().get(Refusal::Stranger) > 0);

    // Its certificate is good, but for another agent.
    let impostor = agent("a", 5, &at("localhost"), &ours.identity(folder, "ours", "e"));
    impostor.wait_for_failure("its certificate is not for 'a'");
    eventually("it is counted", || server.refusals().get(Refusal::Impostor) > 0);

    // Trusts another authority.
    let wary = agent("c", 3, &at("localhost"), &ours.identity(folder, "theirs", "c"));
    wary.wait_for_failure("the collector's certificate is not accepted: no authority in --ca has signed it");

    // The collector's certificate is for another name.
    let misled = agent("d", 4, &at("127.0.0.1"), &ours.identity(folder, "ours", "d"));
    misled.wait_for_failure("the collector's certificate is not accepted: ");
    assert_eq!(server.agents(), 1);
}

/// Both sides keep running while all certificates are replaced by those of another authority.
#[test]
fn certificates_and_authorities_that_are_replaced_count_without_a_restart_and_for_connected_agents() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, memory) = (folder.path(), Arc::new(Memory::default()));
    let (before, after) = (Authority::new(folder, "ours"), Authority::new(folder, "next"));
    let server = collector(&before.identity(folder, "ours", "localhost"), &memory);
    let address = format!("localhost:{}", server.address().port());
    let web = agent("web", 1, &address, &before.identity(folder, "ours", "web"));
    web.push(1);
    eventually("it is stored", || memory.numbers(web.run) == [1]);
    fs::rename(folder.join("next.ca"), folder.join("ours.ca")).unwrap();
    web.wait_for_failure("certificate is not accepted any more");
    web.push(2);
    ["localhost", "web"].into_iter().for_each(|name| after.sign(folder, name));
    eventually("it is stored", || memory.numbers(web.run) == [1, 2]);
    // A certificate that does not belong to its key is none.
    fs::write(folder.join("localhost.key"), "half of a file").unwrap();
    let other = agent("other", 2, &address, &after.identity(folder, "ours", "other"));
    other.wait_until_connected();
}

/// Otherwise nobody would know before the certificates that are in use expire, of all agents at the same time.
#[test]
fn a_renewed_certificate_that_cannot_be_used_is_told_once_on_both_sides_until_it_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, memory) = (folder.path(), Arc::new(Memory::default()));
    let ours = Authority::new(folder, "ours");
    let server = collector(&ours.identity(folder, "ours", "localhost"), &memory);
    let address = format!("localhost:{}", server.address().port());
    let web = agent("web", 1, &address, &ours.identity(folder, "ours", "web"));
    web.wait_until_connected();
    for times in 1..=2 {
        // The other half of each pair stays as it was.
        ["localhost", "web"].into_iter().for_each(|name| {
            let other = KeyPair::generate().unwrap();
            fs::write(folder.join(format!("{name}.key")), other.serialize_pem()).unwrap();
        });
        let Event::Unusable(reason) = web.event() else { panic!("it is connected") };
        assert!(reason.starts_with("cannot use ") && reason.contains("web.cert"), "{reason}");
        eventually("the collector says so", || memory.unusable.lock().unwrap().len() == times);
        if times == 1 {
            // A check later nothing is new.
            assert_eq!(web.events.recv_timeout(Duration::from_secs(12)), Err(RecvTimeoutError::Timeout));
        }
        let told = memory.unusable.lock().unwrap().clone();
        assert!(told.len() == times && told.iter().all(|told| told.contains("localhost.cert")), "{told:?}");
        ["localhost", "web"].into_iter().for_each(|name| ours.sign(folder, name));
        let name = format!("other-{times}");
        agent(&name, 2, &address, &ours.identity(folder, "ours", &name)).wait_until_connected();
    }
}

#[test]
fn an_error_names_the_file_that_is_not_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (file, none) = (folder.path().join("file"), folder.path().join("none"));
    fs::write(&file, "not PEM").unwrap();
    for (path, says) in [(&file, "no certificate"), (&none, "none")] {
        let error = Identity::from_certificates(path, path, path).unwrap_err();
        assert!(matches!(error, Error::Certificate { .. }));
        assert!(error.to_string().contains(says), "{error}");
    }
}
