//! Connection IDs: the draft's vectors, all its layouts, and dwell's own layout.

mod load;
mod vectors;

use dwell_engine::quic_lb::{Config, ConfigError, EncodeError, Load, Stamp, TokenStamp};
use proptest::prelude::*;

const KEY: [u8; 16] = *b"a key of the lab";

fn stamp(freshness: u64, code: u16) -> Stamp {
    Stamp { freshness, load: Load::from_code(code) }
}

#[test]
fn layouts_that_the_draft_has_not_are_refused() {
    let refused = |rotation, server, nonce| Config::new(rotation, server, nonce, None).err();
    assert_eq!(refused(7, 2, 14), Some(ConfigError::Rotation(7)));
    assert_eq!(refused(0, 0, 14), Some(ConfigError::ServerId(0)));
    assert_eq!(refused(0, 16, 4), Some(ConfigError::ServerId(16)));
    assert_eq!(refused(0, 2, 3), Some(ConfigError::Nonce(3)));
    assert_eq!(refused(0, 2, 18), Some(ConfigError::Together(20)));
    assert_eq!(refused(6, 1, 18), None);
    assert_eq!(refused(0, 15, 4), None);
}

#[test]
fn what_is_not_as_long_as_configured_is_refused() {
    let config = Config::new(0, 3, 4, None).expect("a layout");
    assert_eq!(config.encode(&[1, 2], &[0; 4]), Err(EncodeError::ServerId(2, 3)));
    assert_eq!(config.encode(&[1, 2, 3], &[0; 5]), Err(EncodeError::Nonce(5, 4)));
    let cid = config.encode(&[1, 2, 3], &[4; 4]).expect("it is as long");
    assert_eq!(config.decode(&cid[..7]), None, "cut off");
    assert_eq!(config.decode(&[]), None);
    let longer = [&cid[..], &[9, 9]].concat();
    let decoded = config.decode(&longer).expect("what follows is the server's");
    assert_eq!(decoded.server_id(), [1, 2, 3]);
    assert_eq!(decoded.nonce(), [4; 4]);
}

#[test]
fn another_rotation_is_not_decoded() {
    let config = Config::own(3, KEY).expect("a rotation");
    let cid = config.encode_stamped(9, stamp(1, 1));
    assert_eq!(cid[0], 3 << 5 | 16);
    for rotation in (0..8u8).filter(|rotation| *rotation != 3) {
        let mut other = cid.to_vec();
        other[0] = rotation << 5 | 16;
        assert_eq!(config.decode(&other), None);
        assert_eq!(config.decode_stamped(&other), None);
    }
}

#[test]
fn the_own_layout_is_the_draft_s_with_a_check_and_a_stamp_in_its_nonce() {
    let own = Config::own(2, KEY).expect("a rotation");
    let cid = own.encode_stamped(0x1234, stamp(0x6655_4433_2211, 0xabcd));
    assert_eq!(cid.len(), 17);
    let draft = Config::new(2, 2, 14, Some(KEY)).expect("a layout");
    let decoded = draft.decode(&cid).expect("any balancer routes it");
    assert_eq!(decoded.server_id(), [0x12, 0x34]);
    assert_eq!(decoded.nonce(), [0, 0, 0, 0, 0, 0, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xab, 0xcd]);
    assert_eq!(draft.decode_stamped(&cid), None, "this layout knows no stamp");
}

#[test]
fn two_ids_that_follow_have_nothing_in_common() {
    let own = Config::own(0, KEY).expect("a rotation");
    let a = own.encode_stamped(1, stamp(1, 1));
    let b = own.encode_stamped(1, stamp(2, 1));
    let differ: u32 = a[1..].iter().zip(&b[1..]).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert!((32..96).contains(&differ), "{differ} of 128 bits");
}

#[test]
fn a_token_begins_as_the_draft_s_ids_do_with_a_check_of_its_own() {
    let own = Config::own(2, KEY).expect("a rotation");
    let stamp = TokenStamp { freshness: 0x6655_4433_2211, lifetime_minutes: 360 };
    let prefix = own.encode_token(0x1234, stamp);
    assert_eq!(prefix[0], 2 << 5 | 16);
    let draft = Config::new(2, 2, 14, Some(KEY)).expect("a layout");
    let decoded = draft.decode(&prefix).expect("it is one block");
    assert_eq!(decoded.server_id(), [0x12, 0x34]);
    assert_eq!(decoded.nonce(), [&b"token1"[..], &[0x66, 0x55, 0x44, 0x33, 0x22, 0x11], &[1, 104]].concat());
    let longer = [&prefix[..], &[9; 40]].concat();
    assert_eq!(own.decode_token(&longer), Some((0x1234, stamp)), "what follows is the server's");
    assert_eq!(own.decode_token(&longer[..16]), None, "cut off");
    assert_eq!(draft.decode_token(&longer), None, "this layout has no check");
}

#[test]
fn a_connection_id_is_not_a_token_nor_a_token_a_connection_id() {
    let own = Config::own(2, KEY).expect("a rotation");
    let token = own.encode_token(7, TokenStamp { freshness: 5, lifetime_minutes: 1 });
    assert_eq!(own.decode_stamped(&token), None);
    assert_eq!(own.decode_token(&own.encode_stamped(7, stamp(5, 1))), None);
}

#[test]
fn debug_output_has_no_key() {
    let shown = format!("{:?}", Config::own(0, [0x5a; 16]).expect("a rotation"));
    assert!(!shown.contains("90") && !shown.contains("5a"), "{shown}");
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        rotation in 0u8..7,
        (server, nonce) in (1u8..=15).prop_flat_map(|server| (Just(server), 4u8..=(19 - server))),
        keyed: bool,
        octets: [u8; 19],
        key: [u8; 16],
    ) {
        let config = Config::new(rotation, server, nonce, keyed.then_some(key)).expect("a layout");
        let (id, rest) = octets.split_at(server.into());
        let rest = &rest[..nonce.into()];
        let cid = config.encode(id, rest).expect("as long as configured");
        prop_assert_eq!(cid.len(), config.cid_bytes());
        prop_assert_eq!(cid[0], rotation << 5 | (server + nonce));
        let decoded = config.decode(&cid).expect("of this rotation");
        prop_assert_eq!(decoded.server_id(), id);
        prop_assert_eq!(decoded.nonce(), rest);
        if !keyed {
            prop_assert_eq!(&cid[1..=usize::from(server)], id);
        }
    }

    #[test]
    fn a_stamp_comes_back(server: u16, word: u64, key: [u8; 16], rotation in 0u8..7) {
        let own = Config::own(rotation, key).expect("a rotation");
        let cid = own.encode_stamped(server, Stamp::from_word(word));
        prop_assert_eq!(own.decode_stamped(&cid), Some((server, Stamp::from_word(word))));
        prop_assert_eq!(Stamp::from_word(word).to_word(), word);
    }

    #[test]
    fn what_was_changed_or_made_up_has_no_stamp(server: u16, word: u64, bit in 0usize..136, made_up: [u8; 17]) {
        let own = Config::own(1, KEY).expect("a rotation");
        let mut cid = own.encode_stamped(server, Stamp::from_word(word)).to_vec();
        cid[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(own.decode_stamped(&cid), None);
        prop_assert_eq!(own.decode_stamped(&cid[..16]), None);
        let mut made_up = made_up;
        made_up[0] = 1 << 5 | 16;
        prop_assert_eq!(own.decode_stamped(&made_up), None);
    }
}
