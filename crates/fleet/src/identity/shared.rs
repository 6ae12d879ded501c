//! Who has the shared key: an Ed25519 key is derived from it (HKDF, RFC 5869), and each side
//! shows its public half in place of a certificate (RFC 7250) and signs the handshake with
//! it. The other side takes exactly that one.

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

/// Where a key of 32 bytes follows, this is an Ed25519 private key (RFC 8410, section 7).
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Of both sides.
pub(super) fn configs(key: &Key) -> (ClientConfig, ServerConfig) {
    let provider = provider();
    let own = Arc::new(certified(key, &provider));
    let same = Arc::new(Same { spki: own.cert[0].to_vec(), provider: Arc::clone(&provider) });
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(VERSIONS)
        .expect("the provider knows TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::<Same>::clone(&same))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&own))));
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(VERSIONS)
        .expect("the provider knows TLS 1.3")
        .with_client_cert_verifier(same)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    (client, server)
}

fn certified(key: &Key, provider: &CryptoProvider) -> CertifiedKey {
    let mut private = PKCS8.to_vec();
    private.extend_from_slice(&derived(key));
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(private));
    let signing = provider.key_provider.load_private_key(private);
    let signing = signing.expect("any 32 bytes are an Ed25519 key");
    let spki = signing.public_key().expect("Ed25519 tells its public half");
    CertifiedKey::new(vec![CertificateDer::from(spki.to_vec())], signing)
}

fn derived(key: &Key) -> [u8; 32] {
    let mut derived = [0; 32];
    Salt::new(HKDF_SHA256, b"dwell fleet 1")
        .extract(&key.0)
        .expand(&[b"identity"], HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut derived))
        .expect("as long as the hash");
    derived
}

/// Lets in who has the same key.
#[derive(Debug)]
struct Same {
    spki: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl Same {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        match shown.as_ref() == self.spki {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let spki = SubjectPublicKeyInfoDer::from(shown.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &spki, signed, algorithms)
    }
}

impl ServerCertVerifier for Same {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

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
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Same {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

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
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anything else would lock out agents of an older dwell. Computed by an independent
    /// implementation of HKDF.
    #[test]
    fn the_derived_key_is_that_of_rfc_5869() {
        let key = Key(b"dwell ".repeat(8));
        assert_eq!(
            derived(&key).map(|byte| format!("{byte:02x}")).concat(),
            "95087856794f510b980f31eb387baf68c5a00e4b64058fc981c9b098aa7fe538"
        );
    }
}
