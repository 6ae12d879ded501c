//! The certificate and key of the servers.

use std::{fmt, process::Command};

use clap::ValueEnum;
use dwell_testbed::{
    Error, Result,
    error::{command_line, find_program},
};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The name in the certificate.
pub(super) const NAME: &str = "server.test";

/// The type of key in a certificate, on which the cost of a full handshake depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Certificate {
    /// ECDSA over P-256
    Ecdsa,
    /// RSA with 2048 bits
    Rsa,
}

impl Certificate {
    /// Both types.
    pub const ALL: [Certificate; 2] = [Certificate::Ecdsa, Certificate::Rsa];

    /// The name in tables and records.
    pub fn name(self) -> &'static str {
        match self {
            Certificate::Ecdsa => "ecdsa-p256",
            Certificate::Rsa => "rsa-2048",
        }
    }
}

/// A self-signed certificate for [`NAME`] and its key, which all servers of an experiment share.
pub(super) struct Identity {
    pub(super) certificate: CertificateDer<'static>,
    pem: String,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    pub(super) fn new(kind: Certificate) -> Result<Identity> {
        let wrong = |why: rcgen::Error| Error::invalid("certificate", why);
        let pair = match kind {
            Certificate::Ecdsa => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(wrong)?,
            Certificate::Rsa => KeyPair::from_pem_and_sign_algo(&rsa()?, &PKCS_RSA_SHA256).map_err(wrong)?,
        };
        let params = CertificateParams::new([NAME.to_owned()]).map_err(wrong)?;
        let certificate = params.self_signed(&pair).map_err(wrong)?;
        Ok(Identity {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            key: pair.serialize_der().into(),
        })
    }

    /// The certificate in PEM.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn tls(&self) -> Result<rustls::ServerConfig> {
        let key = PrivateKeyDer::Pkcs8(self.key.clone_key());
        let mut tls = rustls::ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
            .map_err(|why| Error::invalid("certificate", why))?;
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(tls)
    }
}

/// The ALPN name of the protocol between clients and servers.
pub(super) const PROTOCOL: &[u8] = b"dwell-lab";

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Generates an RSA key in PKCS #8 and PEM with openssl, as ring, which QUIC is built with, cannot. Some versions of
/// openssl write another format in DER.
fn rsa() -> Result<String> {
    let Some(openssl) = find_program("openssl") else {
        return Err(Error::Host {
            wanted: "make an RSA key",
            fact: "there is no program openssl".to_owned(),
            remedy: "install the package openssl",
        });
    };
    let mut command = Command::new(openssl);
    let arguments = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
    command.args(arguments);
    let line = command_line(&command);
    let output = command.output().map_err(Error::io(format!("run `{line}`")))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Error::Command {
            command: line,
            status: output.status.to_string(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_take_keys_of_both_kinds() {
        for kind in Certificate::ALL {
            if kind == Certificate::Rsa && dwell_testbed::skip::lacks_program("openssl") {
                continue;
            }
            let identity = Identity::new(kind).unwrap();
            identity.tls().unwrap();
            assert!(identity.pem().starts_with("-----BEGIN CERTIFICATE-----"));
        }
    }
}
