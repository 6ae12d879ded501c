//! Certificates and authorities in files, which may be replaced at any time.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier, verify_server_name},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{
    VERSIONS,
    files::{Attempt, FileVersion, version},
    provider, tuned_client, tuned_server,
};
use crate::{Error, wire::AgentName};

/// Files with an own certificate, its private key, and the authorities that have signed the other side's.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    ca: PathBuf,
    last: Mutex<Last>,
}

/// The last attempt to read the files.
#[derive(Debug)]
struct Last {
    attempt: Attempt<[FileVersion; 3]>,
    /// What the last one that did not fail has found.
    loaded: Loaded,
}

/// What the files have had last.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    agents: Arc<dyn ClientCertVerifier>,
    collectors: Arc<WebPkiServerVerifier>,
}

impl CertificateFiles {
    /// Reads PEM files.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`], if a file cannot be read or used.
    pub(super) fn open(certificate: &Path, key: &Path, ca: &Path) -> Result<CertificateFiles, Error> {
        let versions = versions([certificate, key, ca]);
        let loaded = Loaded::read(certificate, key, ca)?;
        let [certificate, key, ca] = [certificate, key, ca].map(Path::to_owned);
        let last = Last { attempt: Attempt::new(versions), loaded };
        Ok(CertificateFiles { certificate, key, ca, last: Mutex::new(last) })
    }

    /// Returns what is in the files now. Files that cannot be used, as while they are being replaced, leave what was there
    /// before.
    pub(super) fn current(&self) -> Loaded {
        self.look().loaded.clone()
    }

    /// Returns why the files cannot be used, once, and only after the time in which they may be about to be replaced.
    pub(super) fn take_problem(&self) -> Option<Error> {
        let has_failed = self.last().attempt.has_failed();
        // They may have been mended since.
        if has_failed { self.look().attempt.take_problem() } else { None }
    }

    /// Reads the files if they have changed: whoever connects causes no more than that.
    fn look(&self) -> MutexGuard<'_, Last> {
        let CertificateFiles { certificate, key, ca, .. } = self;
        let mut last = self.last();
        if last.attempt.begin(versions([certificate, key, ca])) {
            match Loaded::read(certificate, key, ca) {
                Ok(loaded) => last.loaded = loaded,
                Err(error) => last.attempt.problem = Some(error),
            }
        }
        last
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loaded {
    fn read(certificate: &Path, key: &Path, ca: &Path) -> Result<Loaded, Error> {
        let chain = certificates(certificate)?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|reason| unusable(key, reason))?;
        let mut authorities = RootCertStore::empty();
        for authority in certificates(ca)? {
            let added = authorities.add(authority);
            added.map_err(|reason| unusable(ca, reason))?;
        }
        let (authorities, provider) = (Arc::new(authorities), provider());
        let agents = WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), Arc::clone(&provider));
        let agents = agents.build().map_err(|reason| unusable(ca, reason))?;
        let collectors = WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(&provider));
        let collectors = collectors.build().map_err(|reason| unusable(ca, reason))?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)
            .expect("the provider supports TLS 1.3")
            .with_webpki_verifier(Arc::clone(&collectors))
            .with_client_auth_cert(chain.clone(), private.clone_key())
            .map_err(|reason| unusable(certificate, reason))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(VERSIONS)
            .expect("the provider supports TLS 1.3")
            .with_client_cert_verifier(Arc::clone(&agents))
            .with_single_cert(chain, private)
            .map_err(|reason| unusable(certificate, reason))?;
        Ok(Loaded { client: tuned_client(client), server: tuned_server(server), agents, collectors })
    }

    /// Checks that an agent with these certificates, its own first, may have a name at this time.
    ///
    /// # Errors
    ///
    /// Why it may not; the agent receives this text.
    pub(super) fn check_agent(
        &self,
        presented: &[CertificateDer<'_>],
        name: &AgentName,
        now: UnixTime,
    ) -> Result<(), String> {
        let (own, others) = presented.split_first().ok_or("it presents no certificate")?;
        let certificate = ParsedCertificate::try_from(own).map_err(|error| error.to_string())?;
        let wanted = ServerName::try_from(name.as_str())
            .map_err(|_| format!("no certificate can be for the name '{name}': choose another --name"))?;
        verify_server_name(&certificate, &wanted)
            .map_err(|_| format!("its certificate is not for '{name}': give it the --name of its certificate"))?;
        let verified = self.agents.verify_client_cert(own, others, now);
        verified.map(|_| ()).map_err(|error| format!("its certificate is not accepted any more: {}", words(&error)))
    }

    /// Checks that these are the certificates of a collector with a name at this time.
    ///
    /// # Errors
    ///
    /// Why they are not.
    pub(super) fn check_collector(
        &self,
        presented: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), String> {
        let (own, others) = presented.split_first().ok_or("the collector presents no certificate")?;
        let verified = self.collectors.verify_server_cert(own, others, name, &[], now);
        let refused = |error| format!("the collector's certificate is not accepted any more: {}", words(&error));
        verified.map(|_| ()).map_err(refused)
    }
}

