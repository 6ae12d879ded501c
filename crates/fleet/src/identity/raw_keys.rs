//! Authentication by raw public keys (RFC 7250) instead of certificates.
//!
//! Each side signs the handshake with an Ed25519 key, and accepts certain public keys from the other side. All private keys
//! of a fleet are derived from one secret (HKDF, RFC 5869), under different labels.

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

use super::{VERSIONS, agents::AgentKeys, provider};

/// PKCS #8 header of an Ed25519 private key, whose 32 bytes follow (RFC 8410, section 7).
const PKCS8_HEADER: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// An Ed25519 private key.
pub(super) type Private = [u8; 32];

/// The public keys that are accepted from the other side.
#[derive(Debug, Clone)]
pub(super) enum Accepted {
    /// Exactly this one.
    One(Vec<u8>),
    /// Those of the agents that are listed, and of tokens.
    Agents(Arc<AgentKeys>),
}

/// Returns the TLS configuration of the side that connects.
pub(super) fn client(own: &Private, accepted: Accepted) -> ClientConfig {
    let provider = provider();
    let own = Arc::new(certified_key(own, &provider));
    ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(VERSIONS)
        .expect("the provider supports TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(RawKeyVerifier { accepted, provider }))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)))
}

/// Returns the TLS configuration of the side that is connected to.
pub(super) fn server(own: &Private, accepted: Accepted) -> ServerConfig {
    let provider = provider();
    let own = Arc::new(certified_key(own, &provider));
    ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(VERSIONS)
        .expect("the provider supports TLS 1.3")
        .with_client_cert_verifier(Arc::new(RawKeyVerifier { accepted, provider }))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)))
}

/// Returns the public half of a key, as a SubjectPublicKeyInfo.
pub(super) fn public(private: &Private) -> Vec<u8> {
    certified_key(private, &provider()).cert[0].to_vec()
}

/// Derives a private key from a secret; each label gives another.
pub(super) fn derive(secret: &[u8], label: &[&[u8]]) -> Private {
    let mut derived = [0; 32];
    Salt::new(HKDF_SHA256, b"dwell fleet 1")
        .extract(secret)
        .expand(label, HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut derived))
        .expect("the output is as long as the hash");
    derived
}

fn certified_key(private: &Private, provider: &CryptoProvider) -> CertifiedKey {
    let mut pkcs8 = PKCS8_HEADER.to_vec();
    pkcs8.extend_from_slice(private);
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8));
    let signing = provider.key_provider.load_private_key(private);
    let signing = signing.expect("any 32 bytes are an Ed25519 key");
    let spki = signing.public_key().expect("an Ed25519 key has a public half");
    CertifiedKey::new(vec![CertificateDer::from(spki.to_vec())], signing)
}

/// Accepts public keys whose private half the other side has shown to have.
#[derive(Debug)]
struct RawKeyVerifier {
    accepted: Accepted,
    provider: Arc<CryptoProvider>,
}

impl RawKeyVerifier {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let is_accepted = match &self.accepted {
            Accepted::One(public) => presented.as_ref() == public,
            Accepted::Agents(agents) => agents.name_of(presented).is_some() || agents.has_token(presented),
        };
        match is_accepted {
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

impl ServerCertVerifier for RawKeyVerifier {
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

impl ClientCertVerifier for RawKeyVerifier {
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
        assert_eq!(
            derive(&b"dwell ".repeat(8), &[b"identity"]).map(|byte| format!("{byte:02x}")).concat(),
            "95087856794f510b980f31eb387baf68c5a00e4b64058fc981c9b098aa7fe538"
        );
    }
}
