//! Address-validation tokens (RFC 9000, 8.1.3) that name their server to a balancer.
//!
//! quinn seals its tokens, and appends the nonce from which it derives their key. Here a block that the balancer can read
//! comes before that, and is authenticated with it.

use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_engine::quic_lb::TOKEN_PREFIX;
use quinn::{
    TokenLog, TokenReuseError,
    crypto::{AeadKey, CryptoError, HandshakeTokenKey},
};
use ring::{
    hkdf,
    rand::{SecureRandom, SystemRandom},
};
use zeroize::Zeroizing;

use crate::{Cids, Error, Result};

/// The key of a server's tokens, which lasts as long as the process. Tokens of other processes validate no address, and
/// their beginnings are still good for the balancer.
pub(crate) struct TokenKey {
    inner: hkdf::Prk,
    cids: Cids,
    lifetime_minutes: u16,
}

impl TokenKey {
    pub(crate) fn new(cids: Cids, lifetime: Duration) -> Result<TokenKey> {
        let mut secret = Zeroizing::new([0; 32]);
        SystemRandom::new().fill(&mut *secret).map_err(|_| Error::Random)?;
        let minutes = lifetime.as_secs().div_ceil(60).max(1);
        Ok(TokenKey {
            inner: hkdf::Salt::new(hkdf::HKDF_SHA256, b"dwell token").extract(&*secret),
            cids,
            lifetime_minutes: minutes.try_into().unwrap_or(u16::MAX),
        })
    }
}

impl HandshakeTokenKey for TokenKey {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        Box::new(PrefixedKey {
            inner: self.inner.aead_from_hkdf(random_bytes),
            cids: self.cids.clone(),
            lifetime_minutes: self.lifetime_minutes,
        })
    }
}

/// The key of one token.
struct PrefixedKey {
    inner: Box<dyn AeadKey>,
    cids: Cids,
    lifetime_minutes: u16,
}

impl AeadKey for PrefixedKey {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        let prefix = self.cids.token_prefix(self.lifetime_minutes);
        self.inner.seal(data, &[&prefix[..], additional_data].concat())?;
        data.splice(..0, prefix);
        Ok(())
    }

    fn open<'a>(&self, data: &'a mut [u8], additional_data: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let (prefix, sealed) = data.split_at_mut_checked(TOKEN_PREFIX).ok_or(CryptoError)?;
        self.inner.open(sealed, &[&*prefix, additional_data].concat())
    }
}

/// Remembers the tokens that were used, so that each validates an address once, for the newest period in which tokens were
/// issued and the one before. A period is as long as the lifetime of a token.
///
/// A token sets one bit of a megabyte. So of 840,000 tokens of a period the last ones find their bit set with a probability
/// of 10 %. Then their address is validated by the handshake, as without a token.
#[derive(Default)]
pub(crate) struct UsedTokens(Mutex<Periods>);

#[derive(Default)]
struct Periods {
    newest: u64,
    present: Vec<u64>,
    before: Vec<u64>,
}

const WORDS: usize = 1 << 17;

impl TokenLog for UsedTokens {
    /// Refuses a token whose bit is set. Its nonce is random, and quinn has authenticated it.
    fn check_and_insert(&self, nonce: u128, issued: SystemTime, lifetime: Duration) -> Result<(), TokenReuseError> {
        let issued = issued.duration_since(UNIX_EPOCH).unwrap_or_default();
        let period = issued.as_secs() / lifetime.as_secs().max(1);
        let mut periods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if period > periods.newest {
            let last = mem::take(&mut periods.present);
            periods.before = if period == periods.newest + 1 { last } else { Vec::new() };
            periods.newest = period;
        }
        let bits = match periods.newest - period {
            0 => &mut periods.present,
            1 => &mut periods.before,
            _ => return Err(TokenReuseError),
        };
        bits.resize(WORDS, 0);
        let (word, bit) = ((nonce >> 6) as usize % WORDS, 1 << (nonce % 64));
        let is_used = bits[word] & bit != 0;
        bits[word] |= bit;
        if is_used { Err(TokenReuseError) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::quic_lb::Config;

    use super::*;

    fn key(lifetime: Duration) -> TokenKey {
        let cids = Cids::new(7, Config::own(2, [5; 16]).unwrap(), None, || None).unwrap();
        TokenKey::new(cids, lifetime).unwrap()
    }

    fn seal(key: &TokenKey) -> Vec<u8> {
        let mut token = b"content".to_vec();
        key.aead_from_hkdf(&[1; 16]).seal(&mut token, &[]).unwrap();
        token
    }

    fn open(key: &TokenKey, token: &[u8]) -> Option<Vec<u8>> {
        let mut token = token.to_vec();
        key.aead_from_hkdf(&[1; 16]).open(&mut token, &[]).ok().map(|content| content.to_vec())
    }

    #[test]
    fn a_token_names_its_server_and_is_sealed_as_a_whole() {
        let key = key(Duration::from_secs(3601));
        let (token, other) = (seal(&key), seal(&key));
        let (server, stamp) = key.cids.read_token(&token).unwrap();
        assert_eq!((server, stamp.lifetime_minutes), (7, 61));
        assert_eq!(open(&key, &token), Some(b"content".to_vec()));
        assert_ne!(token[..TOKEN_PREFIX], other[..TOKEN_PREFIX]);
        let exchanged = [&other[..TOKEN_PREFIX], &token[TOKEN_PREFIX..]].concat();
        assert_eq!(open(&key, &exchanged), None);
        assert_eq!(open(&key, &token[..TOKEN_PREFIX - 1]), None);
    }

    #[test]
    fn another_process_opens_no_token_and_reads_whose_it_is() {
        let (key, other) = (key(Duration::MAX), key(Duration::ZERO));
        let token = seal(&key);
        assert_eq!(open(&other, &token), None);
        let (server, stamp) = other.cids.read_token(&token).unwrap();
        assert_eq!((server, stamp.lifetime_minutes), (7, u16::MAX));
        let brief = key.cids.read_token(&seal(&other)).unwrap().1;
        assert_eq!(brief.lifetime_minutes, 1);
    }

    #[test]
    fn a_token_is_used_once() {
        const LIFETIME: Duration = Duration::from_secs(100);
        let used = UsedTokens::default();
        let check = |nonce: u128, seconds: u64| {
            let issued = UNIX_EPOCH + Duration::from_secs(seconds);
            used.check_and_insert(nonce, issued, LIFETIME).is_ok()
        };
        let nonces = [0, 1, 63, 64, u128::MAX].into_iter();
        for (nonce, seconds) in nonces.zip(1_000..) {
            assert!(check(nonce, seconds));
            assert!(!check(nonce, seconds));
        }
        // The period before is still known, and nothing older is taken.
        assert!(check(5, 1_150));
        assert!(!check(0, 1_000) && check(2, 1_000) && !check(2, 1_000));
        assert!(check(6, 1_250));
        assert!(!check(5, 1_150) && !check(3, 1_000));
        // After a silence nothing of before counts as used.
        assert!(check(6, 9_950) && check(5, 9_850));
    }
}