fn words(error: &rustls::Error) -> String {
    refusal(error).unwrap_or_else(|| error.to_string())
}

/// Says why a certificate is not accepted, in the same words at each attempt; `None` if it is none of an authority, or no
/// certificate is to blame.
pub(crate) fn refusal(error: &rustls::Error) -> Option<String> {
    use rustls::{CertificateError as Why, Error::InvalidCertificate};
    Some(match error {
        InvalidCertificate(Why::Expired | Why::ExpiredContext { .. }) => {
            "it has expired, or a clock is wrong: renew it, or set the clock".into()
        }
        InvalidCertificate(Why::NotValidYet | Why::NotValidYetContext { .. }) => {
            "it is not valid yet, or a clock is wrong: set the clock".into()
        }
        // The latter where another authority has the same name.
        InvalidCertificate(Why::UnknownIssuer | Why::BadSignature) => "no authority in --ca has signed it".into(),
        InvalidCertificate(Why::NotValidForName | Why::NotValidForNameContext { .. }) => error.to_string(),
        _ => return None,
    })
}

fn versions(paths: [&Path; 3]) -> Option<[FileVersion; 3]> {
    let [certificate, key, ca] = paths.map(|path| version(path).ok());
    Some([certificate?, key?, ca?])
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|reason| unusable(path, reason))?;
    match all.is_empty() {
        true => Err(unusable(path, "it contains no certificate in PEM format")),
        false => Ok(all),
    }
}

fn unusable(path: &Path, reason: impl Into<Box<dyn std::error::Error>>) -> Error {
    Error::Certificate { path: path.into(), reason: reason.into().to_string() }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// Both sides look again while they are connected.
    #[test]
    fn a_certificate_is_good_until_it_expires_on_both_sides() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key, ca] = ["cert", "key", "ca"].map(|name| folder.path().join(name));
        let expires_s = 2_000_000_000;
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let private = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["web".to_owned()]).unwrap();
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(expires_s);
        fs::write(&certificate, params.signed_by(&private, &authority).unwrap().pem()).unwrap();
        fs::write(&key, private.serialize_pem()).unwrap();
        fs::write(&ca, authority.pem()).unwrap();
        let loaded = CertificateFiles::open(&certificate, &key, &ca).unwrap().current();
        let presented = certificates(&certificate).unwrap();
        let (agent, collector) = (AgentName::try_from("web".to_owned()).unwrap(), ServerName::try_from("web").unwrap());
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let check =
            |now| [loaded.check_agent(&presented, &agent, now), loaded.check_collector(&presented, &collector, now)];
        assert_eq!(check(at(expires_s)), [Ok(()), Ok(())]);
        for refused in check(at(expires_s + 1)) {
            assert!(refused.unwrap_err().contains("expired"));
        }
    }
}
