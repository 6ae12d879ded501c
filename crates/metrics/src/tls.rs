//! TLS to servers for which the host's authorities vouch.

use std::sync::Arc;

use rustls::crypto::ring;
use ureq::tls::{Certificate, ClientCert, RootCerts, TlsConfig};

/// No certificate of an authority was found.
#[derive(Debug, thiserror::Error)]
#[error(
    "this host has no certificates of authorities{}: install ca-certificates, or name a file of them in SSL_CERT_FILE",
    because(_0)
)]
pub struct NoAuthorities(Vec<rustls_native_certs::Error>);

fn because(reasons: &[rustls_native_certs::Error]) -> String {
    reasons.iter().map(|reason| format!(", {reason}")).collect()
}

/// Returns the configuration of a client that accepts servers with a certificate of the host's authorities, or of those in
/// the file or folder that SSL_CERT_FILE and SSL_CERT_DIR name.
///
/// # Errors
///
/// [`NoAuthorities`], with what the system said.
pub fn of_the_host() -> Result<TlsConfig, NoAuthorities> {
    of_the_host_with(None)
}

/// As [`of_the_host`], for a client that shows a certificate of its own if it has one.
///
/// # Errors
///
/// As [`of_the_host`].
pub fn of_the_host_with(own: Option<ClientCert>) -> Result<TlsConfig, NoAuthorities> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err(NoAuthorities(found.errors));
    }
    Ok(of_authorities(found.certs.iter().map(AsRef::as_ref), own))
}

/// Returns the configuration of a client that accepts servers with a certificate of these authorities, in DER, and shows a
/// certificate of its own if it has one.
pub fn of_authorities<'a>(authorities: impl Iterator<Item = &'a [u8]>, own: Option<ClientCert>) -> TlsConfig {
    let roots: Vec<_> = authorities.map(|root| Certificate::from_der(root).to_owned()).collect();
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(own)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build()
}
