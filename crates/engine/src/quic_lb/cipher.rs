//! Encryption of connection IDs in user space, by AES whose time depends on neither key nor content. The data plane has the
//! same by the tables of the core.

use aes::{
    Aes128,
    cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit},
};
use zeroize::Zeroizing;

/// Octets of a block, and of a server ID and nonce that are encrypted as one.
const BLOCK_BYTES: usize = 16;

/// The key of the connection IDs of one rotation. It is cleared from memory on drop.
#[derive(Clone)]
pub(super) struct Key {
    octets: Zeroizing<[u8; 16]>,
    aes: Aes128,
}

impl Key {
    pub(super) fn new(octets: [u8; 16]) -> Key {
        let octets = Zeroizing::new(octets);
        Key { aes: Aes128::new(&(*octets).into()), octets }
    }

    pub(super) fn octets(&self) -> &[u8; 16] {
        &self.octets
    }

    /// Encrypts server ID and nonce in place.
    pub(super) fn seal(&self, plain: &mut [u8]) {
        match <&mut [u8; BLOCK_BYTES]>::try_from(&mut *plain) {
            Ok(block) => self.aes.encrypt_block(block.into()),
            Err(_) => self.four_passes(plain, [1, 2, 3, 4]),
        }
    }

    /// Decrypts server ID and nonce in place.
    pub(super) fn open(&self, sealed: &mut [u8]) {
        match <&mut [u8; BLOCK_BYTES]>::try_from(&mut *sealed) {
            Ok(block) => self.aes.decrypt_block(block.into()),
            Err(_) => self.four_passes(sealed, [4, 3, 2, 1]),
        }
    }

    /// A Feistel network over both halves, which are the most significant bits of a block. If the number of octets is
    /// odd, the halves share the one in the middle: the left half has its first four bits. Odd passes change the right half.
    fn four_passes(&self, octets: &mut [u8], passes: [u8; 4]) {
        let (bytes, half) = (octets.len(), octets.len().div_ceil(2));
        let starts = [0, bytes / 2];
        let (all, shared_bits) = (u128::MAX << (128 - 8 * half), 4 * (bytes % 2));
        let masks = [all << shared_bits, all >> shared_bits & all];
        let mut halves = [0, 1].map(|side| {
            let mut block = [0; BLOCK_BYTES];
            block[..half].copy_from_slice(&octets[starts[side]..][..half]);
            u128::from_be_bytes(block) & masks[side]
        });
        for pass in passes {
            let to = usize::from(pass & 1);
            let block = halves[1 - to] | (bytes as u128) << 8 | u128::from(pass);
            let mut block = block.to_be_bytes().into();
            self.aes.encrypt_block(&mut block);
            halves[to] ^= u128::from_be_bytes(block.into()) & masks[to];
        }
        octets.fill(0);
        for (half, start) in halves.into_iter().zip(starts) {
            let of_half = half.to_be_bytes();
            octets[start..].iter_mut().zip(of_half).for_each(|(octet, of_half)| *octet |= of_half);
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.octets == other.octets
    }
}

impl Eq for Key {}
