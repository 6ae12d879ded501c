//! TLS for HTTPS checks.

use std::{io, net::IpAddr, sync::Arc};

use dwell_socket::deadline::DeadlineStream;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::config::CheckTls;

/// The certificates of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the certificates of vip.health.ca: {0}; name a file of PEM certificates of authorities")]
pub struct TlsError(Error);

/// The TLS settings of an HTTPS check.
#[derive(Debug, Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl TlsClient {
    pub(super) fn new(tls: &CheckTls) -> Result<TlsClient, TlsError> {
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
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
                .with_no_client_auth(),
        };
        let name = tls.name.clone().and_then(|name| ServerName::try_from(name).ok());
        Ok(TlsClient { config: Arc::new(config), name })
    }

    /// Starts TLS on a connection to an address.
    pub(super) fn wrap(
        &self,
        address: IpAddr,
        stream: DeadlineStream,
    ) -> io::Result<StreamOwned<ClientConnection, DeadlineStream>> {
        let name = self.name.clone().unwrap_or_else(|| address.into());
        let connection = ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    }
}

/// Accepts any certificate, as the operator configured. The handshake must still be signed with it.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
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
