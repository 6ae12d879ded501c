//! An authority that signs the certificates of a collector and its agents, also such that expire soon.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_fleet::Identity;
use dwell_testbed::{Error, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// An authority with its files in a folder.
pub(super) struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Who knows each other by the files of an authority.
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
}

impl Authority {
    pub(super) fn create(folder: &Path) -> Result<Authority> {
        let issue = || {
            let mut params = CertificateParams::new(Vec::new())?;
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            CertifiedIssuer::self_signed(params, KeyPair::generate()?)
        };
        let authority = Authority { folder: folder.to_owned(), issuer: issue().map_err(invalid)? };
        replace(&folder.join("ca.pem"), &authority.issuer.pem())?;
        Ok(authority)
    }

    /// Writes the certificate and the key of a name, or replaces them: good for these names and addresses, for ever or for a time
    /// from now.
    pub(super) fn sign(&self, name: &str, subjects: Vec<String>, lasts: Option<Duration>) -> Result<()> {
        let key = KeyPair::generate().map_err(invalid)?;
        let mut params = CertificateParams::new(subjects).map_err(invalid)?;
        if let Some(lasts) = lasts {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            params.not_after = date_time_ymd(1970, 1, 1) + now + lasts;
        }
        let certificate = params.signed_by(&key, &self.issuer).map_err(invalid)?;
        let files = Files::of(&self.folder, name);
        replace(&files.certificate, &certificate.pem())?;
        replace(&files.key, &key.serialize_pem())
    }

    /// What somebody with the files of a name needs to speak TLS to the collector, as an agent or not.
    pub(super) fn client(&self, name: &str, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>> {
        let files = Files::of(&self.folder, name);
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).map_err(invalid)?;
        let chain = vec![CertificateDer::from_pem_file(&files.certificate).map_err(invalid)?];
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(invalid)?;
        let config = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
        let mut config = config.with_root_certificates(roots).with_client_auth_cert(chain, key).map_err(invalid)?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

impl Files {
    pub(super) fn of(folder: &Path, name: &str) -> Files {
        Files {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
            authority: folder.join("ca.pem"),
        }
    }

    pub(super) fn identity(&self) -> Result<Identity> {
        Identity::from_certificates(&self.certificate, &self.key, &self.authority).map_err(invalid)
    }

    /// The arguments of `dwell`.
    pub(super) fn arguments(&self) -> Vec<String> {
        let all = [("--cert", &self.certificate), ("--key", &self.key), ("--ca", &self.authority)];
        all.into_iter().flat_map(|(option, file)| [option.to_owned(), file.display().to_string()]).collect()
    }
}

/// Replaces a file as tools do that renew certificates.
fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(Error::file("write", &new))?;
    fs::rename(&new, path).map_err(Error::file("write", path))
}

fn invalid(why: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("certificate", why)
}
