//! Connection IDs as the core has them.
#![allow(unsafe_code)]

use std::ptr;

use crate::abi;

pub(super) fn wait_code(wait_ns: u64) -> u16 {
    // SAFETY: a pure function of its argument.
    unsafe { abi::dwell_quic_lb_wait_code(wait_ns) }
}

pub(super) fn wait_ns(code: u16) -> u64 {
    // SAFETY: a pure function of its argument.
    unsafe { abi::dwell_quic_lb_wait_ns(code) }
}

pub(super) fn config(
    rotation: u8,
    server_id_bytes: u8,
    nonce_bytes: u8,
    key: Option<&[u8; 16]>,
) -> abi::dwell_cid_config {
    let mut config = abi::dwell_cid_config::default();
    // SAFETY: the key has 16 octets, if there is one; the core keeps no pointer.
    let known = unsafe {
        abi::dwell_quic_lb_config(
            &mut config,
            rotation.into(),
            server_id_bytes.into(),
            nonce_bytes.into(),
            key.map_or(ptr::null(), |key| key.as_ptr()),
        )
    };
    assert_ne!(known, 0, "the caller knows which layouts there are");
    config
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::quic_lb::{Config, Stamp, TokenStamp};

    /// Encodes by the tables of the core.
    fn encode(config: &abi::dwell_cid_config, server_id: &[u8], nonce: &[u8]) -> Vec<u8> {
        let mut cid = vec![0; abi::DWELL_CID_MAX_BYTES as usize];
        // SAFETY: the caller ensures that both have the configured lengths; there is room for the longest.
        let bytes = unsafe { abi::dwell_quic_lb_encode(config, server_id.as_ptr(), nonce.as_ptr(), cid.as_mut_ptr()) };
        cid.truncate(bytes as usize);
        cid
    }

    fn encode_stamped(config: &abi::dwell_cid_config, server: u16, stamp: u64) -> Vec<u8> {
        let mut cid = vec![0; abi::DWELL_CID_MAX_BYTES as usize];
        // SAFETY: the caller ensures that the configuration has that layout; there is room for the longest.
        let bytes = unsafe { abi::dwell_quic_lb_encode_stamped(config, server, stamp, cid.as_mut_ptr()) };
        cid.truncate(bytes as usize);
        cid
    }

    fn encode_token(config: &abi::dwell_cid_config, server: u16, stamp: TokenStamp) -> Vec<u8> {
        let mut token = vec![0; abi::DWELL_CID_MAX_BYTES as usize];
        let (freshness, minutes) = (stamp.freshness, stamp.lifetime_minutes);
        // SAFETY: the caller ensures that the configuration has that layout; there is room for the longest.
        let bytes = unsafe { abi::dwell_quic_lb_encode_token(config, server, freshness, minutes, token.as_mut_ptr()) };
        token.truncate(bytes as usize);
        token
    }

    fn decode(config: &abi::dwell_cid_config, cid: &[u8]) -> Option<[u8; 32]> {
        let mut plain = abi::dwell_cid_plain::default();
        // SAFETY: the length is that of the connection ID.
        let known = unsafe { abi::dwell_quic_lb_decode(config, cid.as_ptr(), cid.len() as u32, &mut plain) };
        (known != 0).then_some(plain.octet)
    }

    proptest! {
        #[test]
        fn user_space_and_the_core_have_the_same_connection_ids(
            rotation in 0u8..7,
            (server, nonce) in (1u8..=15).prop_flat_map(|server| (Just(server), 4u8..=(19 - server))),
            key: Option<[u8; 16]>,
            octets: [u8; 19],
            cid: Vec<u8>,
        ) {
            let config = Config::new(rotation, server, nonce, key).expect("a layout");
            let (id, rest) = octets.split_at(server.into());
            let rest = &rest[..nonce.into()];
            let made = config.encode(id, rest).expect("as long as configured");
            prop_assert_eq!(&made[..], encode(&config.to_core(), id, rest));
            // What strangers make up has any length, and mostly another rotation.
            let mut ours = cid.clone();
            ours.iter_mut().take(1).for_each(|first| *first = rotation << 5 | *first & 31);
            for cid in [cid, ours, octets.to_vec()] {
                let decoded = config.decode(&cid).map(|decoded| [decoded.server_id(), decoded.nonce()].concat());
                let by_core = decode(&config.to_core(), &cid).map(|plain| plain[..usize::from(server + nonce)].to_vec());
                prop_assert_eq!(decoded, by_core);
            }
        }

        #[test]
        fn user_space_and_the_core_have_the_same_stamps(rotation in 0u8..7, key: [u8; 16], server: u16, word: u64) {
            let own = Config::own(rotation, key).expect("a rotation");
            let made = own.encode_stamped(server, Stamp::from_word(word));
            prop_assert_eq!(&made[..], encode_stamped(&own.to_core(), server, word));
            let stamp = TokenStamp { freshness: word >> 16, lifetime_minutes: word as u16 };
            prop_assert_eq!(&own.encode_token(server, stamp)[..], encode_token(&own.to_core(), server, stamp));
        }
    }

    fn block(key: &str, from: &str, decrypt: bool) -> String {
        let octets = |hex: &str| -> [u8; 16] {
            let bytes: Vec<u8> =
                (0..16).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex")).collect();
            bytes.try_into().expect("16 octets")
        };
        let config = config(0, 2, 14, Some(&octets(key)));
        let mut block = octets(from);
        // SAFETY: a block has 16 octets.
        unsafe { abi::dwell_quic_lb_block(&config, block.as_mut_ptr(), decrypt.into()) };
        block.iter().map(|octet| format!("{octet:02x}")).collect()
    }

    #[test]
    fn aes_is_that_of_fips_197_and_sp_800_38a() {
        let vectors = [
            // FIPS 197, appendices B and C.1
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "3243f6a8885a308d313198a2e0370734",
                "3925841d02dc09fbdc118597196a0b32",
            ),
            (
                "000102030405060708090a0b0c0d0e0f",
                "00112233445566778899aabbccddeeff",
                "69c4e0d86a7b0430d8cdb78070b4c55a",
            ),
            // SP 800-38A, F.1.1
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "6bc1bee22e409f96e93d7e117393172a",
                "3ad77bb40d7a3660a89ecaf32466ef97",
            ),
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "ae2d8a571e03ac9c9eb76fac45af8e51",
                "f5d3d58503b9699de785895a96fdbaaf",
            ),
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "30c81c46a35ce411e5fbc1191a0a52ef",
                "43b1cd7f598ece23881b00e3ed030688",
            ),
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "f69f2445df4f9b17ad2b417be66c3710",
                "7b0c785e27e8ad3f8223207104725dd4",
            ),
        ];
        for (key, plain, cipher) in vectors {
            assert_eq!(block(key, plain, false), cipher);
            assert_eq!(block(key, cipher, true), plain);
        }
    }
}
