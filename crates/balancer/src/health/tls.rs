//! TLS for checks by HTTPS.

use std::{io, net::IpAddr, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::ask::Timed;
use crate::config::Tls;

/// Certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the certificates of vip.health.ca: {0}; name a file of authorities' certificates in PEM")]
pub struct TlsError(Error);

/// Who asks by HTTPS.
#[derive(Debug, Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl Client {
    pub(super) fn new(tls: &Tls) -> Result<Client, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError)?;
        let config = match &tls.authorities {
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in authorities {
                    roots.add(CertificateDer::from(authority.clone())).map_err(TlsError)?;
                }
                builder.with_root_certificates(roots).with_no_client_auth()
            }
            None => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth()
            }
        };
        let name = tls.name.clone().and_then(|name| ServerName::try_from(name).ok());
        Ok(Client { config: Arc::new(config), name })
    }

    /// A connection to this address becomes one by TLS.
    pub(super) fn wrap(&self, address: IpAddr, stream: Timed) -> io::Result<StreamOwned<ClientConnection, Timed>> {
        let name = self.name.clone().unwrap_or_else(|| address.into());
        let connection = ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    }
}

/// Takes any certificate: the operator said so. The handshake must still be signed with it.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
