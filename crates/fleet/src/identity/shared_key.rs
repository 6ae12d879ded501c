//! Authentication by a shared key.
//!
//! Both sides derive the same Ed25519 key pair from the shared key (HKDF, RFC 5869). Each presents the public half as a
//! raw public key instead of a certificate (RFC 7250), signs the handshake with the private half, and accepts exactly
//! this public key from the other side.

use std::sync::Arc;

use ring::hkdf::{HKDF_SHA256, Salt};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls13_signature_with_raw_key},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    server::{
        AlwaysResolvesServerRawPublicKeys,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use super::{Key, VERSIONS, provider};

/// PKCS #8 header of an Ed25519 private key, whose 32 bytes follow (RFC 8410, section 7).
const PKCS8_HEADER: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// TLS configurations of an agent and of a collector.
pub(super) fn configs(key: &Key) -> (ClientConfig, ServerConfig) {
    let provider = provider();
    let own = Arc::new(certified_key(key, &provider));
    let verifier = Arc::new(SharedKeyVerifier { spki: own.cert[0].to_vec(), provider: Arc::clone(&provider) });
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(VERSIONS)
        .expect("the provider supports TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::<SharedKeyVerifier>::clone(&verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&own))));
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(VERSIONS)
        .expect("the provider supports TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    (client, server)
}

fn certified_key(key: &Key, provider: &CryptoProvider) -> CertifiedKey {
    let mut private = PKCS8_HEADER.to_vec();
    private.extend_from_slice(&derive(key));
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(private));
    let signing = provider.key_provider.load_private_key(private);
    let signing = signing.expect("any 32 bytes are an Ed25519 key");
    let spki = signing.public_key().expect("an Ed25519 key has a public half");
    CertifiedKey::new(vec![CertificateDer::from(spki.to_vec())], signing)
}

fn derive(key: &Key) -> [u8; 32] {
    let mut derived = [0; 32];
    Salt::new(HKDF_SHA256, b"dwell fleet 1")
        .extract(&key.0)
        .expand(&[b"identity"], HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut derived))
        .expect("the output is as long as the hash");
    derived
}

/// Accepts exactly our own public key, whose private half only holders of the shared key can derive.
#[derive(Debug)]
struct SharedKeyVerifier {
    spki: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl SharedKeyVerifier {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        match presented.as_ref() == self.spki {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

/// Methods that [`ServerCertVerifier`] and [`ClientCertVerifier`] have in common.
macro_rules! verify_raw_public_key_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::PeerIncompatible::Tls12NotOffered.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            presented: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let spki = SubjectPublicKeyInfoDer::from(presented.as_ref());
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &spki, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for SharedKeyVerifier {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(presented).map(|()| ServerCertVerified::assertion())
    }

    verify_raw_public_key_signatures!();
}

impl ClientCertVerifier for SharedKeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(presented).map(|()| ClientCertVerified::assertion())
    }

    verify_raw_public_key_signatures!();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected key was computed by an independent implementation of HKDF. Any other key would lock out agents of
    /// an older version.
    #[test]
    fn the_derived_key_agrees_with_rfc_5869() {
        let key = Key(b"dwell ".repeat(8));
        assert_eq!(
            derive(&key).map(|byte| format!("{byte:02x}")).concat(),
            "95087856794f510b980f31eb387baf68c5a00e4b64058fc981c9b098aa7fe538"
        );
    }
}
