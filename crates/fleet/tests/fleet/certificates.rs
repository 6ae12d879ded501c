//! Agents and collectors with certificates.

use std::{fs, path::Path, sync::Arc};

use dwell_fleet::{Error, Identity};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::support::{Memory, agent, collector, eventually};

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
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let (cert, private) = (folder.join("cert.pem"), folder.join("key.pem"));
        fs::write(&cert, certificate.pem()).unwrap();
        fs::write(&private, key.serialize_pem()).unwrap();
        let ca = folder.join(format!("{ca}.ca"));
        Identity::from_certificates(&cert, &private, &ca).unwrap()
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
    stranger.wait_for_failure("the collector does not accept our key");
    eventually("it is counted", || server.refusals().unauthenticated > 0);

    // Its certificate is good, but for another agent.
    let impostor = agent("a", 5, &at("localhost"), &ours.identity(folder, "ours", "e"));
    impostor.wait_for_failure("its certificate is not for 'a'");
    eventually("it is counted", || server.refusals().false_names > 0);

    // Trusts another authority.
    let wary = agent("c", 3, &at("localhost"), &ours.identity(folder, "theirs", "c"));
    wary.wait_for_failure("the collector's key does not match ours");

    // The collector's certificate is for another name.
    let misled = agent("d", 4, &at("127.0.0.1"), &ours.identity(folder, "ours", "d"));
    misled.wait_for_failure("the collector's key does not match ours");
    assert_eq!(server.agents(), 1);
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
