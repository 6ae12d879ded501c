// Made by bindgen: see tests/bindings.rs. Not to be edited.

#[repr(C)]
#[derive(Copy, Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct __BindgenBitfieldUnit<Storage> {
    storage: Storage,
}
impl<Storage> __BindgenBitfieldUnit<Storage> {
    #[inline]
    pub const fn new(storage: Storage) -> Self {
        Self { storage }
    }
}
impl<Storage> __BindgenBitfieldUnit<Storage>
where
    Storage: AsRef<[u8]> + AsMut<[u8]>,
{
    #[inline]
    fn extract_bit(byte: u8, index: usize) -> bool {
        let bit_index = if cfg!(target_endian = "big") { 7 - (index % 8) } else { index % 8 };
        let mask = 1 << bit_index;
        byte & mask == mask
    }
    #[inline]
    pub fn get_bit(&self, index: usize) -> bool {
        debug_assert!(index / 8 < self.storage.as_ref().len());
        let byte_index = index / 8;
        let byte = self.storage.as_ref()[byte_index];
        Self::extract_bit(byte, index)
    }
    #[inline]
    pub unsafe fn raw_get_bit(this: *const Self, index: usize) -> bool {
        debug_assert!(index / 8 < core::mem::size_of::<Storage>());
        let byte_index = index / 8;
        let byte = unsafe { *(core::ptr::addr_of!((*this).storage) as *const u8).offset(byte_index as isize) };
        Self::extract_bit(byte, index)
    }
    #[inline]
    fn change_bit(byte: u8, index: usize, val: bool) -> u8 {
        let bit_index = if cfg!(target_endian = "big") { 7 - (index % 8) } else { index % 8 };
        let mask = 1 << bit_index;
        if val {
            byte | mask
        } else {
            byte & !mask
        }
    }
    #[inline]
    pub fn set_bit(&mut self, index: usize, val: bool) {
        debug_assert!(index / 8 < self.storage.as_ref().len());
        let byte_index = index / 8;
        let byte = &mut self.storage.as_mut()[byte_index];
        *byte = Self::change_bit(*byte, index, val);
    }
    #[inline]
    pub unsafe fn raw_set_bit(this: *mut Self, index: usize, val: bool) {
        debug_assert!(index / 8 < core::mem::size_of::<Storage>());
        let byte_index = index / 8;
        let byte = unsafe { (core::ptr::addr_of_mut!((*this).storage) as *mut u8).offset(byte_index as isize) };
        unsafe { *byte = Self::change_bit(*byte, index, val) };
    }
    #[inline]
    pub fn get(&self, bit_offset: usize, bit_width: u8) -> u64 {
        debug_assert!(bit_width <= 64);
        debug_assert!(bit_offset / 8 < self.storage.as_ref().len());
        debug_assert!((bit_offset + (bit_width as usize) + 7) / 8 <= self.storage.as_ref().len());
        if bit_width == 0 {
            return 0;
        }
        let mut val = 0u64;
        let storage = self.storage.as_ref();
        let start_byte = bit_offset / 8;
        let bit_shift = bit_offset % 8;
        let bytes_needed = (bit_width as usize + bit_shift + 7) / 8;
        if cfg!(target_endian = "big") {
            for i in 0..bytes_needed {
                val |= (storage[start_byte + i].reverse_bits() as u64) << (i * 8);
            }
        } else {
            for i in 0..bytes_needed {
                val |= (storage[start_byte + i] as u64) << (i * 8);
            }
        }
        val >>= bit_shift;
        if bit_width < 64 {
            val &= (1u64 << bit_width) - 1;
        }
        if cfg!(target_endian = "big") {
            val = val.reverse_bits() >> (64 - bit_width as usize);
        }
        val
    }
    #[inline]
    pub unsafe fn raw_get(this: *const Self, bit_offset: usize, bit_width: u8) -> u64 {
        debug_assert!(bit_width <= 64);
        debug_assert!(bit_offset / 8 < core::mem::size_of::<Storage>());
        debug_assert!((bit_offset + (bit_width as usize) + 7) / 8 <= core::mem::size_of::<Storage>());
        if bit_width == 0 {
            return 0;
        }
        let mut val = 0u64;
        let start_byte = bit_offset / 8;
        let bit_shift = bit_offset % 8;
        let bytes_needed = (bit_width as usize + bit_shift + 7) / 8;
        let storage_ptr = unsafe { core::ptr::addr_of!((*this).storage) as *const u8 };
        if cfg!(target_endian = "big") {
            for i in 0..bytes_needed {
                let byte = unsafe { *storage_ptr.add(start_byte + i) };
                val |= (byte.reverse_bits() as u64) << (i * 8);
            }
        } else {
            for i in 0..bytes_needed {
                let byte = unsafe { *storage_ptr.add(start_byte + i) };
                val |= (byte as u64) << (i * 8);
            }
        }
        val >>= bit_shift;
        if bit_width < 64 {
            val &= (1u64 << bit_width) - 1;
        }
        if cfg!(target_endian = "big") {
            val = val.reverse_bits() >> (64 - bit_width as usize);
        }
        val
    }
    #[inline]
    pub fn set(&mut self, bit_offset: usize, bit_width: u8, val: u64) {
        debug_assert!(bit_width <= 64);
        debug_assert!(bit_offset / 8 < self.storage.as_ref().len());
        debug_assert!((bit_offset + (bit_width as usize) + 7) / 8 <= self.storage.as_ref().len());
        if bit_width == 0 {
            return;
        }
        let mut val = val;
        if bit_width < 64 {
            val &= (1u64 << bit_width) - 1;
        }
        if cfg!(target_endian = "big") {
            val = val.reverse_bits() >> (64 - bit_width as usize);
        }
        let storage = self.storage.as_mut();
        let start_byte = bit_offset / 8;
        let bit_shift = bit_offset % 8;
        let bytes_needed = (bit_width as usize + bit_shift + 7) / 8;
        val <<= bit_shift;
        let field_mask = if bit_width as usize + bit_shift >= 64 {
            !0u64 << bit_shift
        } else {
            ((1u64 << bit_width) - 1) << bit_shift
        };
        for i in 0..bytes_needed {
            let byte_val = (val >> (i * 8)) as u8;
            let byte_mask = (field_mask >> (i * 8)) as u8;
            if cfg!(target_endian = "big") {
                let byte = storage[start_byte + i].reverse_bits();
                let new_byte = (byte & !byte_mask) | (byte_val & byte_mask);
                storage[start_byte + i] = new_byte.reverse_bits();
            } else {
                storage[start_byte + i] = (storage[start_byte + i] & !byte_mask) | (byte_val & byte_mask);
            }
        }
    }
    #[inline]
    pub unsafe fn raw_set(this: *mut Self, bit_offset: usize, bit_width: u8, val: u64) {
        debug_assert!(bit_width <= 64);
        debug_assert!(bit_offset / 8 < core::mem::size_of::<Storage>());
        debug_assert!((bit_offset + (bit_width as usize) + 7) / 8 <= core::mem::size_of::<Storage>());
        if bit_width == 0 {
            return;
        }
        let mut val = val;
        if bit_width < 64 {
            val &= (1u64 << bit_width) - 1;
        }
        if cfg!(target_endian = "big") {
            val = val.reverse_bits() >> (64 - bit_width as usize);
        }
        let start_byte = bit_offset / 8;
        let bit_shift = bit_offset % 8;
        let bytes_needed = (bit_width as usize + bit_shift + 7) / 8;
        val <<= bit_shift;
        let field_mask = if bit_width as usize + bit_shift >= 64 {
            !0u64 << bit_shift
        } else {
            ((1u64 << bit_width) - 1) << bit_shift
        };
        let storage_ptr = unsafe { core::ptr::addr_of_mut!((*this).storage) as *mut u8 };
        for i in 0..bytes_needed {
            let byte_val = (val >> (i * 8)) as u8;
            let byte_mask = (field_mask >> (i * 8)) as u8;
            let byte_ptr = unsafe { storage_ptr.add(start_byte + i) };
            if cfg!(target_endian = "big") {
                let byte = unsafe { (*byte_ptr).reverse_bits() };
                let new_byte = (byte & !byte_mask) | (byte_val & byte_mask);
                unsafe { *byte_ptr = new_byte.reverse_bits() };
            } else {
                unsafe { *byte_ptr = (*byte_ptr & !byte_mask) | (byte_val & byte_mask) };
            }
        }
    }
}
#[doc = " Const-generic methods for efficient bitfield access when offset and width"]
#[doc = " are known at compile time."]
impl<const N: usize> __BindgenBitfieldUnit<[u8; N]> {
    #[doc = " Get a field using const generics for compile-time optimization."]
    #[doc = " Uses native word size operations when the field fits in usize."]
    #[inline]
    pub const fn get_const<const BIT_OFFSET: usize, const BIT_WIDTH: u8>(&self) -> u64 {
        debug_assert!(BIT_WIDTH <= 64);
        debug_assert!(BIT_OFFSET / 8 < N);
        debug_assert!((BIT_OFFSET + (BIT_WIDTH as usize) + 7) / 8 <= N);
        if BIT_WIDTH == 0 {
            return 0;
        }
        let start_byte = BIT_OFFSET / 8;
        let bit_shift = BIT_OFFSET % 8;
        let bytes_needed = (BIT_WIDTH as usize + bit_shift + 7) / 8;
        if BIT_WIDTH as usize + bit_shift <= usize::BITS as usize {
            let mut val = 0usize;
            if cfg!(target_endian = "big") {
                let mut i = 0;
                while i < bytes_needed {
                    val |= (self.storage[start_byte + i].reverse_bits() as usize) << (i * 8);
                    i += 1;
                }
            } else {
                let mut i = 0;
                while i < bytes_needed {
                    val |= (self.storage[start_byte + i] as usize) << (i * 8);
                    i += 1;
                }
            }
            val >>= bit_shift;
            if (BIT_WIDTH as u32) < usize::BITS {
                val &= (1usize << BIT_WIDTH) - 1;
            }
            if cfg!(target_endian = "big") {
                val = val.reverse_bits() >> (usize::BITS as usize - BIT_WIDTH as usize);
            }
            val as u64
        } else {
            let mut val = 0u64;
            if cfg!(target_endian = "big") {
                let mut i = 0;
                while i < bytes_needed {
                    val |= (self.storage[start_byte + i].reverse_bits() as u64) << (i * 8);
                    i += 1;
                }
            } else {
                let mut i = 0;
                while i < bytes_needed {
                    val |= (self.storage[start_byte + i] as u64) << (i * 8);
                    i += 1;
                }
            }
            val >>= bit_shift;
            if BIT_WIDTH < 64 {
                val &= (1u64 << BIT_WIDTH) - 1;
            }
            if cfg!(target_endian = "big") {
                val = val.reverse_bits() >> (64 - BIT_WIDTH as usize);
            }
            val
        }
    }
    #[doc = " Set a field using const generics for compile-time optimization."]
    #[doc = " Uses native word size operations when the field fits in usize."]
    #[inline]
    pub fn set_const<const BIT_OFFSET: usize, const BIT_WIDTH: u8>(&mut self, val: u64) {
        debug_assert!(BIT_WIDTH <= 64);
        debug_assert!(BIT_OFFSET / 8 < N);
        debug_assert!((BIT_OFFSET + (BIT_WIDTH as usize) + 7) / 8 <= N);
        if BIT_WIDTH == 0 {
            return;
        }
        let start_byte = BIT_OFFSET / 8;
        let bit_shift = BIT_OFFSET % 8;
        let bytes_needed = (BIT_WIDTH as usize + bit_shift + 7) / 8;
        if BIT_WIDTH as usize + bit_shift <= usize::BITS as usize {
            let mut val = val as usize;
            if (BIT_WIDTH as u32) < usize::BITS {
                val &= (1usize << BIT_WIDTH) - 1;
            }
            if cfg!(target_endian = "big") {
                val = val.reverse_bits() >> (usize::BITS as usize - BIT_WIDTH as usize);
            }
            val <<= bit_shift;
            let field_mask = if BIT_WIDTH as usize + bit_shift >= usize::BITS as usize {
                !0usize << bit_shift
            } else {
                ((1usize << BIT_WIDTH) - 1) << bit_shift
            };
            let mut i = 0;
            while i < bytes_needed {
                let byte_val = (val >> (i * 8)) as u8;
                let byte_mask = (field_mask >> (i * 8)) as u8;
                if cfg!(target_endian = "big") {
                    let byte = self.storage[start_byte + i].reverse_bits();
                    let new_byte = (byte & !byte_mask) | (byte_val & byte_mask);
                    self.storage[start_byte + i] = new_byte.reverse_bits();
                } else {
                    self.storage[start_byte + i] = (self.storage[start_byte + i] & !byte_mask) | (byte_val & byte_mask);
                }
                i += 1;
            }
        } else {
            let mut val = val;
            if BIT_WIDTH < 64 {
                val &= (1u64 << BIT_WIDTH) - 1;
            }
            if cfg!(target_endian = "big") {
                val = val.reverse_bits() >> (64 - BIT_WIDTH as usize);
            }
            val <<= bit_shift;
            let field_mask = if BIT_WIDTH as usize + bit_shift >= 64 {
                !0u64 << bit_shift
            } else {
                ((1u64 << BIT_WIDTH) - 1) << bit_shift
            };
            let mut i = 0;
            while i < bytes_needed {
                let byte_val = (val >> (i * 8)) as u8;
                let byte_mask = (field_mask >> (i * 8)) as u8;
                if cfg!(target_endian = "big") {
                    let byte = self.storage[start_byte + i].reverse_bits();
                    let new_byte = (byte & !byte_mask) | (byte_val & byte_mask);
                    self.storage[start_byte + i] = new_byte.reverse_bits();
                } else {
                    self.storage[start_byte + i] = (self.storage[start_byte + i] & !byte_mask) | (byte_val & byte_mask);
                }
                i += 1;
            }
        }
    }
    #[doc = " Raw pointer get using const generics for compile-time optimization."]
    #[doc = " Uses native word size operations when the field fits in usize."]
    #[inline]
    pub const unsafe fn raw_get_const<const BIT_OFFSET: usize, const BIT_WIDTH: u8>(this: *const Self) -> u64 {
        debug_assert!(BIT_WIDTH <= 64);
        debug_assert!(BIT_OFFSET / 8 < N);
        debug_assert!((BIT_OFFSET + (BIT_WIDTH as usize) + 7) / 8 <= N);
        if BIT_WIDTH == 0 {
            return 0;
        }
        let start_byte = BIT_OFFSET / 8;
        let bit_shift = BIT_OFFSET % 8;
        let bytes_needed = (BIT_WIDTH as usize + bit_shift + 7) / 8;
        let storage_ptr = unsafe { core::ptr::addr_of!((*this).storage) as *const u8 };
        if BIT_WIDTH as usize + bit_shift <= usize::BITS as usize {
            let mut val = 0usize;
            if cfg!(target_endian = "big") {
                let mut i = 0;
                while i < bytes_needed {
                    let byte = unsafe { *storage_ptr.add(start_byte + i) };
                    val |= (byte.reverse_bits() as usize) << (i * 8);
                    i += 1;
                }
            } else {
                let mut i = 0;
                while i < bytes_needed {
                    let byte = unsafe { *storage_ptr.add(start_byte + i) };
                    val |= (byte as usize) << (i * 8);
                    i += 1;
                }
            }
            val >>= bit_shift;
            if (BIT_WIDTH as u32) < usize::BITS {
                val &= (1usize << BIT_WIDTH) - 1;
            }
            if cfg!(target_endian = "big") {
                val = val.reverse_bits() >> (usize::BITS as usize - BIT_WIDTH as usize);
            }
            val as u64
        } else {
            let mut val = 0u64;
            if cfg!(target_endian = "big") {
                let mut i = 0;
                while i < bytes_needed {
                    let byte = unsafe { *storage_ptr.add(start_byte + i) };
                    val |= (byte.reverse_bits() as u64) << (i * 8);
                    i += 1;
                }
            } else {
                let mut i = 0;
                while i < bytes_needed {
                    let byte = unsafe { *storage_ptr.add(start_byte + i) };
                    val |= (byte as u64) << (i * 8);
                    i += 1;
                }
            }
            val >>= bit_shift;
            if BIT_WIDTH < 64 {
                val &= (1u64 << BIT_WIDTH) - 1;
            }
            if cfg!(target_endian = "big") {
                val = val.reverse_bits() >> (64 - BIT_WIDTH as usize);
            }
            val
        }
    }
    #[doc = " Raw pointer set using const generics for compile-time optimization."]
    #[doc = " Uses native word size operations when the field fits in usize."]
    #[inline]
    pub unsafe fn raw_set_const<const BIT_OFFSET: usize, const BIT_WIDTH: u8>(this: *mut Self, val: u64) {
        debug_assert!(BIT_WIDTH <= 64);
        debug_assert!(BIT_OFFSET / 8 < N);
        debug_assert!((BIT_OFFSET + (BIT_WIDTH as usize) + 7) / 8 <= N);
        if BIT_WIDTH == 0 {
            return;
        }
        let start_byte = BIT_OFFSET / 8;
        let bit_shift = BIT_OFFSET % 8;
        let bytes_needed = (BIT_WIDTH as usize + bit_shift + 7) / 8;
        let storage_ptr = this.cast::<[u8; N]>().cast::<u8>();
        if BIT_WIDTH as usize + bit_shift <= usize::BITS as usize {
            let mut val = val as usize;
            if (BIT_WIDTH as u32) < usize::BITS {
                val &= (1usize << BIT_WIDTH) - 1;
            }
            if cfg!(target_endian = "big") {
                val = val.reverse_bits() >> (usize::BITS as usize - BIT_WIDTH as usize);
            }
            val <<= bit_shift;
            let field_mask = if BIT_WIDTH as usize + bit_shift >= usize::BITS as usize {
                !0usize << bit_shift
            } else {
                ((1usize << BIT_WIDTH) - 1) << bit_shift
            };
            let mut i = 0;
            while i < bytes_needed {
                let byte_val = (val >> (i * 8)) as u8;
                let byte_mask = (field_mask >> (i * 8)) as u8;
                let byte_ptr = unsafe { storage_ptr.add(start_byte + i) };
                if cfg!(target_endian = "big") {
                    let byte = unsafe { (*byte_ptr).reverse_bits() };
                    let new_byte = (byte & !byte_mask) | (byte_val & byte_mask);
                    unsafe { *byte_ptr = new_byte.reverse_bits() };
                } else {
                    unsafe { *byte_ptr = (*byte_ptr & !byte_mask) | (byte_val & byte_mask) };
                }
                i += 1;
            }
        } else {
            let mut val = val;
            if BIT_WIDTH < 64 {
                val &= (1u64 << BIT_WIDTH) - 1;
            }
            if cfg!(target_endian = "big") {
                val = val.reverse_bits() >> (64 - BIT_WIDTH as usize);
            }
            val <<= bit_shift;
            let field_mask = if BIT_WIDTH as usize + bit_shift >= 64 {
                !0u64 << bit_shift
            } else {
                ((1u64 << BIT_WIDTH) - 1) << bit_shift
            };
            let mut i = 0;
            while i < bytes_needed {
                let byte_val = (val >> (i * 8)) as u8;
                let byte_mask = (field_mask >> (i * 8)) as u8;
                let byte_ptr = unsafe { storage_ptr.add(start_byte + i) };
                if cfg!(target_endian = "big") {
                    let byte = unsafe { (*byte_ptr).reverse_bits() };
                    let new_byte = (byte & !byte_mask) | (byte_val & byte_mask);
                    unsafe { *byte_ptr = new_byte.reverse_bits() };
                } else {
                    unsafe { *byte_ptr = (*byte_ptr & !byte_mask) | (byte_val & byte_mask) };
                }
                i += 1;
            }
        }
    }
}
#[derive(PartialEq, Eq, Copy, Clone, Debug, Hash)]
#[repr(C, align(8))]
pub struct __BindgenOpaqueArray8<T>(pub T);
impl<T: Copy + Default, const N: usize> Default for __BindgenOpaqueArray8<[T; N]> {
    fn default() -> Self {
        Self([<T as Default>::default(); N])
    }
}
pub const DWELL_EPHEMERAL_PORT: u32 = 32768;
pub const DWELL_SAMPLE_HANDSHAKE: u32 = 1;
pub const DWELL_SAMPLE_OF_CLIENT: u32 = 2;
pub const DWELL_SAMPLE_OF_SERVER: u32 = 4;
pub const DWELL_RULE_PORTS: u32 = 255;
pub const DWELL_RULE_NEGATED: u32 = 1;
pub const DWELL_RULE_JOINED: u32 = 2;
pub const DWELL_RULE_EXCLUDES: u32 = 4;
pub const DWELL_FILTER_RULES: u32 = 16;
pub const DWELL_HEAVY_MAX: u32 = 32;
pub const DWELL_SERVERS_MAX: u32 = 1024;
pub const DWELL_SERVER_OUT: u32 = 1;
pub const DWELL_SERVER_LEFT: u32 = 2;
pub const DWELL_AES_ROUNDS: u32 = 10;
pub const DWELL_AES_KEY_WORDS: u32 = 44;
pub const DWELL_CID_MAX_BYTES: u32 = 20;
pub const DWELL_CID_PLAIN_MAX_BYTES: u32 = 19;
pub const DWELL_CID_NONCE_MIN_BYTES: u32 = 4;
pub const DWELL_CID_ROTATIONS: u32 = 7;
pub const DWELL_CID_OWN_SERVER: u32 = 2;
pub const DWELL_CID_OWN_NONCE: u32 = 14;
pub const DWELL_CID_OWN_BYTES: u32 = 17;
pub const DWELL_CID_CHECK: u32 = 0;
pub const DWELL_TOKEN_CHECK: u64 = 128021892001329;
pub const DWELL_CID_FORGED: u32 = 65536;
pub const DWELL_WAIT_UNKNOWN: u32 = 0;
pub const DWELL_WAIT_NONE: u32 = 1;
pub const DWELL_WAIT_MAX_NS: u64 = 4398046511104;
pub const DWELL_WAIT_MAX: u32 = 33793;
pub const DWELL_ZERO_HASH: u32 = 1;
pub const DWELL_ZERO_ANY: u32 = 2;
pub const DWELL_ZERO_ALL: u32 = 4;
pub const DWELL_ZERO_BITS: u32 = 4096;
pub const DWELL_OPENINGS: u32 = 1024;
pub const DWELL_BALANCE_LAYOUT: u32 = 9;
pub const DWELL_VIP_MEASURE: u32 = 1;
pub const DWELL_VIP_QUIC: u32 = 2;
pub const DWELL_VIP_SOURCE: u32 = 4;
pub const DWELL_VIP_NETWORK: u32 = 8;
pub const DWELL_VIP_CHOICES_SHIFT: u32 = 4;
pub const DWELL_VIP_CHOICES: u32 = 3;
pub const DWELL_VIP_SECOND: u32 = 64;
pub const DWELL_VIP_LEAST: u32 = 128;
pub const DWELL_VIP_SAMPLING_SHIFT: u32 = 8;
pub const DWELL_VIP_SAMPLING: u32 = 15;
pub const DWELL_REAL_DOWN: u32 = 1;
pub const DWELL_REAL_LEAVING: u32 = 2;
pub const DWELL_REAL_SAMPLING_SHIFT: u32 = 4;
pub const DWELL_REAL_SAMPLING: u32 = 15;
pub const DWELL_RECENT: u32 = 4;
pub const DWELL_MEMBERS: u32 = 128;
pub const DWELL_MEMBERS_KIND: u32 = 3;
pub const DWELL_CHANCES: u32 = 3;
pub const DWELL_VIP_FILTER_BITS: u32 = 65536;
pub const DWELL_CHUNK: u32 = 256;
pub const DWELL_SWEEP_HAS_ROOM: u32 = 256;
pub const DWELL_PENDING_LOGS: u32 = 16;
pub const DWELL_PENDING_LOG_MIN: u32 = 20;
pub const DWELL_MODES: u32 = 10;
pub const DWELL_FLOAT16_MANTISSA_BITS: u32 = 11;
pub const DWELL_FLOAT16_LIMIT_NS: u64 = 68719476736;
pub const DWELL_TALLY_ONE: u64 = 1099511627776;
pub const DWELL_FLOW_SYN: u32 = 1;
pub const DWELL_FLOW_RESYN: u32 = 2;
pub const DWELL_FLOW_NUMBERS: u32 = 4;
pub const DWELL_FLOW_ALIGNED: u32 = 8;
pub const DWELL_FLOW_RUN: u32 = 16;
pub const DWELL_FLOW_EDGE: u32 = 32;
pub const DWELL_FLOW_ALONE: u32 = 64;
pub const DWELL_FLOW_PUSHES: u32 = 128;
pub const DWELL_FLOW_PART: u32 = 256;
pub const DWELL_FLOW_GUESS: u32 = 512;
pub const DWELL_FLOW_GREET: u32 = 1024;
pub const DWELL_FLOW_GROWN: u32 = 2048;
pub const DWELL_FLOW_DEEP: u32 = 4096;
pub const DWELL_FLOW_TWICE: u32 = 8192;
pub const DWELL_FLOW_LOWER: u32 = 16384;
pub const DWELL_TURN_SYN: u32 = 1;
pub const DWELL_TURN_BEGUN: u32 = 2;
pub const DWELL_TURN_WINDOW: u32 = 4;
pub const DWELL_TURN_WINDOWED: u32 = 16384;
pub const DWELL_TURN_AGED: u32 = 8;
pub const DWELL_TURN_REOPENED: u32 = 16;
pub const DWELL_TURN_SHARED: u32 = 32;
pub const DWELL_TURN_ALIKE: u32 = 64;
pub const DWELL_TURN_UNSURE: u32 = 128;
pub const DWELL_TURN_MOVED: u32 = 256;
pub const DWELL_TURN_CARRIED: u32 = 512;
pub const DWELL_TURN_LOOSE: u32 = 1024;
pub const DWELL_TURN_PART: u32 = 2048;
pub const DWELL_TURN_FRAME: u32 = 8192;
pub const DWELL_TURN_TEXT: u32 = 4096;
pub const DWELL_TURN_TIED: u32 = 32768;
pub const DWELL_SPEAKS_CLIENT: u32 = 1;
pub const DWELL_SPEAKS_SERVER: u32 = 2;
pub const DWELL_QUEUE_LENGTH: u32 = 16;
pub const DWELL_GAP_LOGS: u32 = 32;
pub const DWELL_GAP_LOG_MIN: u32 = 14;
pub const DWELL_ANSWER_LOGS: u32 = 64;
pub const DWELL_ANSWER_LOG_MIN: u32 = 15;
pub const DWELL_ALONE_PAUSED: u32 = 1;
pub const DWELL_ALONE_FIRST: u32 = 2;
pub const DWELL_TIMERS_HELD: u32 = 7;
pub const DWELL_TIMERS_SOON: u32 = 8;
pub const DWELL_TIMERS_DOUBT: u32 = 240;
pub const DWELL_ETH_IPV4: u32 = 8;
pub const DWELL_ETH_IPV6: u32 = 56710;
pub const DWELL_ETH_ARP: u32 = 1544;
pub const DWELL_ETH_LLDP: u32 = 52360;
pub const DWELL_ETH_VLAN: u32 = 129;
pub const DWELL_ETH_QINQ: u32 = 43144;
pub const DWELL_ETH_QINQ_OLD: u32 = 145;
pub const DWELL_ETH_MPLS: u32 = 18312;
pub const DWELL_ETH_MPLS_MULTI: u32 = 18568;
pub const DWELL_ETH_PPPOE: u32 = 25736;
pub const DWELL_ETH_BRIDGED: u32 = 22629;
pub const DWELL_PPP_IPV4: u32 = 8448;
pub const DWELL_PPP_IPV6: u32 = 22272;
pub const DWELL_PROTO_HOP_BY_HOP: u32 = 0;
pub const DWELL_PROTO_ICMP: u32 = 1;
pub const DWELL_PROTO_IPV4: u32 = 4;
pub const DWELL_PROTO_TCP: u32 = 6;
pub const DWELL_PROTO_UDP: u32 = 17;
pub const DWELL_PROTO_IPV6: u32 = 41;
pub const DWELL_PROTO_ROUTING: u32 = 43;
pub const DWELL_PROTO_FRAGMENT: u32 = 44;
pub const DWELL_PROTO_GRE: u32 = 47;
pub const DWELL_PROTO_AH: u32 = 51;
pub const DWELL_PROTO_ICMPV6: u32 = 58;
pub const DWELL_PROTO_DEST_OPTIONS: u32 = 60;
pub const DWELL_PROTO_MOBILITY: u32 = 135;
pub const DWELL_GRE_CHECKSUM: u32 = 128;
pub const DWELL_GRE_ROUTING: u32 = 64;
pub const DWELL_GRE_KEY: u32 = 32;
pub const DWELL_GRE_SEQUENCE: u32 = 16;
pub const DWELL_GRE_VERSION: u32 = 1792;
pub const DWELL_TCP_FIN: u32 = 1;
pub const DWELL_TCP_SYN: u32 = 2;
pub const DWELL_TCP_RST: u32 = 4;
pub const DWELL_TCP_PSH: u32 = 8;
pub const DWELL_TCP_ACK: u32 = 16;
pub const DWELL_TCP_TS_HEAD: u32 = 168296705;
pub const DWELL_PORT_VXLAN: u32 = 46354;
pub const DWELL_PORT_VXLAN_LINUX: u32 = 6177;
pub const DWELL_PORT_GENEVE: u32 = 49431;
pub const DWELL_VXLAN_NETWORK: u32 = 8;
pub const DWELL_VXLAN_GROUP: u32 = 128;
pub const DWELL_CONTENT_BITS: u32 = 3;
pub const DWELL_CONTENT_REQUESTS: u32 = 31;
pub const DWELL_LINK_NULL: u32 = 0;
pub const DWELL_LINK_ETHERNET: u32 = 1;
pub const DWELL_LINK_RAW_BSD: u32 = 12;
pub const DWELL_LINK_RAW_OPENBSD: u32 = 14;
pub const DWELL_LINK_RAW: u32 = 101;
pub const DWELL_LINK_LOOP: u32 = 108;
pub const DWELL_LINK_SLL: u32 = 113;
pub const DWELL_LINK_IPV4: u32 = 228;
pub const DWELL_LINK_IPV6: u32 = 229;
pub const DWELL_LINK_SLL2: u32 = 276;
pub const DWELL_MAX_HOPS: u32 = 16;
pub const DWELL_MAX_OFFSET: u32 = 1024;
pub const DWELL_TUNNEL_HASHED: u32 = 2147483648;
pub const DWELL_WAYS: u32 = 4;
pub const DWELL_HEAD_OPENER: u32 = 1;
pub const DWELL_HEAD_SETTLED: u32 = 2;
pub const DWELL_HEAD_SPENT: u32 = 4;
pub const DWELL_HEAD_CLOSING: u32 = 8;
pub const DWELL_HEAD_ESTABLISHED: u32 = 16;
pub const DWELL_HEAD_ENDED: u32 = 32;
pub const DWELL_HEAD_ORPHAN: u32 = 64;
pub const DWELL_HEAD_YIELDS: u32 = 128;
pub const DWELL_CLOSING_COARSE: u32 = 9536;
pub const DWELL_UNSETTLED_COARSE: u32 = 953;
pub const DWELL_UNSETTLED_ESTABLISHED_COARSE: u32 = 28590;
pub const DWELL_NO_SLOT: i32 = -1;
pub const DWELL_POOL_TRIES: u32 = 64;
pub const DWELL_RESPONSE_EVENTS: u32 = 8;
pub const DWELL_BALANCE_HEADROOM: u32 = 256;
pub const DWELL_GROUPING_POWER: u32 = 6;
pub const DWELL_MAX_POWER: u32 = 36;
pub const DWELL_BUCKETS: u32 = 1984;
pub const DWELL_OWN_TSVAL: u32 = 1;
pub const DWELL_OWN_STAMPED: u32 = 2;
pub const DWELL_OWN_TS_SYN: u32 = 4;
pub const DWELL_OWN_FIN: u32 = 8;
pub const DWELL_OWN_BY_TS: u32 = 16;
pub const DWELL_OWN_BLIND: u32 = 32;
pub const DWELL_OWN_NEXT: u32 = 64;
pub const DWELL_SEQ_NEXT: u32 = 1;
pub const DWELL_SEQ_ACKED: u32 = 2;
pub const DWELL_SEQ_DOUBT: u32 = 4;
pub const DWELL_SEQ_SYN: u32 = 8;
pub const DWELL_SEQ_FINE: u32 = 32;
pub const DWELL_SEQ_PROBE: u32 = 16;
pub const DWELL_SPIN_VALUE: u32 = 1;
pub const DWELL_SPIN_EDGE: u32 = 2;
pub const DWELL_SPIN_TIMED: u32 = 4;
pub const DWELL_SPIN_EARLY: u32 = 8;
pub const DWELL_STAMP_TIME_BITS: u32 = 48;
pub const DWELL_STAMP_TIME: u64 = 281474976710655;
pub const DWELL_STAMP_WAYS: u32 = 4;
pub const DWELL_STAMP_NONE: i32 = -1;
pub const DWELL_NATIVE_EVENTS: u32 = 8;
pub const DWELL_NATIVE_AHEAD: u32 = 16;
pub const DWELL_NATIVE_PREPARED_BYTES: u32 = 256;
pub const DWELL_COARSE_SHIFT: u32 = 3;
pub const DWELL_COARSE_SKIPPED: u32 = 23;
pub const DWELL_COARSE_BUCKETS: u32 = 204;
pub const DWELL_PART_UP: u32 = 1;
pub const DWELL_PART_GENERATION: u32 = 2;
pub const DWELL_FLOW_SEGMENTS: u32 = 6;
pub const DWELL_CHOSEN_PROCESS: u32 = 1;
pub const DWELL_CHOSEN_CGROUP: u32 = 2;
pub const DWELL_LAYERS_TRACES: u32 = 64;
pub const DWELL_OWNERS: u32 = 32768;
pub const DWELL_OWNERS_PENDING: u32 = 8192;
pub const DWELL_SYNC_MAGIC: u32 = 1262704452;
pub const DWELL_SYNC_VERSION: u32 = 1;
pub const DWELL_SYNC_EXCHANGES: u32 = 256;
pub type __s8 = ::std::os::raw::c_schar;
pub type __u8 = ::std::os::raw::c_uchar;
pub type __u16 = ::std::os::raw::c_ushort;
pub type __s32 = ::std::os::raw::c_int;
pub type __u32 = ::std::os::raw::c_uint;
pub type __s64 = ::std::os::raw::c_longlong;
pub type __u64 = ::std::os::raw::c_ulonglong;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_address {
    pub high: __u64,
    pub low: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_address"][::std::mem::size_of::<dwell_address>() - 16usize];
    ["Alignment of dwell_address"][::std::mem::align_of::<dwell_address>() - 8usize];
    ["Offset of field: dwell_address::high"][::std::mem::offset_of!(dwell_address, high) - 0usize];
    ["Offset of field: dwell_address::low"][::std::mem::offset_of!(dwell_address, low) - 8usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct dwell_flow_key {
    pub a: dwell_address,
    pub b: dwell_address,
    pub a_port: __u16,
    pub b_port: __u16,
    pub __bindgen_anon_1: dwell_flow_key__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union dwell_flow_key__bindgen_ty_1 {
    pub interface: __u32,
    pub attempt_id: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_flow_key__bindgen_ty_1"][::std::mem::size_of::<dwell_flow_key__bindgen_ty_1>() - 4usize];
    ["Alignment of dwell_flow_key__bindgen_ty_1"][::std::mem::align_of::<dwell_flow_key__bindgen_ty_1>() - 4usize];
    ["Offset of field: dwell_flow_key__bindgen_ty_1::interface"]
        [::std::mem::offset_of!(dwell_flow_key__bindgen_ty_1, interface) - 0usize];
    ["Offset of field: dwell_flow_key__bindgen_ty_1::attempt_id"]
        [::std::mem::offset_of!(dwell_flow_key__bindgen_ty_1, attempt_id) - 0usize];
};
impl Default for dwell_flow_key__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_flow_key"][::std::mem::size_of::<dwell_flow_key>() - 40usize];
    ["Alignment of dwell_flow_key"][::std::mem::align_of::<dwell_flow_key>() - 8usize];
    ["Offset of field: dwell_flow_key::a"][::std::mem::offset_of!(dwell_flow_key, a) - 0usize];
    ["Offset of field: dwell_flow_key::b"][::std::mem::offset_of!(dwell_flow_key, b) - 16usize];
    ["Offset of field: dwell_flow_key::a_port"][::std::mem::offset_of!(dwell_flow_key, a_port) - 32usize];
    ["Offset of field: dwell_flow_key::b_port"][::std::mem::offset_of!(dwell_flow_key, b_port) - 34usize];
};
impl Default for dwell_flow_key {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const DWELL_KEY_AUTO: dwell_key_kind = 0;
pub const DWELL_KEY_5TUPLE: dwell_key_kind = 1;
pub const DWELL_KEY_IP_PAIR: dwell_key_kind = 2;
pub const DWELL_KEY_ESP: dwell_key_kind = 3;
pub const DWELL_KEY_WIREGUARD: dwell_key_kind = 4;
pub const DWELL_KEY_QUIC_CID: dwell_key_kind = 5;
pub const DWELL_KEY_OUTER: dwell_key_kind = 6;
pub type dwell_key_kind = ::std::os::raw::c_uint;
pub const DWELL_TCP_TIMESTAMP: dwell_method = 0;
pub const DWELL_TCP_SEQ: dwell_method = 1;
pub const DWELL_ICMP: dwell_method = 2;
pub const DWELL_ICMPV6: dwell_method = 3;
pub const DWELL_DNS: dwell_method = 4;
pub const DWELL_QUIC_SPIN: dwell_method = 5;
pub const DWELL_QUIC_SPIN_LOOP: dwell_method = 6;
pub const DWELL_QUIC_HANDSHAKE: dwell_method = 7;
pub const DWELL_METHODS: dwell_method = 8;
pub type dwell_method = ::std::os::raw::c_uint;
pub const DWELL_EVENT_SAMPLE: dwell_event_type = 0;
pub const DWELL_EVENT_FLOW: dwell_event_type = 1;
pub const DWELL_EVENT_RESPONSE: dwell_event_type = 2;
pub type dwell_event_type = ::std::os::raw::c_uint;
pub const DWELL_FLOW_OPEN: dwell_flow_change = 0;
pub const DWELL_FLOW_FIRST_RTT: dwell_flow_change = 1;
pub const DWELL_FLOW_CLOSE: dwell_flow_change = 2;
pub type dwell_flow_change = ::std::os::raw::c_uint;
pub const DWELL_CLOSE_NONE: dwell_close_reason = 0;
pub const DWELL_CLOSE_FIN: dwell_close_reason = 1;
pub const DWELL_CLOSE_RST: dwell_close_reason = 2;
pub const DWELL_CLOSE_IDLE: dwell_close_reason = 3;
pub const DWELL_CLOSE_ANSWERED: dwell_close_reason = 4;
pub const DWELL_CLOSE_EVICTED: dwell_close_reason = 5;
pub const DWELL_CLOSE_END: dwell_close_reason = 6;
pub const DWELL_CLOSE_REUSED: dwell_close_reason = 7;
pub type dwell_close_reason = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_path_counts {
    pub sent: __u32,
    pub retransmitted: __u32,
    pub received: __u32,
    pub late: __u32,
    pub ce: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_path_counts"][::std::mem::size_of::<dwell_path_counts>() - 20usize];
    ["Alignment of dwell_path_counts"][::std::mem::align_of::<dwell_path_counts>() - 4usize];
    ["Offset of field: dwell_path_counts::sent"][::std::mem::offset_of!(dwell_path_counts, sent) - 0usize];
    ["Offset of field: dwell_path_counts::retransmitted"]
        [::std::mem::offset_of!(dwell_path_counts, retransmitted) - 4usize];
    ["Offset of field: dwell_path_counts::received"][::std::mem::offset_of!(dwell_path_counts, received) - 8usize];
    ["Offset of field: dwell_path_counts::late"][::std::mem::offset_of!(dwell_path_counts, late) - 12usize];
    ["Offset of field: dwell_path_counts::ce"][::std::mem::offset_of!(dwell_path_counts, ce) - 16usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_rtt_sample {
    pub event: __u8,
    pub method: __u8,
    pub proto: __u8,
    pub flags: __u8,
    pub interface: __u32,
    pub time_ns: __u64,
    pub rtt_ns: __u64,
    pub min_rtt_ns: __u64,
    pub base_ns: __u64,
    pub src: dwell_address,
    pub dst: dwell_address,
    pub src_port: __u16,
    pub dst_port: __u16,
    pub path: dwell_path_counts,
    pub tunnel: __u32,
    pub reserved: __u32,
    pub packets: __u64,
    pub bytes: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_rtt_sample"][::std::mem::size_of::<dwell_rtt_sample>() - 120usize];
    ["Alignment of dwell_rtt_sample"][::std::mem::align_of::<dwell_rtt_sample>() - 8usize];
    ["Offset of field: dwell_rtt_sample::event"][::std::mem::offset_of!(dwell_rtt_sample, event) - 0usize];
    ["Offset of field: dwell_rtt_sample::method"][::std::mem::offset_of!(dwell_rtt_sample, method) - 1usize];
    ["Offset of field: dwell_rtt_sample::proto"][::std::mem::offset_of!(dwell_rtt_sample, proto) - 2usize];
    ["Offset of field: dwell_rtt_sample::flags"][::std::mem::offset_of!(dwell_rtt_sample, flags) - 3usize];
    ["Offset of field: dwell_rtt_sample::interface"][::std::mem::offset_of!(dwell_rtt_sample, interface) - 4usize];
    ["Offset of field: dwell_rtt_sample::time_ns"][::std::mem::offset_of!(dwell_rtt_sample, time_ns) - 8usize];
    ["Offset of field: dwell_rtt_sample::rtt_ns"][::std::mem::offset_of!(dwell_rtt_sample, rtt_ns) - 16usize];
    ["Offset of field: dwell_rtt_sample::min_rtt_ns"][::std::mem::offset_of!(dwell_rtt_sample, min_rtt_ns) - 24usize];
    ["Offset of field: dwell_rtt_sample::base_ns"][::std::mem::offset_of!(dwell_rtt_sample, base_ns) - 32usize];
    ["Offset of field: dwell_rtt_sample::src"][::std::mem::offset_of!(dwell_rtt_sample, src) - 40usize];
    ["Offset of field: dwell_rtt_sample::dst"][::std::mem::offset_of!(dwell_rtt_sample, dst) - 56usize];
    ["Offset of field: dwell_rtt_sample::src_port"][::std::mem::offset_of!(dwell_rtt_sample, src_port) - 72usize];
    ["Offset of field: dwell_rtt_sample::dst_port"][::std::mem::offset_of!(dwell_rtt_sample, dst_port) - 74usize];
    ["Offset of field: dwell_rtt_sample::path"][::std::mem::offset_of!(dwell_rtt_sample, path) - 76usize];
    ["Offset of field: dwell_rtt_sample::tunnel"][::std::mem::offset_of!(dwell_rtt_sample, tunnel) - 96usize];
    ["Offset of field: dwell_rtt_sample::reserved"][::std::mem::offset_of!(dwell_rtt_sample, reserved) - 100usize];
    ["Offset of field: dwell_rtt_sample::packets"][::std::mem::offset_of!(dwell_rtt_sample, packets) - 104usize];
    ["Offset of field: dwell_rtt_sample::bytes"][::std::mem::offset_of!(dwell_rtt_sample, bytes) - 112usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_flow_event {
    pub event: __u8,
    pub change: __u8,
    pub proto: __u8,
    pub detail: __u8,
    pub interface: __u32,
    pub time_ns: __u64,
    pub rtt_ns: __u64,
    pub first_ns: __u64,
    pub src: dwell_address,
    pub dst: dwell_address,
    pub src_port: __u16,
    pub dst_port: __u16,
    pub samples: __u32,
    pub packets: __u64,
    pub bytes: __u64,
    pub data: __u64,
    pub retransmitted: __u32,
    pub late: __u32,
    pub ce: __u32,
    pub tunnel: __u32,
    pub client: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_flow_event"][::std::mem::size_of::<dwell_flow_event>() - 120usize];
    ["Alignment of dwell_flow_event"][::std::mem::align_of::<dwell_flow_event>() - 8usize];
    ["Offset of field: dwell_flow_event::event"][::std::mem::offset_of!(dwell_flow_event, event) - 0usize];
    ["Offset of field: dwell_flow_event::change"][::std::mem::offset_of!(dwell_flow_event, change) - 1usize];
    ["Offset of field: dwell_flow_event::proto"][::std::mem::offset_of!(dwell_flow_event, proto) - 2usize];
    ["Offset of field: dwell_flow_event::detail"][::std::mem::offset_of!(dwell_flow_event, detail) - 3usize];
    ["Offset of field: dwell_flow_event::interface"][::std::mem::offset_of!(dwell_flow_event, interface) - 4usize];
    ["Offset of field: dwell_flow_event::time_ns"][::std::mem::offset_of!(dwell_flow_event, time_ns) - 8usize];
    ["Offset of field: dwell_flow_event::rtt_ns"][::std::mem::offset_of!(dwell_flow_event, rtt_ns) - 16usize];
    ["Offset of field: dwell_flow_event::first_ns"][::std::mem::offset_of!(dwell_flow_event, first_ns) - 24usize];
    ["Offset of field: dwell_flow_event::src"][::std::mem::offset_of!(dwell_flow_event, src) - 32usize];
    ["Offset of field: dwell_flow_event::dst"][::std::mem::offset_of!(dwell_flow_event, dst) - 48usize];
    ["Offset of field: dwell_flow_event::src_port"][::std::mem::offset_of!(dwell_flow_event, src_port) - 64usize];
    ["Offset of field: dwell_flow_event::dst_port"][::std::mem::offset_of!(dwell_flow_event, dst_port) - 66usize];
    ["Offset of field: dwell_flow_event::samples"][::std::mem::offset_of!(dwell_flow_event, samples) - 68usize];
    ["Offset of field: dwell_flow_event::packets"][::std::mem::offset_of!(dwell_flow_event, packets) - 72usize];
    ["Offset of field: dwell_flow_event::bytes"][::std::mem::offset_of!(dwell_flow_event, bytes) - 80usize];
    ["Offset of field: dwell_flow_event::data"][::std::mem::offset_of!(dwell_flow_event, data) - 88usize];
    ["Offset of field: dwell_flow_event::retransmitted"]
        [::std::mem::offset_of!(dwell_flow_event, retransmitted) - 96usize];
    ["Offset of field: dwell_flow_event::late"][::std::mem::offset_of!(dwell_flow_event, late) - 100usize];
    ["Offset of field: dwell_flow_event::ce"][::std::mem::offset_of!(dwell_flow_event, ce) - 104usize];
    ["Offset of field: dwell_flow_event::tunnel"][::std::mem::offset_of!(dwell_flow_event, tunnel) - 108usize];
    ["Offset of field: dwell_flow_event::client"][::std::mem::offset_of!(dwell_flow_event, client) - 112usize];
    ["Offset of field: dwell_flow_event::reserved"][::std::mem::offset_of!(dwell_flow_event, reserved) - 116usize];
};
pub const DWELL_SEEN_PACKETS: dwell_counter = 0;
pub const DWELL_SEEN_BYTES: dwell_counter = 1;
pub const DWELL_SKIP_NOT_IP: dwell_counter = 2;
pub const DWELL_SKIP_PROTOCOL: dwell_counter = 3;
pub const DWELL_SKIP_TRUNCATED: dwell_counter = 4;
pub const DWELL_SKIP_MALFORMED: dwell_counter = 5;
pub const DWELL_SKIP_FRAGMENT: dwell_counter = 6;
pub const DWELL_SKIP_DEPTH: dwell_counter = 7;
pub const DWELL_SKIP_FILTERED: dwell_counter = 8;
pub const DWELL_SKIP_LINK: dwell_counter = 9;
pub const DWELL_SKIP_SERVER: dwell_counter = 10;
pub const DWELL_SKIP_STRAY: dwell_counter = 11;
pub const DWELL_SKIP_BRIEF: dwell_counter = 12;
pub const DWELL_FLOWS_OPENED: dwell_counter = 13;
pub const DWELL_FLOWS_EVICTED: dwell_counter = 14;
pub const DWELL_FLOWS_EXPIRED: dwell_counter = 15;
pub const DWELL_FLOWS_UNTRACKED: dwell_counter = 16;
pub const DWELL_FLOWS_CONTENDED: dwell_counter = 17;
pub const DWELL_SLOTS_FREED: dwell_counter = 18;
pub const DWELL_STAMPS_MADE: dwell_counter = 19;
pub const DWELL_STAMPS_OVERWRITTEN: dwell_counter = 20;
pub const DWELL_SAMPLES: dwell_counter = 21;
pub const DWELL_EVENTS_LOST: dwell_counter = 22;
pub const DWELL_REJECT_AMBIGUOUS: dwell_counter = 23;
pub const DWELL_REJECT_SPIN_EARLY: dwell_counter = 24;
pub const DWELL_REJECT_SPIN_ORDER: dwell_counter = 25;
pub const DWELL_REJECT_BACKWARDS: dwell_counter = 26;
pub const DWELL_AGGREGATE_OTHER: dwell_counter = 27;
pub const DWELL_GROUPS_FREED: dwell_counter = 28;
pub const DWELL_COUNTERS: dwell_counter = 29;
pub type dwell_counter = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_counters {
    pub value: [__u64; 29usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_counters"][::std::mem::size_of::<dwell_counters>() - 232usize];
    ["Alignment of dwell_counters"][::std::mem::align_of::<dwell_counters>() - 8usize];
    ["Offset of field: dwell_counters::value"][::std::mem::offset_of!(dwell_counters, value) - 0usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_filter_rule {
    pub address: dwell_address,
    pub mask: dwell_address,
    pub port_low: __u16,
    pub port_high: __u16,
    pub flags: __u8,
    pub family: __u8,
    pub proto: __u8,
    pub reserved: __u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_filter_rule"][::std::mem::size_of::<dwell_filter_rule>() - 40usize];
    ["Alignment of dwell_filter_rule"][::std::mem::align_of::<dwell_filter_rule>() - 8usize];
    ["Offset of field: dwell_filter_rule::address"][::std::mem::offset_of!(dwell_filter_rule, address) - 0usize];
    ["Offset of field: dwell_filter_rule::mask"][::std::mem::offset_of!(dwell_filter_rule, mask) - 16usize];
    ["Offset of field: dwell_filter_rule::port_low"][::std::mem::offset_of!(dwell_filter_rule, port_low) - 32usize];
    ["Offset of field: dwell_filter_rule::port_high"][::std::mem::offset_of!(dwell_filter_rule, port_high) - 34usize];
    ["Offset of field: dwell_filter_rule::flags"][::std::mem::offset_of!(dwell_filter_rule, flags) - 36usize];
    ["Offset of field: dwell_filter_rule::family"][::std::mem::offset_of!(dwell_filter_rule, family) - 37usize];
    ["Offset of field: dwell_filter_rule::proto"][::std::mem::offset_of!(dwell_filter_rule, proto) - 38usize];
    ["Offset of field: dwell_filter_rule::reserved"][::std::mem::offset_of!(dwell_filter_rule, reserved) - 39usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_filter {
    pub rules: __u32,
    pub includes: __u8,
    pub reserved: [__u8; 3usize],
    pub rule: [dwell_filter_rule; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_filter"][::std::mem::size_of::<dwell_filter>() - 648usize];
    ["Alignment of dwell_filter"][::std::mem::align_of::<dwell_filter>() - 8usize];
    ["Offset of field: dwell_filter::rules"][::std::mem::offset_of!(dwell_filter, rules) - 0usize];
    ["Offset of field: dwell_filter::includes"][::std::mem::offset_of!(dwell_filter, includes) - 4usize];
    ["Offset of field: dwell_filter::reserved"][::std::mem::offset_of!(dwell_filter, reserved) - 5usize];
    ["Offset of field: dwell_filter::rule"][::std::mem::offset_of!(dwell_filter, rule) - 8usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_table_config {
    pub idle_timeout_ns: __u64,
    pub seed: __u64,
    pub bucket_mask: __u32,
    pub slots: __u32,
    pub filter: dwell_filter,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_table_config"][::std::mem::size_of::<dwell_table_config>() - 672usize];
    ["Alignment of dwell_table_config"][::std::mem::align_of::<dwell_table_config>() - 8usize];
    ["Offset of field: dwell_table_config::idle_timeout_ns"]
        [::std::mem::offset_of!(dwell_table_config, idle_timeout_ns) - 0usize];
    ["Offset of field: dwell_table_config::seed"][::std::mem::offset_of!(dwell_table_config, seed) - 8usize];
    ["Offset of field: dwell_table_config::bucket_mask"]
        [::std::mem::offset_of!(dwell_table_config, bucket_mask) - 16usize];
    ["Offset of field: dwell_table_config::slots"][::std::mem::offset_of!(dwell_table_config, slots) - 20usize];
    ["Offset of field: dwell_table_config::filter"][::std::mem::offset_of!(dwell_table_config, filter) - 24usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_rtt_config {
    pub table: dwell_table_config,
    pub rate_limit_ns: __u64,
    pub spin_floor_ns: __u64,
    pub rtt_rate_q8: __u32,
    pub methods: __u32,
    pub stamp_mask: __u32,
    pub include_handshake: __u8,
    pub stamp_acks: __u8,
    pub flow_events: __u8,
    pub tcp_auto: __u8,
    pub ignore_tunnels: __u8,
    pub reserved: [__u8; 7usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_rtt_config"][::std::mem::size_of::<dwell_rtt_config>() - 712usize];
    ["Alignment of dwell_rtt_config"][::std::mem::align_of::<dwell_rtt_config>() - 8usize];
    ["Offset of field: dwell_rtt_config::table"][::std::mem::offset_of!(dwell_rtt_config, table) - 0usize];
    ["Offset of field: dwell_rtt_config::rate_limit_ns"]
        [::std::mem::offset_of!(dwell_rtt_config, rate_limit_ns) - 672usize];
    ["Offset of field: dwell_rtt_config::spin_floor_ns"]
        [::std::mem::offset_of!(dwell_rtt_config, spin_floor_ns) - 680usize];
    ["Offset of field: dwell_rtt_config::rtt_rate_q8"]
        [::std::mem::offset_of!(dwell_rtt_config, rtt_rate_q8) - 688usize];
    ["Offset of field: dwell_rtt_config::methods"][::std::mem::offset_of!(dwell_rtt_config, methods) - 692usize];
    ["Offset of field: dwell_rtt_config::stamp_mask"][::std::mem::offset_of!(dwell_rtt_config, stamp_mask) - 696usize];
    ["Offset of field: dwell_rtt_config::include_handshake"]
        [::std::mem::offset_of!(dwell_rtt_config, include_handshake) - 700usize];
    ["Offset of field: dwell_rtt_config::stamp_acks"][::std::mem::offset_of!(dwell_rtt_config, stamp_acks) - 701usize];
    ["Offset of field: dwell_rtt_config::flow_events"]
        [::std::mem::offset_of!(dwell_rtt_config, flow_events) - 702usize];
    ["Offset of field: dwell_rtt_config::tcp_auto"][::std::mem::offset_of!(dwell_rtt_config, tcp_auto) - 703usize];
    ["Offset of field: dwell_rtt_config::ignore_tunnels"]
        [::std::mem::offset_of!(dwell_rtt_config, ignore_tunnels) - 704usize];
    ["Offset of field: dwell_rtt_config::reserved"][::std::mem::offset_of!(dwell_rtt_config, reserved) - 705usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_heavy_config {
    pub most: __u32,
    pub interval: __u32,
    pub top: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_heavy_config"][::std::mem::size_of::<dwell_heavy_config>() - 16usize];
    ["Alignment of dwell_heavy_config"][::std::mem::align_of::<dwell_heavy_config>() - 4usize];
    ["Offset of field: dwell_heavy_config::most"][::std::mem::offset_of!(dwell_heavy_config, most) - 0usize];
    ["Offset of field: dwell_heavy_config::interval"][::std::mem::offset_of!(dwell_heavy_config, interval) - 4usize];
    ["Offset of field: dwell_heavy_config::top"][::std::mem::offset_of!(dwell_heavy_config, top) - 8usize];
    ["Offset of field: dwell_heavy_config::reserved"][::std::mem::offset_of!(dwell_heavy_config, reserved) - 12usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_heavy_client {
    pub address: dwell_address,
    pub port: __u16,
    pub reserved: [__u16; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_heavy_client"][::std::mem::size_of::<dwell_heavy_client>() - 24usize];
    ["Alignment of dwell_heavy_client"][::std::mem::align_of::<dwell_heavy_client>() - 8usize];
    ["Offset of field: dwell_heavy_client::address"][::std::mem::offset_of!(dwell_heavy_client, address) - 0usize];
    ["Offset of field: dwell_heavy_client::port"][::std::mem::offset_of!(dwell_heavy_client, port) - 16usize];
    ["Offset of field: dwell_heavy_client::reserved"][::std::mem::offset_of!(dwell_heavy_client, reserved) - 18usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_heavy {
    pub tags: [__u64; 8usize],
    pub lock: __u32,
    pub packets: __u32,
    pub least: __u32,
    pub turned: __u32,
    pub count: [__u32; 32usize],
    pub before: [__u32; 32usize],
    pub client: [dwell_heavy_client; 32usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_heavy"][::std::mem::size_of::<dwell_heavy>() - 1104usize];
    ["Alignment of dwell_heavy"][::std::mem::align_of::<dwell_heavy>() - 8usize];
    ["Offset of field: dwell_heavy::tags"][::std::mem::offset_of!(dwell_heavy, tags) - 0usize];
    ["Offset of field: dwell_heavy::lock"][::std::mem::offset_of!(dwell_heavy, lock) - 64usize];
    ["Offset of field: dwell_heavy::packets"][::std::mem::offset_of!(dwell_heavy, packets) - 68usize];
    ["Offset of field: dwell_heavy::least"][::std::mem::offset_of!(dwell_heavy, least) - 72usize];
    ["Offset of field: dwell_heavy::turned"][::std::mem::offset_of!(dwell_heavy, turned) - 76usize];
    ["Offset of field: dwell_heavy::count"][::std::mem::offset_of!(dwell_heavy, count) - 80usize];
    ["Offset of field: dwell_heavy::before"][::std::mem::offset_of!(dwell_heavy, before) - 208usize];
    ["Offset of field: dwell_heavy::client"][::std::mem::offset_of!(dwell_heavy, client) - 336usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_server_load {
    pub stamp: __u64,
    pub seen_s: __u32,
    pub flags: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_server_load"][::std::mem::size_of::<dwell_server_load>() - 16usize];
    ["Alignment of dwell_server_load"][::std::mem::align_of::<dwell_server_load>() - 8usize];
    ["Offset of field: dwell_server_load::stamp"][::std::mem::offset_of!(dwell_server_load, stamp) - 0usize];
    ["Offset of field: dwell_server_load::seen_s"][::std::mem::offset_of!(dwell_server_load, seen_s) - 8usize];
    ["Offset of field: dwell_server_load::flags"][::std::mem::offset_of!(dwell_server_load, flags) - 12usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_overload_config {
    pub margin_ns: __u64,
    pub percentile: __u32,
    pub stale_s: __u32,
    pub slack_s: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_overload_config"][::std::mem::size_of::<dwell_overload_config>() - 24usize];
    ["Alignment of dwell_overload_config"][::std::mem::align_of::<dwell_overload_config>() - 8usize];
    ["Offset of field: dwell_overload_config::margin_ns"]
        [::std::mem::offset_of!(dwell_overload_config, margin_ns) - 0usize];
    ["Offset of field: dwell_overload_config::percentile"]
        [::std::mem::offset_of!(dwell_overload_config, percentile) - 8usize];
    ["Offset of field: dwell_overload_config::stale_s"]
        [::std::mem::offset_of!(dwell_overload_config, stale_s) - 12usize];
    ["Offset of field: dwell_overload_config::slack_s"]
        [::std::mem::offset_of!(dwell_overload_config, slack_s) - 16usize];
    ["Offset of field: dwell_overload_config::reserved"]
        [::std::mem::offset_of!(dwell_overload_config, reserved) - 20usize];
};
pub const DWELL_LOAD_ACCEPTED: dwell_load_result = 0;
pub const DWELL_LOAD_NOT_NEWER: dwell_load_result = 1;
pub const DWELL_LOAD_FUTURE: dwell_load_result = 2;
pub const DWELL_LOAD_STALE: dwell_load_result = 3;
pub type dwell_load_result = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_block {
    pub word: [__u32; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_block"][::std::mem::size_of::<dwell_block>() - 16usize];
    ["Alignment of dwell_block"][::std::mem::align_of::<dwell_block>() - 4usize];
    ["Offset of field: dwell_block::word"][::std::mem::offset_of!(dwell_block, word) - 0usize];
};
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_aes128 {
    pub encrypt: [__u32; 44usize],
    pub decrypt: [__u32; 44usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_aes128"][::std::mem::size_of::<dwell_aes128>() - 352usize];
    ["Alignment of dwell_aes128"][::std::mem::align_of::<dwell_aes128>() - 4usize];
    ["Offset of field: dwell_aes128::encrypt"][::std::mem::offset_of!(dwell_aes128, encrypt) - 0usize];
    ["Offset of field: dwell_aes128::decrypt"][::std::mem::offset_of!(dwell_aes128, decrypt) - 176usize];
};
impl Default for dwell_aes128 {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const DWELL_CID_NONE: dwell_cid_cipher = 0;
pub const DWELL_CID_CLEAR: dwell_cid_cipher = 1;
pub const DWELL_CID_BLOCK: dwell_cid_cipher = 2;
pub const DWELL_CID_FOUR_PASS: dwell_cid_cipher = 3;
pub type dwell_cid_cipher = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_cid_config {
    pub key: dwell_aes128,
    pub cipher: __u8,
    pub rotation: __u8,
    pub server_id_bytes: __u8,
    pub nonce_bytes: __u8,
    pub stamped: __u8,
    pub reserved: [__u8; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_cid_config"][::std::mem::size_of::<dwell_cid_config>() - 360usize];
    ["Alignment of dwell_cid_config"][::std::mem::align_of::<dwell_cid_config>() - 4usize];
    ["Offset of field: dwell_cid_config::key"][::std::mem::offset_of!(dwell_cid_config, key) - 0usize];
    ["Offset of field: dwell_cid_config::cipher"][::std::mem::offset_of!(dwell_cid_config, cipher) - 352usize];
    ["Offset of field: dwell_cid_config::rotation"][::std::mem::offset_of!(dwell_cid_config, rotation) - 353usize];
    ["Offset of field: dwell_cid_config::server_id_bytes"]
        [::std::mem::offset_of!(dwell_cid_config, server_id_bytes) - 354usize];
    ["Offset of field: dwell_cid_config::nonce_bytes"]
        [::std::mem::offset_of!(dwell_cid_config, nonce_bytes) - 355usize];
    ["Offset of field: dwell_cid_config::stamped"][::std::mem::offset_of!(dwell_cid_config, stamped) - 356usize];
    ["Offset of field: dwell_cid_config::reserved"][::std::mem::offset_of!(dwell_cid_config, reserved) - 357usize];
};
impl Default for dwell_cid_config {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[repr(align(8))]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_cid_plain {
    pub octet: [__u8; 32usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_cid_plain"][::std::mem::size_of::<dwell_cid_plain>() - 32usize];
    ["Alignment of dwell_cid_plain"][::std::mem::align_of::<dwell_cid_plain>() - 8usize];
    ["Offset of field: dwell_cid_plain::octet"][::std::mem::offset_of!(dwell_cid_plain, octet) - 0usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_half {
    pub high: __u64,
    pub low: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_half"][::std::mem::size_of::<dwell_half>() - 16usize];
    ["Alignment of dwell_half"][::std::mem::align_of::<dwell_half>() - 8usize];
    ["Offset of field: dwell_half::high"][::std::mem::offset_of!(dwell_half, high) - 0usize];
    ["Offset of field: dwell_half::low"][::std::mem::offset_of!(dwell_half, low) - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_cid_halves {
    pub of: [dwell_half; 2usize],
    pub mask: [dwell_half; 2usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_cid_halves"][::std::mem::size_of::<dwell_cid_halves>() - 64usize];
    ["Alignment of dwell_cid_halves"][::std::mem::align_of::<dwell_cid_halves>() - 8usize];
    ["Offset of field: dwell_cid_halves::of"][::std::mem::offset_of!(dwell_cid_halves, of) - 0usize];
    ["Offset of field: dwell_cid_halves::mask"][::std::mem::offset_of!(dwell_cid_halves, mask) - 32usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_zero_server {
    pub real: __u32,
    pub heavy: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_zero_server"][::std::mem::size_of::<dwell_zero_server>() - 8usize];
    ["Alignment of dwell_zero_server"][::std::mem::align_of::<dwell_zero_server>() - 4usize];
    ["Offset of field: dwell_zero_server::real"][::std::mem::offset_of!(dwell_zero_server, real) - 0usize];
    ["Offset of field: dwell_zero_server::heavy"][::std::mem::offset_of!(dwell_zero_server, heavy) - 4usize];
};
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_zero_vip {
    pub layout: [dwell_cid_config; 7usize],
    pub overload: dwell_overload_config,
    pub heavy: dwell_heavy_config,
    pub servers: __u32,
    pub window_s: __u32,
    pub attempt_coarse: __u32,
    pub flags: __u32,
    pub server: [dwell_zero_server; 1024usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_zero_vip"][::std::mem::size_of::<dwell_zero_vip>() - 10768usize];
    ["Alignment of dwell_zero_vip"][::std::mem::align_of::<dwell_zero_vip>() - 8usize];
    ["Offset of field: dwell_zero_vip::layout"][::std::mem::offset_of!(dwell_zero_vip, layout) - 0usize];
    ["Offset of field: dwell_zero_vip::overload"][::std::mem::offset_of!(dwell_zero_vip, overload) - 2520usize];
    ["Offset of field: dwell_zero_vip::heavy"][::std::mem::offset_of!(dwell_zero_vip, heavy) - 2544usize];
    ["Offset of field: dwell_zero_vip::servers"][::std::mem::offset_of!(dwell_zero_vip, servers) - 2560usize];
    ["Offset of field: dwell_zero_vip::window_s"][::std::mem::offset_of!(dwell_zero_vip, window_s) - 2564usize];
    ["Offset of field: dwell_zero_vip::attempt_coarse"]
        [::std::mem::offset_of!(dwell_zero_vip, attempt_coarse) - 2568usize];
    ["Offset of field: dwell_zero_vip::flags"][::std::mem::offset_of!(dwell_zero_vip, flags) - 2572usize];
    ["Offset of field: dwell_zero_vip::server"][::std::mem::offset_of!(dwell_zero_vip, server) - 2576usize];
};
impl Default for dwell_zero_vip {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_zero_ids {
    pub server: [__u16; 65536usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_zero_ids"][::std::mem::size_of::<dwell_zero_ids>() - 131072usize];
    ["Alignment of dwell_zero_ids"][::std::mem::align_of::<dwell_zero_ids>() - 2usize];
    ["Offset of field: dwell_zero_ids::server"][::std::mem::offset_of!(dwell_zero_ids, server) - 0usize];
};
impl Default for dwell_zero_ids {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_zero_name {
    pub slot: __u32,
    pub bytes: __u8,
    pub id: [__u8; 15usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_zero_name"][::std::mem::size_of::<dwell_zero_name>() - 20usize];
    ["Alignment of dwell_zero_name"][::std::mem::align_of::<dwell_zero_name>() - 4usize];
    ["Offset of field: dwell_zero_name::slot"][::std::mem::offset_of!(dwell_zero_name, slot) - 0usize];
    ["Offset of field: dwell_zero_name::bytes"][::std::mem::offset_of!(dwell_zero_name, bytes) - 4usize];
    ["Offset of field: dwell_zero_name::id"][::std::mem::offset_of!(dwell_zero_name, id) - 5usize];
};
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_zero_loads {
    pub server: [dwell_server_load; 1024usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_zero_loads"][::std::mem::size_of::<dwell_zero_loads>() - 16384usize];
    ["Alignment of dwell_zero_loads"][::std::mem::align_of::<dwell_zero_loads>() - 8usize];
    ["Offset of field: dwell_zero_loads::server"][::std::mem::offset_of!(dwell_zero_loads, server) - 0usize];
};
impl Default for dwell_zero_loads {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_zero_state {
    pub unix_offset_s: __u32,
    pub generation: __u32,
    pub vip_filter: [__u64; 64usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_zero_state"][::std::mem::size_of::<dwell_zero_state>() - 520usize];
    ["Alignment of dwell_zero_state"][::std::mem::align_of::<dwell_zero_state>() - 8usize];
    ["Offset of field: dwell_zero_state::unix_offset_s"]
        [::std::mem::offset_of!(dwell_zero_state, unix_offset_s) - 0usize];
    ["Offset of field: dwell_zero_state::generation"][::std::mem::offset_of!(dwell_zero_state, generation) - 4usize];
    ["Offset of field: dwell_zero_state::vip_filter"][::std::mem::offset_of!(dwell_zero_state, vip_filter) - 8usize];
};
impl Default for dwell_zero_state {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_cid_entry {
    pub cid: [__u64; 2usize],
    pub vip: dwell_address,
    pub check: __u64,
    pub stamp: __u64,
    pub real: __u32,
    pub slot: __u16,
    pub server: __u16,
    pub vip_number: __u32,
    pub noted: __u8,
    pub is_block: __u8,
    pub client: __u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_cid_entry"][::std::mem::size_of::<dwell_cid_entry>() - 64usize];
    ["Alignment of dwell_cid_entry"][::std::mem::align_of::<dwell_cid_entry>() - 8usize];
    ["Offset of field: dwell_cid_entry::cid"][::std::mem::offset_of!(dwell_cid_entry, cid) - 0usize];
    ["Offset of field: dwell_cid_entry::vip"][::std::mem::offset_of!(dwell_cid_entry, vip) - 16usize];
    ["Offset of field: dwell_cid_entry::check"][::std::mem::offset_of!(dwell_cid_entry, check) - 32usize];
    ["Offset of field: dwell_cid_entry::stamp"][::std::mem::offset_of!(dwell_cid_entry, stamp) - 40usize];
    ["Offset of field: dwell_cid_entry::real"][::std::mem::offset_of!(dwell_cid_entry, real) - 48usize];
    ["Offset of field: dwell_cid_entry::slot"][::std::mem::offset_of!(dwell_cid_entry, slot) - 52usize];
    ["Offset of field: dwell_cid_entry::server"][::std::mem::offset_of!(dwell_cid_entry, server) - 54usize];
    ["Offset of field: dwell_cid_entry::vip_number"][::std::mem::offset_of!(dwell_cid_entry, vip_number) - 56usize];
    ["Offset of field: dwell_cid_entry::noted"][::std::mem::offset_of!(dwell_cid_entry, noted) - 60usize];
    ["Offset of field: dwell_cid_entry::is_block"][::std::mem::offset_of!(dwell_cid_entry, is_block) - 61usize];
    ["Offset of field: dwell_cid_entry::client"][::std::mem::offset_of!(dwell_cid_entry, client) - 62usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_opening {
    pub known: __u32,
    pub known_s: __u32,
    pub second: __u32,
    pub forged: __u16,
    pub forged_known: __u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_opening"][::std::mem::size_of::<dwell_opening>() - 16usize];
    ["Alignment of dwell_opening"][::std::mem::align_of::<dwell_opening>() - 4usize];
    ["Offset of field: dwell_opening::known"][::std::mem::offset_of!(dwell_opening, known) - 0usize];
    ["Offset of field: dwell_opening::known_s"][::std::mem::offset_of!(dwell_opening, known_s) - 4usize];
    ["Offset of field: dwell_opening::second"][::std::mem::offset_of!(dwell_opening, second) - 8usize];
    ["Offset of field: dwell_opening::forged"][::std::mem::offset_of!(dwell_opening, forged) - 12usize];
    ["Offset of field: dwell_opening::forged_known"][::std::mem::offset_of!(dwell_opening, forged_known) - 14usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_zero_header {
    pub at: __u32,
    pub bytes: __u32,
    pub is_long: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_zero_header"][::std::mem::size_of::<dwell_zero_header>() - 12usize];
    ["Alignment of dwell_zero_header"][::std::mem::align_of::<dwell_zero_header>() - 4usize];
    ["Offset of field: dwell_zero_header::at"][::std::mem::offset_of!(dwell_zero_header, at) - 0usize];
    ["Offset of field: dwell_zero_header::bytes"][::std::mem::offset_of!(dwell_zero_header, bytes) - 4usize];
    ["Offset of field: dwell_zero_header::is_long"][::std::mem::offset_of!(dwell_zero_header, is_long) - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_zero_work {
    pub header: dwell_zero_header,
    pub plain: dwell_cid_plain,
    pub halves: dwell_cid_halves,
    pub block: dwell_block,
    pub name: dwell_zero_name,
    pub id: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_zero_work"][::std::mem::size_of::<dwell_zero_work>() - 152usize];
    ["Alignment of dwell_zero_work"][::std::mem::align_of::<dwell_zero_work>() - 8usize];
    ["Offset of field: dwell_zero_work::header"][::std::mem::offset_of!(dwell_zero_work, header) - 0usize];
    ["Offset of field: dwell_zero_work::plain"][::std::mem::offset_of!(dwell_zero_work, plain) - 16usize];
    ["Offset of field: dwell_zero_work::halves"][::std::mem::offset_of!(dwell_zero_work, halves) - 48usize];
    ["Offset of field: dwell_zero_work::block"][::std::mem::offset_of!(dwell_zero_work, block) - 112usize];
    ["Offset of field: dwell_zero_work::name"][::std::mem::offset_of!(dwell_zero_work, name) - 128usize];
    ["Offset of field: dwell_zero_work::id"][::std::mem::offset_of!(dwell_zero_work, id) - 148usize];
};
pub const DWELL_ZERO_OPENED: dwell_zero_counter = 0;
pub const DWELL_ZERO_NO_LAYOUT: dwell_zero_counter = 1;
pub const DWELL_ZERO_FORGED: dwell_zero_counter = 2;
pub const DWELL_ZERO_NO_SERVER: dwell_zero_counter = 3;
pub const DWELL_ZERO_OLD: dwell_zero_counter = 4;
pub const DWELL_ZERO_LOAD_UPDATED: dwell_zero_counter = 5;
pub const DWELL_ZERO_LOAD_REFUSED: dwell_zero_counter = 6;
pub const DWELL_ZERO_HEAVY: dwell_zero_counter = 7;
pub const DWELL_ZERO_UNOPENED: dwell_zero_counter = 8;
pub const DWELL_ZERO_TOKEN: dwell_zero_counter = 9;
pub const DWELL_ZERO_TOKEN_LEFT: dwell_zero_counter = 10;
pub const DWELL_ZERO_TOKEN_OLD: dwell_zero_counter = 11;
pub const DWELL_ZERO_TOKEN_OTHER: dwell_zero_counter = 12;
pub const DWELL_ZERO_TOKEN_FORGED: dwell_zero_counter = 13;
pub const DWELL_ZERO_TOKEN_UNOPENED: dwell_zero_counter = 14;
pub const DWELL_ZERO_TOKEN_DOWN: dwell_zero_counter = 15;
pub const DWELL_ZERO_COUNTERS: dwell_zero_counter = 16;
pub type dwell_zero_counter = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_vip_key {
    pub address: dwell_address,
    pub port: __u16,
    pub proto: __u8,
    pub reserved: [__u8; 5usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_vip_key"][::std::mem::size_of::<dwell_vip_key>() - 24usize];
    ["Alignment of dwell_vip_key"][::std::mem::align_of::<dwell_vip_key>() - 8usize];
    ["Offset of field: dwell_vip_key::address"][::std::mem::offset_of!(dwell_vip_key, address) - 0usize];
    ["Offset of field: dwell_vip_key::port"][::std::mem::offset_of!(dwell_vip_key, port) - 16usize];
    ["Offset of field: dwell_vip_key::proto"][::std::mem::offset_of!(dwell_vip_key, proto) - 18usize];
    ["Offset of field: dwell_vip_key::reserved"][::std::mem::offset_of!(dwell_vip_key, reserved) - 19usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_vip {
    pub number: __u32,
    pub size: __u32,
    pub flags: __u32,
    pub zero_slot: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_vip"][::std::mem::size_of::<dwell_vip>() - 16usize];
    ["Alignment of dwell_vip"][::std::mem::align_of::<dwell_vip>() - 4usize];
    ["Offset of field: dwell_vip::number"][::std::mem::offset_of!(dwell_vip, number) - 0usize];
    ["Offset of field: dwell_vip::size"][::std::mem::offset_of!(dwell_vip, size) - 4usize];
    ["Offset of field: dwell_vip::flags"][::std::mem::offset_of!(dwell_vip, flags) - 8usize];
    ["Offset of field: dwell_vip::zero_slot"][::std::mem::offset_of!(dwell_vip, zero_slot) - 12usize];
};
pub const DWELL_FORWARD_NONE: dwell_forward = 0;
pub const DWELL_FORWARD_L2: dwell_forward = 1;
pub const DWELL_FORWARD_IPIP: dwell_forward = 2;
pub const DWELL_FORWARD_GUE: dwell_forward = 3;
pub type dwell_forward = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_real {
    pub address: dwell_address,
    pub interface: __u32,
    pub destination_mac: [__u8; 6usize],
    pub source_mac: [__u8; 6usize],
    pub mtu: __u16,
    pub gue_port: __u16,
    pub forward: __u8,
    pub flags: __u8,
    pub capacity: __u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_real"][::std::mem::size_of::<dwell_real>() - 40usize];
    ["Alignment of dwell_real"][::std::mem::align_of::<dwell_real>() - 8usize];
    ["Offset of field: dwell_real::address"][::std::mem::offset_of!(dwell_real, address) - 0usize];
    ["Offset of field: dwell_real::interface"][::std::mem::offset_of!(dwell_real, interface) - 16usize];
    ["Offset of field: dwell_real::destination_mac"][::std::mem::offset_of!(dwell_real, destination_mac) - 20usize];
    ["Offset of field: dwell_real::source_mac"][::std::mem::offset_of!(dwell_real, source_mac) - 26usize];
    ["Offset of field: dwell_real::mtu"][::std::mem::offset_of!(dwell_real, mtu) - 32usize];
    ["Offset of field: dwell_real::gue_port"][::std::mem::offset_of!(dwell_real, gue_port) - 34usize];
    ["Offset of field: dwell_real::forward"][::std::mem::offset_of!(dwell_real, forward) - 36usize];
    ["Offset of field: dwell_real::flags"][::std::mem::offset_of!(dwell_real, flags) - 37usize];
    ["Offset of field: dwell_real::capacity"][::std::mem::offset_of!(dwell_real, capacity) - 38usize];
};
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_vip_filter {
    pub word: [__u64; 1024usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_vip_filter"][::std::mem::size_of::<dwell_vip_filter>() - 8192usize];
    ["Alignment of dwell_vip_filter"][::std::mem::align_of::<dwell_vip_filter>() - 8usize];
    ["Offset of field: dwell_vip_filter::word"][::std::mem::offset_of!(dwell_vip_filter, word) - 0usize];
};
impl Default for dwell_vip_filter {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_chunk {
    pub real: [__u32; 256usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_chunk"][::std::mem::size_of::<dwell_chunk>() - 1024usize];
    ["Alignment of dwell_chunk"][::std::mem::align_of::<dwell_chunk>() - 4usize];
    ["Offset of field: dwell_chunk::real"][::std::mem::offset_of!(dwell_chunk, real) - 0usize];
};
impl Default for dwell_chunk {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_load {
    pub packets: __u64,
    pub bytes: __u64,
    pub opened: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_load"][::std::mem::size_of::<dwell_load>() - 24usize];
    ["Alignment of dwell_load"][::std::mem::align_of::<dwell_load>() - 8usize];
    ["Offset of field: dwell_load::packets"][::std::mem::offset_of!(dwell_load, packets) - 0usize];
    ["Offset of field: dwell_load::bytes"][::std::mem::offset_of!(dwell_load, bytes) - 8usize];
    ["Offset of field: dwell_load::opened"][::std::mem::offset_of!(dwell_load, opened) - 16usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_pending {
    pub count: [__u32; 16usize],
    pub networks: [__u64; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_pending"][::std::mem::size_of::<dwell_pending>() - 192usize];
    ["Alignment of dwell_pending"][::std::mem::align_of::<dwell_pending>() - 8usize];
    ["Offset of field: dwell_pending::count"][::std::mem::offset_of!(dwell_pending, count) - 0usize];
    ["Offset of field: dwell_pending::networks"][::std::mem::offset_of!(dwell_pending, networks) - 64usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_balance_config {
    pub hash_seed: __u64,
    pub outer_v4: dwell_address,
    pub outer_v6: dwell_address,
    pub active_coarse: __u32,
    pub cid_mask: __u32,
    pub redirects_back: __u32,
    pub max_vips: __u32,
    pub states: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_balance_config"][::std::mem::size_of::<dwell_balance_config>() - 64usize];
    ["Alignment of dwell_balance_config"][::std::mem::align_of::<dwell_balance_config>() - 8usize];
    ["Offset of field: dwell_balance_config::hash_seed"]
        [::std::mem::offset_of!(dwell_balance_config, hash_seed) - 0usize];
    ["Offset of field: dwell_balance_config::outer_v4"]
        [::std::mem::offset_of!(dwell_balance_config, outer_v4) - 8usize];
    ["Offset of field: dwell_balance_config::outer_v6"]
        [::std::mem::offset_of!(dwell_balance_config, outer_v6) - 24usize];
    ["Offset of field: dwell_balance_config::active_coarse"]
        [::std::mem::offset_of!(dwell_balance_config, active_coarse) - 40usize];
    ["Offset of field: dwell_balance_config::cid_mask"]
        [::std::mem::offset_of!(dwell_balance_config, cid_mask) - 44usize];
    ["Offset of field: dwell_balance_config::redirects_back"]
        [::std::mem::offset_of!(dwell_balance_config, redirects_back) - 48usize];
    ["Offset of field: dwell_balance_config::max_vips"]
        [::std::mem::offset_of!(dwell_balance_config, max_vips) - 52usize];
    ["Offset of field: dwell_balance_config::states"][::std::mem::offset_of!(dwell_balance_config, states) - 56usize];
    ["Offset of field: dwell_balance_config::reserved"]
        [::std::mem::offset_of!(dwell_balance_config, reserved) - 60usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_transmit {
    pub taken: __u64,
    pub refused_tx: __u64,
    pub refused_redirect: __u64,
    pub error: __s32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_transmit"][::std::mem::size_of::<dwell_transmit>() - 32usize];
    ["Alignment of dwell_transmit"][::std::mem::align_of::<dwell_transmit>() - 8usize];
    ["Offset of field: dwell_transmit::taken"][::std::mem::offset_of!(dwell_transmit, taken) - 0usize];
    ["Offset of field: dwell_transmit::refused_tx"][::std::mem::offset_of!(dwell_transmit, refused_tx) - 8usize];
    ["Offset of field: dwell_transmit::refused_redirect"]
        [::std::mem::offset_of!(dwell_transmit, refused_redirect) - 16usize];
    ["Offset of field: dwell_transmit::error"][::std::mem::offset_of!(dwell_transmit, error) - 24usize];
    ["Offset of field: dwell_transmit::reserved"][::std::mem::offset_of!(dwell_transmit, reserved) - 28usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_balance_layout {
    pub layout: __u32,
    pub slot_bytes: __u32,
    pub table_seed: __u64,
    pub estimator: __u32,
    pub chain_slot: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_balance_layout"][::std::mem::size_of::<dwell_balance_layout>() - 24usize];
    ["Alignment of dwell_balance_layout"][::std::mem::align_of::<dwell_balance_layout>() - 8usize];
    ["Offset of field: dwell_balance_layout::layout"][::std::mem::offset_of!(dwell_balance_layout, layout) - 0usize];
    ["Offset of field: dwell_balance_layout::slot_bytes"]
        [::std::mem::offset_of!(dwell_balance_layout, slot_bytes) - 4usize];
    ["Offset of field: dwell_balance_layout::table_seed"]
        [::std::mem::offset_of!(dwell_balance_layout, table_seed) - 8usize];
    ["Offset of field: dwell_balance_layout::estimator"]
        [::std::mem::offset_of!(dwell_balance_layout, estimator) - 16usize];
    ["Offset of field: dwell_balance_layout::chain_slot"]
        [::std::mem::offset_of!(dwell_balance_layout, chain_slot) - 20usize];
};
pub const DWELL_REASON_NOT_IP: dwell_reason = 0;
pub const DWELL_REASON_NOT_VIP: dwell_reason = 1;
pub const DWELL_REASON_CONNECTION: dwell_reason = 2;
pub const DWELL_REASON_NEW: dwell_reason = 3;
pub const DWELL_REASON_FEWER: dwell_reason = 4;
pub const DWELL_REASON_FALLBACK: dwell_reason = 5;
pub const DWELL_REASON_FULL: dwell_reason = 6;
pub const DWELL_REASON_MOVED: dwell_reason = 7;
pub const DWELL_REASON_QUOTED: dwell_reason = 8;
pub const DWELL_REASON_CID: dwell_reason = 9;
pub const DWELL_REASON_DIVERTED: dwell_reason = 10;
pub const DWELL_REASON_TOKEN: dwell_reason = 11;
pub const DWELL_REASON_SECOND: dwell_reason = 12;
pub const DWELL_REASON_PING: dwell_reason = 13;
pub const DWELL_REASON_TOO_BIG: dwell_reason = 14;
pub const DWELL_REASON_NO_BACKEND: dwell_reason = 15;
pub const DWELL_REASON_NO_ROUTE: dwell_reason = 16;
pub const DWELL_REASON_TTL: dwell_reason = 17;
pub const DWELL_REASON_FRAGMENT: dwell_reason = 18;
pub const DWELL_REASON_MALFORMED: dwell_reason = 19;
pub const DWELL_REASON_NO_ROOM: dwell_reason = 20;
pub const DWELL_REASON_UNROUTABLE: dwell_reason = 21;
pub const DWELL_REASON_UNANSWERED: dwell_reason = 22;
pub const DWELL_REASONS: dwell_reason = 23;
pub type dwell_reason = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_heartbeat {
    pub renewed_ns: __u64,
    pub stale_s: __u32,
    pub equal: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_heartbeat"][::std::mem::size_of::<dwell_heartbeat>() - 16usize];
    ["Alignment of dwell_heartbeat"][::std::mem::align_of::<dwell_heartbeat>() - 8usize];
    ["Offset of field: dwell_heartbeat::renewed_ns"][::std::mem::offset_of!(dwell_heartbeat, renewed_ns) - 0usize];
    ["Offset of field: dwell_heartbeat::stale_s"][::std::mem::offset_of!(dwell_heartbeat, stale_s) - 8usize];
    ["Offset of field: dwell_heartbeat::equal"][::std::mem::offset_of!(dwell_heartbeat, equal) - 12usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_budget {
    pub second: __u32,
    pub spent: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_budget"][::std::mem::size_of::<dwell_budget>() - 8usize];
    ["Alignment of dwell_budget"][::std::mem::align_of::<dwell_budget>() - 4usize];
    ["Offset of field: dwell_budget::second"][::std::mem::offset_of!(dwell_budget, second) - 0usize];
    ["Offset of field: dwell_budget::spent"][::std::mem::offset_of!(dwell_budget, spent) - 4usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_balance_counters {
    pub table: dwell_counters,
    pub reason: [__u64; 23usize],
    pub zero: [__u64; 16usize],
    pub unfinished: __u64,
    pub unmeasured: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_balance_counters"][::std::mem::size_of::<dwell_balance_counters>() - 560usize];
    ["Alignment of dwell_balance_counters"][::std::mem::align_of::<dwell_balance_counters>() - 8usize];
    ["Offset of field: dwell_balance_counters::table"][::std::mem::offset_of!(dwell_balance_counters, table) - 0usize];
    ["Offset of field: dwell_balance_counters::reason"]
        [::std::mem::offset_of!(dwell_balance_counters, reason) - 232usize];
    ["Offset of field: dwell_balance_counters::zero"][::std::mem::offset_of!(dwell_balance_counters, zero) - 416usize];
    ["Offset of field: dwell_balance_counters::unfinished"]
        [::std::mem::offset_of!(dwell_balance_counters, unfinished) - 544usize];
    ["Offset of field: dwell_balance_counters::unmeasured"]
        [::std::mem::offset_of!(dwell_balance_counters, unmeasured) - 552usize];
};
pub const DWELL_DECAP_OTHER: dwell_decap = 0;
pub const DWELL_DECAP_SENDER: dwell_decap = 1;
pub const DWELL_DECAP_IPIP: dwell_decap = 2;
pub const DWELL_DECAP_GUE: dwell_decap = 3;
pub const DWELL_DECAP_MARKED: dwell_decap = 4;
pub const DWELL_DECAP_KEPT: dwell_decap = 5;
pub const DWELL_DECAP_SENT_ON: dwell_decap = 6;
pub const DWELL_DECAP_CONGESTED: dwell_decap = 7;
pub const DWELL_DECAP_MALFORMED: dwell_decap = 8;
pub const DWELL_DECAP_SPECIAL: dwell_decap = 9;
pub const DWELL_DECAP_NOT_VIP: dwell_decap = 10;
pub const DWELL_DECAP_NO_ROUTE: dwell_decap = 11;
pub const DWELL_DECAPS: dwell_decap = 12;
pub type dwell_decap = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_decap_counters {
    pub value: [__u64; 12usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_decap_counters"][::std::mem::size_of::<dwell_decap_counters>() - 96usize];
    ["Alignment of dwell_decap_counters"][::std::mem::align_of::<dwell_decap_counters>() - 8usize];
    ["Offset of field: dwell_decap_counters::value"][::std::mem::offset_of!(dwell_decap_counters, value) - 0usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_decap_program {
    pub gue_port: __u16,
    pub sends_on: __u8,
    pub redirects_back: __u8,
    pub reserved: [__u8; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_decap_program"][::std::mem::size_of::<dwell_decap_program>() - 8usize];
    ["Alignment of dwell_decap_program"][::std::mem::align_of::<dwell_decap_program>() - 2usize];
    ["Offset of field: dwell_decap_program::gue_port"][::std::mem::offset_of!(dwell_decap_program, gue_port) - 0usize];
    ["Offset of field: dwell_decap_program::sends_on"][::std::mem::offset_of!(dwell_decap_program, sends_on) - 2usize];
    ["Offset of field: dwell_decap_program::redirects_back"]
        [::std::mem::offset_of!(dwell_decap_program, redirects_back) - 3usize];
    ["Offset of field: dwell_decap_program::reserved"][::std::mem::offset_of!(dwell_decap_program, reserved) - 4usize];
};
pub const DWELL_VERDICT_PASS: dwell_verdict = 0;
pub const DWELL_VERDICT_DROP: dwell_verdict = 1;
pub const DWELL_VERDICT_SEND: dwell_verdict = 2;
pub const DWELL_VERDICT_REDIRECT: dwell_verdict = 3;
pub type dwell_verdict = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_decision {
    pub real: __u32,
    pub vip: __u32,
    pub reason: __u32,
    pub verdict: __u32,
    pub interface: __u32,
    pub size: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_decision"][::std::mem::size_of::<dwell_decision>() - 24usize];
    ["Alignment of dwell_decision"][::std::mem::align_of::<dwell_decision>() - 4usize];
    ["Offset of field: dwell_decision::real"][::std::mem::offset_of!(dwell_decision, real) - 0usize];
    ["Offset of field: dwell_decision::vip"][::std::mem::offset_of!(dwell_decision, vip) - 4usize];
    ["Offset of field: dwell_decision::reason"][::std::mem::offset_of!(dwell_decision, reason) - 8usize];
    ["Offset of field: dwell_decision::verdict"][::std::mem::offset_of!(dwell_decision, verdict) - 12usize];
    ["Offset of field: dwell_decision::interface"][::std::mem::offset_of!(dwell_decision, interface) - 16usize];
    ["Offset of field: dwell_decision::size"][::std::mem::offset_of!(dwell_decision, size) - 20usize];
};
pub type dwell_tally = __u64;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_mode {
    pub low: __u32,
    pub high: __u32,
    pub min: __u16,
    pub max: __u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_mode"][::std::mem::size_of::<dwell_mode>() - 12usize];
    ["Alignment of dwell_mode"][::std::mem::align_of::<dwell_mode>() - 4usize];
    ["Offset of field: dwell_mode::low"][::std::mem::offset_of!(dwell_mode, low) - 0usize];
    ["Offset of field: dwell_mode::high"][::std::mem::offset_of!(dwell_mode, high) - 4usize];
    ["Offset of field: dwell_mode::min"][::std::mem::offset_of!(dwell_mode, min) - 8usize];
    ["Offset of field: dwell_mode::max"][::std::mem::offset_of!(dwell_mode, max) - 10usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_modes {
    pub mode: [dwell_mode; 10usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_modes"][::std::mem::size_of::<dwell_modes>() - 120usize];
    ["Alignment of dwell_modes"][::std::mem::align_of::<dwell_modes>() - 4usize];
    ["Offset of field: dwell_modes::mode"][::std::mem::offset_of!(dwell_modes, mode) - 0usize];
};
pub const DWELL_VISIBLE_NONE: dwell_visible = 0;
pub const DWELL_VISIBLE_UDP: dwell_visible = 1;
pub const DWELL_VISIBLE_TCP: dwell_visible = 2;
pub const DWELL_VISIBLE_QUIC: dwell_visible = 3;
pub type dwell_visible = ::std::os::raw::c_uint;
pub const DWELL_ESTIMATE_AUTO: dwell_estimator = 0;
pub const DWELL_ESTIMATE_PIRATE: dwell_estimator = 1;
pub const DWELL_ESTIMATE_GAP: dwell_estimator = 2;
pub const DWELL_ESTIMATE_SYN_ACK: dwell_estimator = 3;
pub type dwell_estimator = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_arrival {
    pub time_ns: __u64,
    pub bytes: __u32,
    pub payload_bytes: __u32,
    pub seq: __u32,
    pub ack: __u32,
    pub visible: __u8,
    pub tcp_flags: __u8,
    pub segments: __u8,
    pub content: __u8,
    pub tsecr: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_arrival"][::std::mem::size_of::<dwell_arrival>() - 32usize];
    ["Alignment of dwell_arrival"][::std::mem::align_of::<dwell_arrival>() - 8usize];
    ["Offset of field: dwell_arrival::time_ns"][::std::mem::offset_of!(dwell_arrival, time_ns) - 0usize];
    ["Offset of field: dwell_arrival::bytes"][::std::mem::offset_of!(dwell_arrival, bytes) - 8usize];
    ["Offset of field: dwell_arrival::payload_bytes"][::std::mem::offset_of!(dwell_arrival, payload_bytes) - 12usize];
    ["Offset of field: dwell_arrival::seq"][::std::mem::offset_of!(dwell_arrival, seq) - 16usize];
    ["Offset of field: dwell_arrival::ack"][::std::mem::offset_of!(dwell_arrival, ack) - 20usize];
    ["Offset of field: dwell_arrival::visible"][::std::mem::offset_of!(dwell_arrival, visible) - 24usize];
    ["Offset of field: dwell_arrival::tcp_flags"][::std::mem::offset_of!(dwell_arrival, tcp_flags) - 25usize];
    ["Offset of field: dwell_arrival::segments"][::std::mem::offset_of!(dwell_arrival, segments) - 26usize];
    ["Offset of field: dwell_arrival::content"][::std::mem::offset_of!(dwell_arrival, content) - 27usize];
    ["Offset of field: dwell_arrival::tsecr"][::std::mem::offset_of!(dwell_arrival, tsecr) - 28usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_response_config {
    pub epoch_ns: __u64,
    pub phase_ns: __u64,
    pub epsilon_ns: __u64,
    pub idle_ns: __u64,
    pub threshold_ns: __u64,
    pub run_gap_ns: __u64,
    pub epsilon_q8: __u32,
    pub mtu: __u16,
    pub ack_bytes: __u16,
    pub estimator: __u8,
    pub modes: __u8,
    pub coalesce_acks: __u8,
    pub mark_small: __u8,
    pub reserved: [__u8; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_response_config"][::std::mem::size_of::<dwell_response_config>() - 64usize];
    ["Alignment of dwell_response_config"][::std::mem::align_of::<dwell_response_config>() - 8usize];
    ["Offset of field: dwell_response_config::epoch_ns"]
        [::std::mem::offset_of!(dwell_response_config, epoch_ns) - 0usize];
    ["Offset of field: dwell_response_config::phase_ns"]
        [::std::mem::offset_of!(dwell_response_config, phase_ns) - 8usize];
    ["Offset of field: dwell_response_config::epsilon_ns"]
        [::std::mem::offset_of!(dwell_response_config, epsilon_ns) - 16usize];
    ["Offset of field: dwell_response_config::idle_ns"]
        [::std::mem::offset_of!(dwell_response_config, idle_ns) - 24usize];
    ["Offset of field: dwell_response_config::threshold_ns"]
        [::std::mem::offset_of!(dwell_response_config, threshold_ns) - 32usize];
    ["Offset of field: dwell_response_config::run_gap_ns"]
        [::std::mem::offset_of!(dwell_response_config, run_gap_ns) - 40usize];
    ["Offset of field: dwell_response_config::epsilon_q8"]
        [::std::mem::offset_of!(dwell_response_config, epsilon_q8) - 48usize];
    ["Offset of field: dwell_response_config::mtu"][::std::mem::offset_of!(dwell_response_config, mtu) - 52usize];
    ["Offset of field: dwell_response_config::ack_bytes"]
        [::std::mem::offset_of!(dwell_response_config, ack_bytes) - 54usize];
    ["Offset of field: dwell_response_config::estimator"]
        [::std::mem::offset_of!(dwell_response_config, estimator) - 56usize];
    ["Offset of field: dwell_response_config::modes"][::std::mem::offset_of!(dwell_response_config, modes) - 57usize];
    ["Offset of field: dwell_response_config::coalesce_acks"]
        [::std::mem::offset_of!(dwell_response_config, coalesce_acks) - 58usize];
    ["Offset of field: dwell_response_config::mark_small"]
        [::std::mem::offset_of!(dwell_response_config, mark_small) - 59usize];
    ["Offset of field: dwell_response_config::reserved"]
        [::std::mem::offset_of!(dwell_response_config, reserved) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_epoch_clock {
    pub last_ns: __u64,
    pub end_ns: __u64,
    pub packets: __u32,
    pub idle: __u16,
    pub full: __u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_epoch_clock"][::std::mem::size_of::<dwell_epoch_clock>() - 24usize];
    ["Alignment of dwell_epoch_clock"][::std::mem::align_of::<dwell_epoch_clock>() - 8usize];
    ["Offset of field: dwell_epoch_clock::last_ns"][::std::mem::offset_of!(dwell_epoch_clock, last_ns) - 0usize];
    ["Offset of field: dwell_epoch_clock::end_ns"][::std::mem::offset_of!(dwell_epoch_clock, end_ns) - 8usize];
    ["Offset of field: dwell_epoch_clock::packets"][::std::mem::offset_of!(dwell_epoch_clock, packets) - 16usize];
    ["Offset of field: dwell_epoch_clock::idle"][::std::mem::offset_of!(dwell_epoch_clock, idle) - 20usize];
    ["Offset of field: dwell_epoch_clock::full"][::std::mem::offset_of!(dwell_epoch_clock, full) - 22usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_pirate_state {
    pub clock: dwell_epoch_clock,
    pub modes: dwell_modes,
    pub discarded: __u16,
    pub marks: __u16,
    pub answer: __u16,
    pub used: __u8,
    pub _bitfield_1: __BindgenBitfieldUnit<[u8; 1usize]>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_pirate_state"][::std::mem::size_of::<dwell_pirate_state>() - 152usize];
    ["Alignment of dwell_pirate_state"][::std::mem::align_of::<dwell_pirate_state>() - 8usize];
    ["Offset of field: dwell_pirate_state::clock"][::std::mem::offset_of!(dwell_pirate_state, clock) - 0usize];
    ["Offset of field: dwell_pirate_state::modes"][::std::mem::offset_of!(dwell_pirate_state, modes) - 24usize];
    ["Offset of field: dwell_pirate_state::discarded"]
        [::std::mem::offset_of!(dwell_pirate_state, discarded) - 144usize];
    ["Offset of field: dwell_pirate_state::marks"][::std::mem::offset_of!(dwell_pirate_state, marks) - 146usize];
    ["Offset of field: dwell_pirate_state::answer"][::std::mem::offset_of!(dwell_pirate_state, answer) - 148usize];
    ["Offset of field: dwell_pirate_state::used"][::std::mem::offset_of!(dwell_pirate_state, used) - 150usize];
};
impl dwell_pirate_state {
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn small(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<0usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_small(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<0usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn small_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<0usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_small_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<0usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn first(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<1usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_first(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<1usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn first_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<1usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_first_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<1usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn waits(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<2usize, 6u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_waits(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<2usize, 6u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn waits_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<2usize, 6u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_waits_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<2usize, 6u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn new_bitfield_1(small: __u8, first: __u8, waits: __u8) -> __BindgenBitfieldUnit<[u8; 1usize]> {
        let mut __bindgen_bitfield_unit: __BindgenBitfieldUnit<[u8; 1usize]> = Default::default();
        __bindgen_bitfield_unit.set_const::<0usize, 1u8>({
            let small: u8 = unsafe { ::std::mem::transmute(small) };
            small as u64
        });
        __bindgen_bitfield_unit.set_const::<1usize, 1u8>({
            let first: u8 = unsafe { ::std::mem::transmute(first) };
            first as u64
        });
        __bindgen_bitfield_unit.set_const::<2usize, 6u8>({
            let waits: u8 = unsafe { ::std::mem::transmute(waits) };
            waits as u64
        });
        __bindgen_bitfield_unit
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_gap_state {
    pub clock: dwell_epoch_clock,
    pub start_ns: __u64,
    pub batches: dwell_tally,
    pub handshake_ns: __u64,
    pub requests: __u32,
    pub shortest: __u16,
    pub longest: __u16,
    pub answer: __u16,
    pub flags: __u16,
    pub waits: __u8,
    pub reserved: [__u8; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_gap_state"][::std::mem::size_of::<dwell_gap_state>() - 64usize];
    ["Alignment of dwell_gap_state"][::std::mem::align_of::<dwell_gap_state>() - 8usize];
    ["Offset of field: dwell_gap_state::clock"][::std::mem::offset_of!(dwell_gap_state, clock) - 0usize];
    ["Offset of field: dwell_gap_state::start_ns"][::std::mem::offset_of!(dwell_gap_state, start_ns) - 24usize];
    ["Offset of field: dwell_gap_state::batches"][::std::mem::offset_of!(dwell_gap_state, batches) - 32usize];
    ["Offset of field: dwell_gap_state::handshake_ns"][::std::mem::offset_of!(dwell_gap_state, handshake_ns) - 40usize];
    ["Offset of field: dwell_gap_state::requests"][::std::mem::offset_of!(dwell_gap_state, requests) - 48usize];
    ["Offset of field: dwell_gap_state::shortest"][::std::mem::offset_of!(dwell_gap_state, shortest) - 52usize];
    ["Offset of field: dwell_gap_state::longest"][::std::mem::offset_of!(dwell_gap_state, longest) - 54usize];
    ["Offset of field: dwell_gap_state::answer"][::std::mem::offset_of!(dwell_gap_state, answer) - 56usize];
    ["Offset of field: dwell_gap_state::flags"][::std::mem::offset_of!(dwell_gap_state, flags) - 58usize];
    ["Offset of field: dwell_gap_state::waits"][::std::mem::offset_of!(dwell_gap_state, waits) - 60usize];
    ["Offset of field: dwell_gap_state::reserved"][::std::mem::offset_of!(dwell_gap_state, reserved) - 61usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_turn_state {
    pub origin_ns: __u64,
    pub answered: dwell_tally,
    pub start: __u32,
    pub end: __u32,
    pub sent: __u32,
    pub progress: __u32,
    pub pause: __u32,
    pub path: __u16,
    pub queue: __u16,
    pub bytes: __u32,
    pub round_trip: __u32,
    pub usual: __u32,
    pub usual_bytes: __u32,
    pub window_bytes: __u32,
    pub first_tick: __u32,
    pub first_echo: __u32,
    pub base_tick: __u32,
    pub base_echo: __u32,
    pub unit_ns: __u32,
    pub unknown: __u32,
    pub flags: __u16,
    pub size: __u16,
    pub bursts: __u16,
    pub alike: __u16,
    pub unsure: __u16,
    pub moved: __u16,
    pub carried: __u16,
    pub loose: __u16,
    pub early: __u16,
    pub unasked: __u16,
    pub frames: __u16,
    pub overlong: __u16,
    pub pieces: __u16,
    pub extra: __u16,
    pub mss: __u16,
    pub burst: __u8,
    pub runs: __u8,
    pub clock_samples: __u8,
    pub _bitfield_1: __BindgenBitfieldUnit<[u8; 3usize]>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_turn_state"][::std::mem::size_of::<dwell_turn_state>() - 120usize];
    ["Alignment of dwell_turn_state"][::std::mem::align_of::<dwell_turn_state>() - 8usize];
    ["Offset of field: dwell_turn_state::origin_ns"][::std::mem::offset_of!(dwell_turn_state, origin_ns) - 0usize];
    ["Offset of field: dwell_turn_state::answered"][::std::mem::offset_of!(dwell_turn_state, answered) - 8usize];
    ["Offset of field: dwell_turn_state::start"][::std::mem::offset_of!(dwell_turn_state, start) - 16usize];
    ["Offset of field: dwell_turn_state::end"][::std::mem::offset_of!(dwell_turn_state, end) - 20usize];
    ["Offset of field: dwell_turn_state::sent"][::std::mem::offset_of!(dwell_turn_state, sent) - 24usize];
    ["Offset of field: dwell_turn_state::progress"][::std::mem::offset_of!(dwell_turn_state, progress) - 28usize];
    ["Offset of field: dwell_turn_state::pause"][::std::mem::offset_of!(dwell_turn_state, pause) - 32usize];
    ["Offset of field: dwell_turn_state::path"][::std::mem::offset_of!(dwell_turn_state, path) - 36usize];
    ["Offset of field: dwell_turn_state::queue"][::std::mem::offset_of!(dwell_turn_state, queue) - 38usize];
    ["Offset of field: dwell_turn_state::bytes"][::std::mem::offset_of!(dwell_turn_state, bytes) - 40usize];
    ["Offset of field: dwell_turn_state::round_trip"][::std::mem::offset_of!(dwell_turn_state, round_trip) - 44usize];
    ["Offset of field: dwell_turn_state::usual"][::std::mem::offset_of!(dwell_turn_state, usual) - 48usize];
    ["Offset of field: dwell_turn_state::usual_bytes"][::std::mem::offset_of!(dwell_turn_state, usual_bytes) - 52usize];
    ["Offset of field: dwell_turn_state::window_bytes"]
        [::std::mem::offset_of!(dwell_turn_state, window_bytes) - 56usize];
    ["Offset of field: dwell_turn_state::first_tick"][::std::mem::offset_of!(dwell_turn_state, first_tick) - 60usize];
    ["Offset of field: dwell_turn_state::first_echo"][::std::mem::offset_of!(dwell_turn_state, first_echo) - 64usize];
    ["Offset of field: dwell_turn_state::base_tick"][::std::mem::offset_of!(dwell_turn_state, base_tick) - 68usize];
    ["Offset of field: dwell_turn_state::base_echo"][::std::mem::offset_of!(dwell_turn_state, base_echo) - 72usize];
    ["Offset of field: dwell_turn_state::unit_ns"][::std::mem::offset_of!(dwell_turn_state, unit_ns) - 76usize];
    ["Offset of field: dwell_turn_state::unknown"][::std::mem::offset_of!(dwell_turn_state, unknown) - 80usize];
    ["Offset of field: dwell_turn_state::flags"][::std::mem::offset_of!(dwell_turn_state, flags) - 84usize];
    ["Offset of field: dwell_turn_state::size"][::std::mem::offset_of!(dwell_turn_state, size) - 86usize];
    ["Offset of field: dwell_turn_state::bursts"][::std::mem::offset_of!(dwell_turn_state, bursts) - 88usize];
    ["Offset of field: dwell_turn_state::alike"][::std::mem::offset_of!(dwell_turn_state, alike) - 90usize];
    ["Offset of field: dwell_turn_state::unsure"][::std::mem::offset_of!(dwell_turn_state, unsure) - 92usize];
    ["Offset of field: dwell_turn_state::moved"][::std::mem::offset_of!(dwell_turn_state, moved) - 94usize];
    ["Offset of field: dwell_turn_state::carried"][::std::mem::offset_of!(dwell_turn_state, carried) - 96usize];
    ["Offset of field: dwell_turn_state::loose"][::std::mem::offset_of!(dwell_turn_state, loose) - 98usize];
    ["Offset of field: dwell_turn_state::early"][::std::mem::offset_of!(dwell_turn_state, early) - 100usize];
    ["Offset of field: dwell_turn_state::unasked"][::std::mem::offset_of!(dwell_turn_state, unasked) - 102usize];
    ["Offset of field: dwell_turn_state::frames"][::std::mem::offset_of!(dwell_turn_state, frames) - 104usize];
    ["Offset of field: dwell_turn_state::overlong"][::std::mem::offset_of!(dwell_turn_state, overlong) - 106usize];
    ["Offset of field: dwell_turn_state::pieces"][::std::mem::offset_of!(dwell_turn_state, pieces) - 108usize];
    ["Offset of field: dwell_turn_state::extra"][::std::mem::offset_of!(dwell_turn_state, extra) - 110usize];
    ["Offset of field: dwell_turn_state::mss"][::std::mem::offset_of!(dwell_turn_state, mss) - 112usize];
    ["Offset of field: dwell_turn_state::burst"][::std::mem::offset_of!(dwell_turn_state, burst) - 114usize];
    ["Offset of field: dwell_turn_state::runs"][::std::mem::offset_of!(dwell_turn_state, runs) - 115usize];
    ["Offset of field: dwell_turn_state::clock_samples"]
        [::std::mem::offset_of!(dwell_turn_state, clock_samples) - 116usize];
};
impl dwell_turn_state {
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn clock_age(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<0usize, 5u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_clock_age(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<0usize, 5u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn clock_age_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<0usize, 5u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_clock_age_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<0usize, 5u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn parts(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<5usize, 3u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_parts(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<5usize, 3u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn parts_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<5usize, 3u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_parts_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<5usize, 3u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn stale(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<8usize, 4u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_stale(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<8usize, 4u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn stale_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<8usize, 4u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_stale_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<8usize, 4u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn refuted(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<12usize, 2u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_refuted(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<12usize, 2u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn refuted_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<12usize, 2u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_refuted_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<12usize, 2u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn is_full(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<14usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_is_full(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<14usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn is_full_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<14usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_is_full_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<14usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn at_once(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<15usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_at_once(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<15usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn at_once_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<15usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_at_once_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<15usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn spoken(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<16usize, 3u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_spoken(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<16usize, 3u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn spoken_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<16usize, 3u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_spoken_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<16usize, 3u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn usual_spoken(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<19usize, 3u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_usual_spoken(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<19usize, 3u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn usual_spoken_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<19usize, 3u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_usual_spoken_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<19usize, 3u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn more_spoken(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<22usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_more_spoken(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<22usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn more_spoken_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<22usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_more_spoken_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<22usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn rest(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<23usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_rest(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<23usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn rest_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<23usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_rest_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<23usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn new_bitfield_1(
        clock_age: __u8,
        parts: __u8,
        stale: __u8,
        refuted: __u8,
        is_full: __u8,
        at_once: __u8,
        spoken: __u8,
        usual_spoken: __u8,
        more_spoken: __u8,
        rest: __u8,
    ) -> __BindgenBitfieldUnit<[u8; 3usize]> {
        let mut __bindgen_bitfield_unit: __BindgenBitfieldUnit<[u8; 3usize]> = Default::default();
        __bindgen_bitfield_unit.set_const::<0usize, 5u8>({
            let clock_age: u8 = unsafe { ::std::mem::transmute(clock_age) };
            clock_age as u64
        });
        __bindgen_bitfield_unit.set_const::<5usize, 3u8>({
            let parts: u8 = unsafe { ::std::mem::transmute(parts) };
            parts as u64
        });
        __bindgen_bitfield_unit.set_const::<8usize, 4u8>({
            let stale: u8 = unsafe { ::std::mem::transmute(stale) };
            stale as u64
        });
        __bindgen_bitfield_unit.set_const::<12usize, 2u8>({
            let refuted: u8 = unsafe { ::std::mem::transmute(refuted) };
            refuted as u64
        });
        __bindgen_bitfield_unit.set_const::<14usize, 1u8>({
            let is_full: u8 = unsafe { ::std::mem::transmute(is_full) };
            is_full as u64
        });
        __bindgen_bitfield_unit.set_const::<15usize, 1u8>({
            let at_once: u8 = unsafe { ::std::mem::transmute(at_once) };
            at_once as u64
        });
        __bindgen_bitfield_unit.set_const::<16usize, 3u8>({
            let spoken: u8 = unsafe { ::std::mem::transmute(spoken) };
            spoken as u64
        });
        __bindgen_bitfield_unit.set_const::<19usize, 3u8>({
            let usual_spoken: u8 = unsafe { ::std::mem::transmute(usual_spoken) };
            usual_spoken as u64
        });
        __bindgen_bitfield_unit.set_const::<22usize, 1u8>({
            let more_spoken: u8 = unsafe { ::std::mem::transmute(more_spoken) };
            more_spoken as u64
        });
        __bindgen_bitfield_unit.set_const::<23usize, 1u8>({
            let rest: u8 = unsafe { ::std::mem::transmute(rest) };
            rest as u64
        });
        __bindgen_bitfield_unit
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct dwell_auto_state {
    pub clock: dwell_epoch_clock,
    pub next_seq: __u32,
    pub ack: __u32,
    pub progress: __u32,
    pub pace: __u32,
    pub held: __u32,
    pub flags: __u16,
    pub least: __u16,
    pub segment: __u16,
    pub largest: __u16,
    pub holes: __u16,
    pub repeats: __u16,
    pub burst: __u8,
    pub late: __u8,
    pub merged: __u8,
    pub ends: __u8,
    pub tail: __u8,
    pub head: __u8,
    pub depth: __u8,
    pub pauses: __u8,
    pub gaps: dwell_tally,
    pub lag: dwell_tally,
    pub all: dwell_tally,
    pub hidden: dwell_tally,
    pub requests: __u32,
    pub think: __u32,
    pub usual: __u16,
    pub __bindgen_anon_1: dwell_auto_state__bindgen_ty_1,
    pub turns: __u16,
    pub slow: __u16,
    pub surplus: __u16,
    pub missed: __u16,
    pub early: __u16,
    pub minor: __u16,
    pub plain: __u16,
    pub _bitfield_1: __BindgenBitfieldUnit<[u8; 1usize]>,
    pub peak: __u8,
    pub _bitfield_2: __BindgenBitfieldUnit<[u8; 1usize]>,
    pub streak: __u8,
    pub __bindgen_anon_2: dwell_auto_state__bindgen_ty_2,
    pub sent: [__u32; 16usize],
    pub __bindgen_anon_3: dwell_auto_state__bindgen_ty_3,
    pub turn: dwell_turn_state,
    pub _bitfield_3: __BindgenBitfieldUnit<[u8; 3usize]>,
    pub timers: __u8,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union dwell_auto_state__bindgen_ty_1 {
    pub smallest: __u16,
    pub done: __u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_auto_state__bindgen_ty_1"][::std::mem::size_of::<dwell_auto_state__bindgen_ty_1>() - 2usize];
    ["Alignment of dwell_auto_state__bindgen_ty_1"][::std::mem::align_of::<dwell_auto_state__bindgen_ty_1>() - 2usize];
    ["Offset of field: dwell_auto_state__bindgen_ty_1::smallest"]
        [::std::mem::offset_of!(dwell_auto_state__bindgen_ty_1, smallest) - 0usize];
    ["Offset of field: dwell_auto_state__bindgen_ty_1::done"]
        [::std::mem::offset_of!(dwell_auto_state__bindgen_ty_1, done) - 0usize];
};
impl Default for dwell_auto_state__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union dwell_auto_state__bindgen_ty_2 {
    pub __bindgen_anon_1: dwell_auto_state__bindgen_ty_2__bindgen_ty_1,
    pub again: __u16,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_auto_state__bindgen_ty_2__bindgen_ty_1 {
    pub steady: __u8,
    pub soon: __u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_auto_state__bindgen_ty_2__bindgen_ty_1"]
        [::std::mem::size_of::<dwell_auto_state__bindgen_ty_2__bindgen_ty_1>() - 2usize];
    ["Alignment of dwell_auto_state__bindgen_ty_2__bindgen_ty_1"]
        [::std::mem::align_of::<dwell_auto_state__bindgen_ty_2__bindgen_ty_1>() - 1usize];
    ["Offset of field: dwell_auto_state__bindgen_ty_2__bindgen_ty_1::steady"]
        [::std::mem::offset_of!(dwell_auto_state__bindgen_ty_2__bindgen_ty_1, steady) - 0usize];
    ["Offset of field: dwell_auto_state__bindgen_ty_2__bindgen_ty_1::soon"]
        [::std::mem::offset_of!(dwell_auto_state__bindgen_ty_2__bindgen_ty_1, soon) - 1usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_auto_state__bindgen_ty_2"][::std::mem::size_of::<dwell_auto_state__bindgen_ty_2>() - 2usize];
    ["Alignment of dwell_auto_state__bindgen_ty_2"][::std::mem::align_of::<dwell_auto_state__bindgen_ty_2>() - 2usize];
    ["Offset of field: dwell_auto_state__bindgen_ty_2::again"]
        [::std::mem::offset_of!(dwell_auto_state__bindgen_ty_2, again) - 0usize];
};
impl Default for dwell_auto_state__bindgen_ty_2 {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union dwell_auto_state__bindgen_ty_3 {
    pub log: [__u8; 64usize],
    pub gap_log: [__u16; 32usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_auto_state__bindgen_ty_3"][::std::mem::size_of::<dwell_auto_state__bindgen_ty_3>() - 64usize];
    ["Alignment of dwell_auto_state__bindgen_ty_3"][::std::mem::align_of::<dwell_auto_state__bindgen_ty_3>() - 2usize];
    ["Offset of field: dwell_auto_state__bindgen_ty_3::log"]
        [::std::mem::offset_of!(dwell_auto_state__bindgen_ty_3, log) - 0usize];
    ["Offset of field: dwell_auto_state__bindgen_ty_3::gap_log"]
        [::std::mem::offset_of!(dwell_auto_state__bindgen_ty_3, gap_log) - 0usize];
};
impl Default for dwell_auto_state__bindgen_ty_3 {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_auto_state"][::std::mem::size_of::<dwell_auto_state>() - 384usize];
    ["Alignment of dwell_auto_state"][::std::mem::align_of::<dwell_auto_state>() - 8usize];
    ["Offset of field: dwell_auto_state::clock"][::std::mem::offset_of!(dwell_auto_state, clock) - 0usize];
    ["Offset of field: dwell_auto_state::next_seq"][::std::mem::offset_of!(dwell_auto_state, next_seq) - 24usize];
    ["Offset of field: dwell_auto_state::ack"][::std::mem::offset_of!(dwell_auto_state, ack) - 28usize];
    ["Offset of field: dwell_auto_state::progress"][::std::mem::offset_of!(dwell_auto_state, progress) - 32usize];
    ["Offset of field: dwell_auto_state::pace"][::std::mem::offset_of!(dwell_auto_state, pace) - 36usize];
    ["Offset of field: dwell_auto_state::held"][::std::mem::offset_of!(dwell_auto_state, held) - 40usize];
    ["Offset of field: dwell_auto_state::flags"][::std::mem::offset_of!(dwell_auto_state, flags) - 44usize];
    ["Offset of field: dwell_auto_state::least"][::std::mem::offset_of!(dwell_auto_state, least) - 46usize];
    ["Offset of field: dwell_auto_state::segment"][::std::mem::offset_of!(dwell_auto_state, segment) - 48usize];
    ["Offset of field: dwell_auto_state::largest"][::std::mem::offset_of!(dwell_auto_state, largest) - 50usize];
    ["Offset of field: dwell_auto_state::holes"][::std::mem::offset_of!(dwell_auto_state, holes) - 52usize];
    ["Offset of field: dwell_auto_state::repeats"][::std::mem::offset_of!(dwell_auto_state, repeats) - 54usize];
    ["Offset of field: dwell_auto_state::burst"][::std::mem::offset_of!(dwell_auto_state, burst) - 56usize];
    ["Offset of field: dwell_auto_state::late"][::std::mem::offset_of!(dwell_auto_state, late) - 57usize];
    ["Offset of field: dwell_auto_state::merged"][::std::mem::offset_of!(dwell_auto_state, merged) - 58usize];
    ["Offset of field: dwell_auto_state::ends"][::std::mem::offset_of!(dwell_auto_state, ends) - 59usize];
    ["Offset of field: dwell_auto_state::tail"][::std::mem::offset_of!(dwell_auto_state, tail) - 60usize];
    ["Offset of field: dwell_auto_state::head"][::std::mem::offset_of!(dwell_auto_state, head) - 61usize];
    ["Offset of field: dwell_auto_state::depth"][::std::mem::offset_of!(dwell_auto_state, depth) - 62usize];
    ["Offset of field: dwell_auto_state::pauses"][::std::mem::offset_of!(dwell_auto_state, pauses) - 63usize];
    ["Offset of field: dwell_auto_state::gaps"][::std::mem::offset_of!(dwell_auto_state, gaps) - 64usize];
    ["Offset of field: dwell_auto_state::lag"][::std::mem::offset_of!(dwell_auto_state, lag) - 72usize];
    ["Offset of field: dwell_auto_state::all"][::std::mem::offset_of!(dwell_auto_state, all) - 80usize];
    ["Offset of field: dwell_auto_state::hidden"][::std::mem::offset_of!(dwell_auto_state, hidden) - 88usize];
    ["Offset of field: dwell_auto_state::requests"][::std::mem::offset_of!(dwell_auto_state, requests) - 96usize];
    ["Offset of field: dwell_auto_state::think"][::std::mem::offset_of!(dwell_auto_state, think) - 100usize];
    ["Offset of field: dwell_auto_state::usual"][::std::mem::offset_of!(dwell_auto_state, usual) - 104usize];
    ["Offset of field: dwell_auto_state::turns"][::std::mem::offset_of!(dwell_auto_state, turns) - 108usize];
    ["Offset of field: dwell_auto_state::slow"][::std::mem::offset_of!(dwell_auto_state, slow) - 110usize];
    ["Offset of field: dwell_auto_state::surplus"][::std::mem::offset_of!(dwell_auto_state, surplus) - 112usize];
    ["Offset of field: dwell_auto_state::missed"][::std::mem::offset_of!(dwell_auto_state, missed) - 114usize];
    ["Offset of field: dwell_auto_state::early"][::std::mem::offset_of!(dwell_auto_state, early) - 116usize];
    ["Offset of field: dwell_auto_state::minor"][::std::mem::offset_of!(dwell_auto_state, minor) - 118usize];
    ["Offset of field: dwell_auto_state::plain"][::std::mem::offset_of!(dwell_auto_state, plain) - 120usize];
    ["Offset of field: dwell_auto_state::peak"][::std::mem::offset_of!(dwell_auto_state, peak) - 123usize];
    ["Offset of field: dwell_auto_state::streak"][::std::mem::offset_of!(dwell_auto_state, streak) - 125usize];
    ["Offset of field: dwell_auto_state::sent"][::std::mem::offset_of!(dwell_auto_state, sent) - 128usize];
    ["Offset of field: dwell_auto_state::turn"][::std::mem::offset_of!(dwell_auto_state, turn) - 256usize];
    ["Offset of field: dwell_auto_state::timers"][::std::mem::offset_of!(dwell_auto_state, timers) - 379usize];
};
impl Default for dwell_auto_state {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl dwell_auto_state {
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn deeper(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<0usize, 2u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_deeper(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<0usize, 2u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn deeper_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<0usize, 2u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_deeper_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<0usize, 2u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn asked_whole(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<2usize, 4u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_asked_whole(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<2usize, 4u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn asked_whole_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<2usize, 4u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_asked_whole_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<2usize, 4u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn speaks(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_1.get_const::<6usize, 2u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_speaks(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_1.set_const::<6usize, 2u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn speaks_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<6usize, 2u8>(
                ::std::ptr::addr_of!((*this)._bitfield_1),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_speaks_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<6usize, 2u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_1),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn new_bitfield_1(deeper: __u8, asked_whole: __u8, speaks: __u8) -> __BindgenBitfieldUnit<[u8; 1usize]> {
        let mut __bindgen_bitfield_unit: __BindgenBitfieldUnit<[u8; 1usize]> = Default::default();
        __bindgen_bitfield_unit.set_const::<0usize, 2u8>({
            let deeper: u8 = unsafe { ::std::mem::transmute(deeper) };
            deeper as u64
        });
        __bindgen_bitfield_unit.set_const::<2usize, 4u8>({
            let asked_whole: u8 = unsafe { ::std::mem::transmute(asked_whole) };
            asked_whole as u64
        });
        __bindgen_bitfield_unit.set_const::<6usize, 2u8>({
            let speaks: u8 = unsafe { ::std::mem::transmute(speaks) };
            speaks as u64
        });
        __bindgen_bitfield_unit
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn quiet(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_2.get_const::<0usize, 2u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_quiet(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_2.set_const::<0usize, 2u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn quiet_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<0usize, 2u8>(
                ::std::ptr::addr_of!((*this)._bitfield_2),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_quiet_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<0usize, 2u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_2),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn unasked(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_2.get_const::<2usize, 2u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_unasked(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_2.set_const::<2usize, 2u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn unasked_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<2usize, 2u8>(
                ::std::ptr::addr_of!((*this)._bitfield_2),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_unasked_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<2usize, 2u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_2),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn usual_parts(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_2.get_const::<4usize, 3u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_usual_parts(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_2.set_const::<4usize, 3u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn usual_parts_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<4usize, 3u8>(
                ::std::ptr::addr_of!((*this)._bitfield_2),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_usual_parts_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<4usize, 3u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_2),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn more_parts(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_2.get_const::<7usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_more_parts(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_2.set_const::<7usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn more_parts_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 1usize]>>::raw_get_const::<7usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_2),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_more_parts_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 1usize]>>::raw_set_const::<7usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_2),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn new_bitfield_2(
        quiet: __u8,
        unasked: __u8,
        usual_parts: __u8,
        more_parts: __u8,
    ) -> __BindgenBitfieldUnit<[u8; 1usize]> {
        let mut __bindgen_bitfield_unit: __BindgenBitfieldUnit<[u8; 1usize]> = Default::default();
        __bindgen_bitfield_unit.set_const::<0usize, 2u8>({
            let quiet: u8 = unsafe { ::std::mem::transmute(quiet) };
            quiet as u64
        });
        __bindgen_bitfield_unit.set_const::<2usize, 2u8>({
            let unasked: u8 = unsafe { ::std::mem::transmute(unasked) };
            unasked as u64
        });
        __bindgen_bitfield_unit.set_const::<4usize, 3u8>({
            let usual_parts: u8 = unsafe { ::std::mem::transmute(usual_parts) };
            usual_parts as u64
        });
        __bindgen_bitfield_unit.set_const::<7usize, 1u8>({
            let more_parts: u8 = unsafe { ::std::mem::transmute(more_parts) };
            more_parts as u64
        });
        __bindgen_bitfield_unit
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn log_shift(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<0usize, 4u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_log_shift(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<0usize, 4u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn log_shift_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<0usize, 4u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_log_shift_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<0usize, 4u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn answered_whole(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<4usize, 4u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_answered_whole(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<4usize, 4u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn answered_whole_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<4usize, 4u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_answered_whole_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<4usize, 4u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn alone(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<8usize, 2u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_alone(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<8usize, 2u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn alone_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<8usize, 2u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_alone_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<8usize, 2u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn pieced(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<10usize, 3u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_pieced(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<10usize, 3u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn pieced_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<10usize, 3u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_pieced_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<10usize, 3u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn lone(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<13usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_lone(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<13usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn lone_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<13usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_lone_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<13usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn closing(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<14usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_closing(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<14usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn closing_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<14usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_closing_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<14usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn second(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<15usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_second(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<15usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn second_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<15usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_second_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<15usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn together(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<16usize, 4u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_together(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<16usize, 4u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn together_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<16usize, 4u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_together_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<16usize, 4u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn came(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<20usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_came(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<20usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn came_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<20usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_came_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<20usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn maybe(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<21usize, 1u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_maybe(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<21usize, 1u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn maybe_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<21usize, 1u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_maybe_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<21usize, 1u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn unanswered(&self) -> __u8 {
        unsafe { ::std::mem::transmute(self._bitfield_3.get_const::<22usize, 2u8>() as u8) }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn set_unanswered(&mut self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            self._bitfield_3.set_const::<22usize, 2u8>(val as u64)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn unanswered_raw(this: *const Self) -> __u8 {
        unsafe {
            ::std::mem::transmute(<__BindgenBitfieldUnit<[u8; 3usize]>>::raw_get_const::<22usize, 2u8>(
                ::std::ptr::addr_of!((*this)._bitfield_3),
            ) as u8)
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub unsafe fn set_unanswered_raw(this: *mut Self, val: __u8) {
        unsafe {
            let val: u8 = ::std::mem::transmute(val);
            <__BindgenBitfieldUnit<[u8; 3usize]>>::raw_set_const::<22usize, 2u8>(
                ::std::ptr::addr_of_mut!((*this)._bitfield_3),
                val as u64,
            )
        }
    }
    #[inline]
    #[allow(unnecessary_transmutes)]
    pub fn new_bitfield_3(
        log_shift: __u8,
        answered_whole: __u8,
        alone: __u8,
        pieced: __u8,
        lone: __u8,
        closing: __u8,
        second: __u8,
        together: __u8,
        came: __u8,
        maybe: __u8,
        unanswered: __u8,
    ) -> __BindgenBitfieldUnit<[u8; 3usize]> {
        let mut __bindgen_bitfield_unit: __BindgenBitfieldUnit<[u8; 3usize]> = Default::default();
        __bindgen_bitfield_unit.set_const::<0usize, 4u8>({
            let log_shift: u8 = unsafe { ::std::mem::transmute(log_shift) };
            log_shift as u64
        });
        __bindgen_bitfield_unit.set_const::<4usize, 4u8>({
            let answered_whole: u8 = unsafe { ::std::mem::transmute(answered_whole) };
            answered_whole as u64
        });
        __bindgen_bitfield_unit.set_const::<8usize, 2u8>({
            let alone: u8 = unsafe { ::std::mem::transmute(alone) };
            alone as u64
        });
        __bindgen_bitfield_unit.set_const::<10usize, 3u8>({
            let pieced: u8 = unsafe { ::std::mem::transmute(pieced) };
            pieced as u64
        });
        __bindgen_bitfield_unit.set_const::<13usize, 1u8>({
            let lone: u8 = unsafe { ::std::mem::transmute(lone) };
            lone as u64
        });
        __bindgen_bitfield_unit.set_const::<14usize, 1u8>({
            let closing: u8 = unsafe { ::std::mem::transmute(closing) };
            closing as u64
        });
        __bindgen_bitfield_unit.set_const::<15usize, 1u8>({
            let second: u8 = unsafe { ::std::mem::transmute(second) };
            second as u64
        });
        __bindgen_bitfield_unit.set_const::<16usize, 4u8>({
            let together: u8 = unsafe { ::std::mem::transmute(together) };
            together as u64
        });
        __bindgen_bitfield_unit.set_const::<20usize, 1u8>({
            let came: u8 = unsafe { ::std::mem::transmute(came) };
            came as u64
        });
        __bindgen_bitfield_unit.set_const::<21usize, 1u8>({
            let maybe: u8 = unsafe { ::std::mem::transmute(maybe) };
            maybe as u64
        });
        __bindgen_bitfield_unit.set_const::<22usize, 2u8>({
            let unanswered: u8 = unsafe { ::std::mem::transmute(unanswered) };
            unanswered as u64
        });
        __bindgen_bitfield_unit
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union dwell_response_state {
    pub clock: dwell_epoch_clock,
    pub pirate: dwell_pirate_state,
    pub gap: dwell_gap_state,
    pub adaptive: dwell_auto_state,
    pub __bindgen_anon_1: dwell_response_state__bindgen_ty_1,
    pub next: __u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dwell_response_state__bindgen_ty_1 {
    pub estimator: [__u8; 380usize],
    pub tunnel: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_response_state__bindgen_ty_1"]
        [::std::mem::size_of::<dwell_response_state__bindgen_ty_1>() - 384usize];
    ["Alignment of dwell_response_state__bindgen_ty_1"]
        [::std::mem::align_of::<dwell_response_state__bindgen_ty_1>() - 4usize];
    ["Offset of field: dwell_response_state__bindgen_ty_1::estimator"]
        [::std::mem::offset_of!(dwell_response_state__bindgen_ty_1, estimator) - 0usize];
    ["Offset of field: dwell_response_state__bindgen_ty_1::tunnel"]
        [::std::mem::offset_of!(dwell_response_state__bindgen_ty_1, tunnel) - 380usize];
};
impl Default for dwell_response_state__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_response_state"][::std::mem::size_of::<dwell_response_state>() - 384usize];
    ["Alignment of dwell_response_state"][::std::mem::align_of::<dwell_response_state>() - 8usize];
    ["Offset of field: dwell_response_state::clock"][::std::mem::offset_of!(dwell_response_state, clock) - 0usize];
    ["Offset of field: dwell_response_state::pirate"][::std::mem::offset_of!(dwell_response_state, pirate) - 0usize];
    ["Offset of field: dwell_response_state::gap"][::std::mem::offset_of!(dwell_response_state, gap) - 0usize];
    ["Offset of field: dwell_response_state::adaptive"]
        [::std::mem::offset_of!(dwell_response_state, adaptive) - 0usize];
    ["Offset of field: dwell_response_state::next"][::std::mem::offset_of!(dwell_response_state, next) - 0usize];
};
impl Default for dwell_response_state {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_epoch_mode {
    pub min_ns: __u64,
    pub max_ns: __u64,
    pub sum_ns: __u64,
    pub count: __u32,
    pub marked: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_epoch_mode"][::std::mem::size_of::<dwell_epoch_mode>() - 32usize];
    ["Alignment of dwell_epoch_mode"][::std::mem::align_of::<dwell_epoch_mode>() - 8usize];
    ["Offset of field: dwell_epoch_mode::min_ns"][::std::mem::offset_of!(dwell_epoch_mode, min_ns) - 0usize];
    ["Offset of field: dwell_epoch_mode::max_ns"][::std::mem::offset_of!(dwell_epoch_mode, max_ns) - 8usize];
    ["Offset of field: dwell_epoch_mode::sum_ns"][::std::mem::offset_of!(dwell_epoch_mode, sum_ns) - 16usize];
    ["Offset of field: dwell_epoch_mode::count"][::std::mem::offset_of!(dwell_epoch_mode, count) - 24usize];
    ["Offset of field: dwell_epoch_mode::marked"][::std::mem::offset_of!(dwell_epoch_mode, marked) - 28usize];
};
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_epoch {
    pub start_ns: __u64,
    pub epoch_ns: __u64,
    pub idle_ns: __u64,
    pub packets: __u32,
    pub discarded: __u32,
    pub idle: __u32,
    pub estimator: __u8,
    pub modes: __u8,
    pub sizes_only: __u8,
    pub waits: __u8,
    pub handshake_ns: __u64,
    pub gaps_ns: __u64,
    pub gaps: __u32,
    pub requests: __u32,
    pub full: __u32,
    pub late: __u32,
    pub lag_ns: __u64,
    pub lags: __u32,
    pub depth: __u32,
    pub think_ns: __u64,
    pub turns: __u32,
    pub slow: __u32,
    pub all_ns: __u64,
    pub hidden_ns: __u64,
    pub all: __u32,
    pub hidden: __u32,
    pub surplus: __u32,
    pub missed: __u32,
    pub early: __u32,
    pub minor: __u32,
    pub plain: __u32,
    pub streak: __u32,
    pub repeats: __u32,
    pub steady: __u8,
    pub deep: __u8,
    pub once: __u8,
    pub narrow: __u8,
    pub soon: __u32,
    pub smallest: __u16,
    pub largest: __u16,
    pub answered_ns: __u64,
    pub unknown_ns: __u64,
    pub answered: __u32,
    pub runs: __u32,
    pub extra: __u32,
    pub server_tick_ns: __u32,
    pub anchor_age_ms: __u32,
    pub window_bytes: __u32,
    pub usual_bytes: __u32,
    pub bursts: __u16,
    pub alike: __u16,
    pub unsure: __u16,
    pub moved: __u16,
    pub carried: __u16,
    pub loose: __u16,
    pub early_turns: __u16,
    pub unasked: __u16,
    pub frames: __u16,
    pub overlong: __u16,
    pub window: __u8,
    pub shared: __u8,
    pub reopened: __u8,
    pub log_shift: __u8,
    pub text: __u8,
    pub unanswered: __u8,
    pub whole: __u8,
    pub speaks: __u8,
    pub log: [__u8; 64usize],
    pub gap_log: [__u16; 32usize],
    pub mode: [dwell_epoch_mode; 10usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_epoch"][::std::mem::size_of::<dwell_epoch>() - 688usize];
    ["Alignment of dwell_epoch"][::std::mem::align_of::<dwell_epoch>() - 8usize];
    ["Offset of field: dwell_epoch::start_ns"][::std::mem::offset_of!(dwell_epoch, start_ns) - 0usize];
    ["Offset of field: dwell_epoch::epoch_ns"][::std::mem::offset_of!(dwell_epoch, epoch_ns) - 8usize];
    ["Offset of field: dwell_epoch::idle_ns"][::std::mem::offset_of!(dwell_epoch, idle_ns) - 16usize];
    ["Offset of field: dwell_epoch::packets"][::std::mem::offset_of!(dwell_epoch, packets) - 24usize];
    ["Offset of field: dwell_epoch::discarded"][::std::mem::offset_of!(dwell_epoch, discarded) - 28usize];
    ["Offset of field: dwell_epoch::idle"][::std::mem::offset_of!(dwell_epoch, idle) - 32usize];
    ["Offset of field: dwell_epoch::estimator"][::std::mem::offset_of!(dwell_epoch, estimator) - 36usize];
    ["Offset of field: dwell_epoch::modes"][::std::mem::offset_of!(dwell_epoch, modes) - 37usize];
    ["Offset of field: dwell_epoch::sizes_only"][::std::mem::offset_of!(dwell_epoch, sizes_only) - 38usize];
    ["Offset of field: dwell_epoch::waits"][::std::mem::offset_of!(dwell_epoch, waits) - 39usize];
    ["Offset of field: dwell_epoch::handshake_ns"][::std::mem::offset_of!(dwell_epoch, handshake_ns) - 40usize];
    ["Offset of field: dwell_epoch::gaps_ns"][::std::mem::offset_of!(dwell_epoch, gaps_ns) - 48usize];
    ["Offset of field: dwell_epoch::gaps"][::std::mem::offset_of!(dwell_epoch, gaps) - 56usize];
    ["Offset of field: dwell_epoch::requests"][::std::mem::offset_of!(dwell_epoch, requests) - 60usize];
    ["Offset of field: dwell_epoch::full"][::std::mem::offset_of!(dwell_epoch, full) - 64usize];
    ["Offset of field: dwell_epoch::late"][::std::mem::offset_of!(dwell_epoch, late) - 68usize];
    ["Offset of field: dwell_epoch::lag_ns"][::std::mem::offset_of!(dwell_epoch, lag_ns) - 72usize];
    ["Offset of field: dwell_epoch::lags"][::std::mem::offset_of!(dwell_epoch, lags) - 80usize];
    ["Offset of field: dwell_epoch::depth"][::std::mem::offset_of!(dwell_epoch, depth) - 84usize];
    ["Offset of field: dwell_epoch::think_ns"][::std::mem::offset_of!(dwell_epoch, think_ns) - 88usize];
    ["Offset of field: dwell_epoch::turns"][::std::mem::offset_of!(dwell_epoch, turns) - 96usize];
    ["Offset of field: dwell_epoch::slow"][::std::mem::offset_of!(dwell_epoch, slow) - 100usize];
    ["Offset of field: dwell_epoch::all_ns"][::std::mem::offset_of!(dwell_epoch, all_ns) - 104usize];
    ["Offset of field: dwell_epoch::hidden_ns"][::std::mem::offset_of!(dwell_epoch, hidden_ns) - 112usize];
    ["Offset of field: dwell_epoch::all"][::std::mem::offset_of!(dwell_epoch, all) - 120usize];
    ["Offset of field: dwell_epoch::hidden"][::std::mem::offset_of!(dwell_epoch, hidden) - 124usize];
    ["Offset of field: dwell_epoch::surplus"][::std::mem::offset_of!(dwell_epoch, surplus) - 128usize];
    ["Offset of field: dwell_epoch::missed"][::std::mem::offset_of!(dwell_epoch, missed) - 132usize];
    ["Offset of field: dwell_epoch::early"][::std::mem::offset_of!(dwell_epoch, early) - 136usize];
    ["Offset of field: dwell_epoch::minor"][::std::mem::offset_of!(dwell_epoch, minor) - 140usize];
    ["Offset of field: dwell_epoch::plain"][::std::mem::offset_of!(dwell_epoch, plain) - 144usize];
    ["Offset of field: dwell_epoch::streak"][::std::mem::offset_of!(dwell_epoch, streak) - 148usize];
    ["Offset of field: dwell_epoch::repeats"][::std::mem::offset_of!(dwell_epoch, repeats) - 152usize];
    ["Offset of field: dwell_epoch::steady"][::std::mem::offset_of!(dwell_epoch, steady) - 156usize];
    ["Offset of field: dwell_epoch::deep"][::std::mem::offset_of!(dwell_epoch, deep) - 157usize];
    ["Offset of field: dwell_epoch::once"][::std::mem::offset_of!(dwell_epoch, once) - 158usize];
    ["Offset of field: dwell_epoch::narrow"][::std::mem::offset_of!(dwell_epoch, narrow) - 159usize];
    ["Offset of field: dwell_epoch::soon"][::std::mem::offset_of!(dwell_epoch, soon) - 160usize];
    ["Offset of field: dwell_epoch::smallest"][::std::mem::offset_of!(dwell_epoch, smallest) - 164usize];
    ["Offset of field: dwell_epoch::largest"][::std::mem::offset_of!(dwell_epoch, largest) - 166usize];
    ["Offset of field: dwell_epoch::answered_ns"][::std::mem::offset_of!(dwell_epoch, answered_ns) - 168usize];
    ["Offset of field: dwell_epoch::unknown_ns"][::std::mem::offset_of!(dwell_epoch, unknown_ns) - 176usize];
    ["Offset of field: dwell_epoch::answered"][::std::mem::offset_of!(dwell_epoch, answered) - 184usize];
    ["Offset of field: dwell_epoch::runs"][::std::mem::offset_of!(dwell_epoch, runs) - 188usize];
    ["Offset of field: dwell_epoch::extra"][::std::mem::offset_of!(dwell_epoch, extra) - 192usize];
    ["Offset of field: dwell_epoch::server_tick_ns"][::std::mem::offset_of!(dwell_epoch, server_tick_ns) - 196usize];
    ["Offset of field: dwell_epoch::anchor_age_ms"][::std::mem::offset_of!(dwell_epoch, anchor_age_ms) - 200usize];
    ["Offset of field: dwell_epoch::window_bytes"][::std::mem::offset_of!(dwell_epoch, window_bytes) - 204usize];
    ["Offset of field: dwell_epoch::usual_bytes"][::std::mem::offset_of!(dwell_epoch, usual_bytes) - 208usize];
    ["Offset of field: dwell_epoch::bursts"][::std::mem::offset_of!(dwell_epoch, bursts) - 212usize];
    ["Offset of field: dwell_epoch::alike"][::std::mem::offset_of!(dwell_epoch, alike) - 214usize];
    ["Offset of field: dwell_epoch::unsure"][::std::mem::offset_of!(dwell_epoch, unsure) - 216usize];
    ["Offset of field: dwell_epoch::moved"][::std::mem::offset_of!(dwell_epoch, moved) - 218usize];
    ["Offset of field: dwell_epoch::carried"][::std::mem::offset_of!(dwell_epoch, carried) - 220usize];
    ["Offset of field: dwell_epoch::loose"][::std::mem::offset_of!(dwell_epoch, loose) - 222usize];
    ["Offset of field: dwell_epoch::early_turns"][::std::mem::offset_of!(dwell_epoch, early_turns) - 224usize];
    ["Offset of field: dwell_epoch::unasked"][::std::mem::offset_of!(dwell_epoch, unasked) - 226usize];
    ["Offset of field: dwell_epoch::frames"][::std::mem::offset_of!(dwell_epoch, frames) - 228usize];
    ["Offset of field: dwell_epoch::overlong"][::std::mem::offset_of!(dwell_epoch, overlong) - 230usize];
    ["Offset of field: dwell_epoch::window"][::std::mem::offset_of!(dwell_epoch, window) - 232usize];
    ["Offset of field: dwell_epoch::shared"][::std::mem::offset_of!(dwell_epoch, shared) - 233usize];
    ["Offset of field: dwell_epoch::reopened"][::std::mem::offset_of!(dwell_epoch, reopened) - 234usize];
    ["Offset of field: dwell_epoch::log_shift"][::std::mem::offset_of!(dwell_epoch, log_shift) - 235usize];
    ["Offset of field: dwell_epoch::text"][::std::mem::offset_of!(dwell_epoch, text) - 236usize];
    ["Offset of field: dwell_epoch::unanswered"][::std::mem::offset_of!(dwell_epoch, unanswered) - 237usize];
    ["Offset of field: dwell_epoch::whole"][::std::mem::offset_of!(dwell_epoch, whole) - 238usize];
    ["Offset of field: dwell_epoch::speaks"][::std::mem::offset_of!(dwell_epoch, speaks) - 239usize];
    ["Offset of field: dwell_epoch::log"][::std::mem::offset_of!(dwell_epoch, log) - 240usize];
    ["Offset of field: dwell_epoch::gap_log"][::std::mem::offset_of!(dwell_epoch, gap_log) - 304usize];
    ["Offset of field: dwell_epoch::mode"][::std::mem::offset_of!(dwell_epoch, mode) - 368usize];
};
impl Default for dwell_epoch {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_response_event {
    pub event: __u8,
    pub proto: __u8,
    pub key_kind: __u8,
    pub reserved: __u8,
    pub interface: __u32,
    pub src: dwell_address,
    pub dst: dwell_address,
    pub src_port: __u16,
    pub dst_port: __u16,
    pub id: __u32,
    pub tunnel: __u32,
    pub reserved2: __u32,
    pub real: __u32,
    pub vip: __u32,
    pub epoch: dwell_epoch,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_response_event"][::std::mem::size_of::<dwell_response_event>() - 752usize];
    ["Alignment of dwell_response_event"][::std::mem::align_of::<dwell_response_event>() - 8usize];
    ["Offset of field: dwell_response_event::event"][::std::mem::offset_of!(dwell_response_event, event) - 0usize];
    ["Offset of field: dwell_response_event::proto"][::std::mem::offset_of!(dwell_response_event, proto) - 1usize];
    ["Offset of field: dwell_response_event::key_kind"]
        [::std::mem::offset_of!(dwell_response_event, key_kind) - 2usize];
    ["Offset of field: dwell_response_event::reserved"]
        [::std::mem::offset_of!(dwell_response_event, reserved) - 3usize];
    ["Offset of field: dwell_response_event::interface"]
        [::std::mem::offset_of!(dwell_response_event, interface) - 4usize];
    ["Offset of field: dwell_response_event::src"][::std::mem::offset_of!(dwell_response_event, src) - 8usize];
    ["Offset of field: dwell_response_event::dst"][::std::mem::offset_of!(dwell_response_event, dst) - 24usize];
    ["Offset of field: dwell_response_event::src_port"]
        [::std::mem::offset_of!(dwell_response_event, src_port) - 40usize];
    ["Offset of field: dwell_response_event::dst_port"]
        [::std::mem::offset_of!(dwell_response_event, dst_port) - 42usize];
    ["Offset of field: dwell_response_event::id"][::std::mem::offset_of!(dwell_response_event, id) - 44usize];
    ["Offset of field: dwell_response_event::tunnel"][::std::mem::offset_of!(dwell_response_event, tunnel) - 48usize];
    ["Offset of field: dwell_response_event::reserved2"]
        [::std::mem::offset_of!(dwell_response_event, reserved2) - 52usize];
    ["Offset of field: dwell_response_event::real"][::std::mem::offset_of!(dwell_response_event, real) - 56usize];
    ["Offset of field: dwell_response_event::vip"][::std::mem::offset_of!(dwell_response_event, vip) - 60usize];
    ["Offset of field: dwell_response_event::epoch"][::std::mem::offset_of!(dwell_response_event, epoch) - 64usize];
};
impl Default for dwell_response_event {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_response_program {
    pub table: dwell_table_config,
    pub response: dwell_response_config,
    pub servers: dwell_filter,
    pub alias_mask: __u32,
    pub chain_next: __u32,
    pub jiffy_ns: __u32,
    pub replay: __u8,
    pub key_kind: __u8,
    pub stores_in_order: __u8,
    pub ignore_tunnels: __u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_response_program"][::std::mem::size_of::<dwell_response_program>() - 1400usize];
    ["Alignment of dwell_response_program"][::std::mem::align_of::<dwell_response_program>() - 8usize];
    ["Offset of field: dwell_response_program::table"][::std::mem::offset_of!(dwell_response_program, table) - 0usize];
    ["Offset of field: dwell_response_program::response"]
        [::std::mem::offset_of!(dwell_response_program, response) - 672usize];
    ["Offset of field: dwell_response_program::servers"]
        [::std::mem::offset_of!(dwell_response_program, servers) - 736usize];
    ["Offset of field: dwell_response_program::alias_mask"]
        [::std::mem::offset_of!(dwell_response_program, alias_mask) - 1384usize];
    ["Offset of field: dwell_response_program::chain_next"]
        [::std::mem::offset_of!(dwell_response_program, chain_next) - 1388usize];
    ["Offset of field: dwell_response_program::jiffy_ns"]
        [::std::mem::offset_of!(dwell_response_program, jiffy_ns) - 1392usize];
    ["Offset of field: dwell_response_program::replay"]
        [::std::mem::offset_of!(dwell_response_program, replay) - 1396usize];
    ["Offset of field: dwell_response_program::key_kind"]
        [::std::mem::offset_of!(dwell_response_program, key_kind) - 1397usize];
    ["Offset of field: dwell_response_program::stores_in_order"]
        [::std::mem::offset_of!(dwell_response_program, stores_in_order) - 1398usize];
    ["Offset of field: dwell_response_program::ignore_tunnels"]
        [::std::mem::offset_of!(dwell_response_program, ignore_tunnels) - 1399usize];
};
pub const DWELL_CONTENT_OTHER: dwell_content = 0;
pub const DWELL_CONTENT_TEXT: dwell_content = 1;
pub const DWELL_CONTENT_TLS_HANDSHAKE: dwell_content = 2;
pub const DWELL_CONTENT_TLS_CONTROL: dwell_content = 3;
pub const DWELL_CONTENT_FRAMES: dwell_content = 4;
pub const DWELL_CONTENT_MESSAGE: dwell_content = 5;
pub type dwell_content = ::std::os::raw::c_uint;
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_bucket {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 16usize]>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_bucket"][::std::mem::size_of::<dwell_bucket>() - 16usize];
    ["Alignment of dwell_bucket"][::std::mem::align_of::<dwell_bucket>() - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_slot_bucket {
    pub bucket: dwell_bucket,
    pub slot_index: [__u32; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_slot_bucket"][::std::mem::size_of::<dwell_slot_bucket>() - 32usize];
    ["Alignment of dwell_slot_bucket"][::std::mem::align_of::<dwell_slot_bucket>() - 8usize];
    ["Offset of field: dwell_slot_bucket::bucket"][::std::mem::offset_of!(dwell_slot_bucket, bucket) - 0usize];
    ["Offset of field: dwell_slot_bucket::slot_index"][::std::mem::offset_of!(dwell_slot_bucket, slot_index) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_pool {
    pub top: __u64,
    pub fresh: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_pool"][::std::mem::size_of::<dwell_pool>() - 16usize];
    ["Alignment of dwell_pool"][::std::mem::align_of::<dwell_pool>() - 8usize];
    ["Offset of field: dwell_pool::top"][::std::mem::offset_of!(dwell_pool, top) - 0usize];
    ["Offset of field: dwell_pool::fresh"][::std::mem::offset_of!(dwell_pool, fresh) - 8usize];
    ["Offset of field: dwell_pool::reserved"][::std::mem::offset_of!(dwell_pool, reserved) - 12usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct dwell_wide_slot {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct dwell_alias {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dwell_slots {
    pub program: dwell_response_program,
    pub counters: dwell_counters,
    pub buckets: *mut dwell_slot_bucket,
    pub slots: *mut dwell_wide_slot,
    pub pool: dwell_pool,
    pub state_pool: dwell_pool,
    pub aliases: *mut dwell_alias,
    pub events: __u32,
    pub states: __u32,
    pub event: [dwell_response_event; 8usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_slots"][::std::mem::size_of::<dwell_slots>() - 7712usize];
    ["Alignment of dwell_slots"][::std::mem::align_of::<dwell_slots>() - 8usize];
    ["Offset of field: dwell_slots::program"][::std::mem::offset_of!(dwell_slots, program) - 0usize];
    ["Offset of field: dwell_slots::counters"][::std::mem::offset_of!(dwell_slots, counters) - 1400usize];
    ["Offset of field: dwell_slots::buckets"][::std::mem::offset_of!(dwell_slots, buckets) - 1632usize];
    ["Offset of field: dwell_slots::slots"][::std::mem::offset_of!(dwell_slots, slots) - 1640usize];
    ["Offset of field: dwell_slots::pool"][::std::mem::offset_of!(dwell_slots, pool) - 1648usize];
    ["Offset of field: dwell_slots::state_pool"][::std::mem::offset_of!(dwell_slots, state_pool) - 1664usize];
    ["Offset of field: dwell_slots::aliases"][::std::mem::offset_of!(dwell_slots, aliases) - 1680usize];
    ["Offset of field: dwell_slots::events"][::std::mem::offset_of!(dwell_slots, events) - 1688usize];
    ["Offset of field: dwell_slots::states"][::std::mem::offset_of!(dwell_slots, states) - 1692usize];
    ["Offset of field: dwell_slots::event"][::std::mem::offset_of!(dwell_slots, event) - 1696usize];
};
impl Default for dwell_slots {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn dwell_slots_stride() -> __u32;
}
unsafe extern "C" {
    pub fn dwell_slots_alias_stride() -> __u32;
}
unsafe extern "C" {
    pub fn dwell_slots_packet(
        slots: *mut dwell_slots,
        data: *const ::std::os::raw::c_void,
        bytes: __u32,
        wire_bytes: __u32,
        link: __u32,
        interface: __u32,
        time_ns: __u64,
    );
}
unsafe extern "C" {
    pub fn dwell_slots_sweep(slots: *mut dwell_slots, bucket: __u32, time_ns: __u64, reason: __u32);
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_named_vip {
    pub key: dwell_vip_key,
    pub vip: dwell_vip,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_named_vip"][::std::mem::size_of::<dwell_named_vip>() - 40usize];
    ["Alignment of dwell_named_vip"][::std::mem::align_of::<dwell_named_vip>() - 8usize];
    ["Offset of field: dwell_named_vip::key"][::std::mem::offset_of!(dwell_named_vip, key) - 0usize];
    ["Offset of field: dwell_named_vip::vip"][::std::mem::offset_of!(dwell_named_vip, vip) - 24usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_zero_named_server {
    pub name: dwell_zero_name,
    pub server: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_zero_named_server"][::std::mem::size_of::<dwell_zero_named_server>() - 24usize];
    ["Alignment of dwell_zero_named_server"][::std::mem::align_of::<dwell_zero_named_server>() - 4usize];
    ["Offset of field: dwell_zero_named_server::name"][::std::mem::offset_of!(dwell_zero_named_server, name) - 0usize];
    ["Offset of field: dwell_zero_named_server::server"]
        [::std::mem::offset_of!(dwell_zero_named_server, server) - 20usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dwell_balancer {
    pub slots: dwell_slots,
    pub config: dwell_balance_config,
    pub reason: [__u64; 23usize],
    pub budgets: [dwell_budget; 2usize],
    pub heartbeat: dwell_heartbeat,
    pub vips: *const dwell_named_vip,
    pub reals: *const dwell_real,
    pub open: *mut __s64,
    pub actives: *mut __u64,
    pub pending: *mut dwell_pending,
    pub tables: *const *const __u32,
    pub vip_count: __u32,
    pub real_count: __u32,
    pub table_count: __u32,
    pub reserved: __u32,
    pub zero_state: dwell_zero_state,
    pub zero: [__u64; 16usize],
    pub unfinished: __u64,
    pub openings: *mut dwell_opening,
    pub zero_work: dwell_zero_work,
    pub zero_vips: *const dwell_zero_vip,
    pub zero_ids: *const dwell_zero_ids,
    pub zero_loads: *mut dwell_zero_loads,
    pub heavies: *mut dwell_heavy,
    pub other_heavies: *const dwell_heavy,
    pub zero_servers: *const __u32,
    pub zero_names: *const dwell_zero_named_server,
    pub cids: *mut dwell_cid_entry,
    pub zero_slots: __u32,
    pub heavy_count: __u32,
    pub zero_server_count: __u32,
    pub zero_name_count: __u32,
    pub now_ns: __u64,
    pub random: __u32,
    pub reserved2: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_balancer"][::std::mem::size_of::<dwell_balancer>() - 8968usize];
    ["Alignment of dwell_balancer"][::std::mem::align_of::<dwell_balancer>() - 8usize];
    ["Offset of field: dwell_balancer::slots"][::std::mem::offset_of!(dwell_balancer, slots) - 0usize];
    ["Offset of field: dwell_balancer::config"][::std::mem::offset_of!(dwell_balancer, config) - 7712usize];
    ["Offset of field: dwell_balancer::reason"][::std::mem::offset_of!(dwell_balancer, reason) - 7776usize];
    ["Offset of field: dwell_balancer::budgets"][::std::mem::offset_of!(dwell_balancer, budgets) - 7960usize];
    ["Offset of field: dwell_balancer::heartbeat"][::std::mem::offset_of!(dwell_balancer, heartbeat) - 7976usize];
    ["Offset of field: dwell_balancer::vips"][::std::mem::offset_of!(dwell_balancer, vips) - 7992usize];
    ["Offset of field: dwell_balancer::reals"][::std::mem::offset_of!(dwell_balancer, reals) - 8000usize];
    ["Offset of field: dwell_balancer::open"][::std::mem::offset_of!(dwell_balancer, open) - 8008usize];
    ["Offset of field: dwell_balancer::actives"][::std::mem::offset_of!(dwell_balancer, actives) - 8016usize];
    ["Offset of field: dwell_balancer::pending"][::std::mem::offset_of!(dwell_balancer, pending) - 8024usize];
    ["Offset of field: dwell_balancer::tables"][::std::mem::offset_of!(dwell_balancer, tables) - 8032usize];
    ["Offset of field: dwell_balancer::vip_count"][::std::mem::offset_of!(dwell_balancer, vip_count) - 8040usize];
    ["Offset of field: dwell_balancer::real_count"][::std::mem::offset_of!(dwell_balancer, real_count) - 8044usize];
    ["Offset of field: dwell_balancer::table_count"][::std::mem::offset_of!(dwell_balancer, table_count) - 8048usize];
    ["Offset of field: dwell_balancer::reserved"][::std::mem::offset_of!(dwell_balancer, reserved) - 8052usize];
    ["Offset of field: dwell_balancer::zero_state"][::std::mem::offset_of!(dwell_balancer, zero_state) - 8056usize];
    ["Offset of field: dwell_balancer::zero"][::std::mem::offset_of!(dwell_balancer, zero) - 8576usize];
    ["Offset of field: dwell_balancer::unfinished"][::std::mem::offset_of!(dwell_balancer, unfinished) - 8704usize];
    ["Offset of field: dwell_balancer::openings"][::std::mem::offset_of!(dwell_balancer, openings) - 8712usize];
    ["Offset of field: dwell_balancer::zero_work"][::std::mem::offset_of!(dwell_balancer, zero_work) - 8720usize];
    ["Offset of field: dwell_balancer::zero_vips"][::std::mem::offset_of!(dwell_balancer, zero_vips) - 8872usize];
    ["Offset of field: dwell_balancer::zero_ids"][::std::mem::offset_of!(dwell_balancer, zero_ids) - 8880usize];
    ["Offset of field: dwell_balancer::zero_loads"][::std::mem::offset_of!(dwell_balancer, zero_loads) - 8888usize];
    ["Offset of field: dwell_balancer::heavies"][::std::mem::offset_of!(dwell_balancer, heavies) - 8896usize];
    ["Offset of field: dwell_balancer::other_heavies"]
        [::std::mem::offset_of!(dwell_balancer, other_heavies) - 8904usize];
    ["Offset of field: dwell_balancer::zero_servers"][::std::mem::offset_of!(dwell_balancer, zero_servers) - 8912usize];
    ["Offset of field: dwell_balancer::zero_names"][::std::mem::offset_of!(dwell_balancer, zero_names) - 8920usize];
    ["Offset of field: dwell_balancer::cids"][::std::mem::offset_of!(dwell_balancer, cids) - 8928usize];
    ["Offset of field: dwell_balancer::zero_slots"][::std::mem::offset_of!(dwell_balancer, zero_slots) - 8936usize];
    ["Offset of field: dwell_balancer::heavy_count"][::std::mem::offset_of!(dwell_balancer, heavy_count) - 8940usize];
    ["Offset of field: dwell_balancer::zero_server_count"]
        [::std::mem::offset_of!(dwell_balancer, zero_server_count) - 8944usize];
    ["Offset of field: dwell_balancer::zero_name_count"]
        [::std::mem::offset_of!(dwell_balancer, zero_name_count) - 8948usize];
    ["Offset of field: dwell_balancer::now_ns"][::std::mem::offset_of!(dwell_balancer, now_ns) - 8952usize];
    ["Offset of field: dwell_balancer::random"][::std::mem::offset_of!(dwell_balancer, random) - 8960usize];
    ["Offset of field: dwell_balancer::reserved2"][::std::mem::offset_of!(dwell_balancer, reserved2) - 8964usize];
};
impl Default for dwell_balancer {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn dwell_balance_packet(
        balancer: *mut dwell_balancer,
        data: *mut ::std::os::raw::c_void,
        bytes: *mut __u32,
        ingress: __u32,
        time_ns: __u64,
        dry_run: ::std::os::raw::c_int,
        decision: *mut dwell_decision,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn dwell_balance_sweep(balancer: *mut dwell_balancer, bucket: __u32, time_ns: __u64, reason: __u32);
}
unsafe extern "C" {
    pub fn dwell_balance_slot_bytes() -> __u32;
}
unsafe extern "C" {
    pub fn dwell_balance_vip_filter_bit(address: dwell_address) -> __u32;
}
unsafe extern "C" {
    pub fn dwell_balance_successor(server_id: __u16, hash_seed: __u64, size: __u32) -> __u32;
}
unsafe extern "C" {
    pub fn dwell_balance_zero_bit(address: dwell_address, port: __u16) -> __u32;
}
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_histogram {
    pub count: __u64,
    pub sum_ns: __u64,
    pub min_ns: __u64,
    pub max_ns: __u64,
    pub bucket: [__u32; 1984usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_histogram"][::std::mem::size_of::<dwell_histogram>() - 7968usize];
    ["Alignment of dwell_histogram"][::std::mem::align_of::<dwell_histogram>() - 8usize];
    ["Offset of field: dwell_histogram::count"][::std::mem::offset_of!(dwell_histogram, count) - 0usize];
    ["Offset of field: dwell_histogram::sum_ns"][::std::mem::offset_of!(dwell_histogram, sum_ns) - 8usize];
    ["Offset of field: dwell_histogram::min_ns"][::std::mem::offset_of!(dwell_histogram, min_ns) - 16usize];
    ["Offset of field: dwell_histogram::max_ns"][::std::mem::offset_of!(dwell_histogram, max_ns) - 24usize];
    ["Offset of field: dwell_histogram::bucket"][::std::mem::offset_of!(dwell_histogram, bucket) - 32usize];
};
impl Default for dwell_histogram {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_group_key {
    pub prefix: dwell_address,
    pub interface: __u32,
    pub tunnel: __u32,
    pub method: __u8,
    pub listed: __u8,
    pub reserved: [__u8; 6usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_group_key"][::std::mem::size_of::<dwell_group_key>() - 32usize];
    ["Alignment of dwell_group_key"][::std::mem::align_of::<dwell_group_key>() - 8usize];
    ["Offset of field: dwell_group_key::prefix"][::std::mem::offset_of!(dwell_group_key, prefix) - 0usize];
    ["Offset of field: dwell_group_key::interface"][::std::mem::offset_of!(dwell_group_key, interface) - 16usize];
    ["Offset of field: dwell_group_key::tunnel"][::std::mem::offset_of!(dwell_group_key, tunnel) - 20usize];
    ["Offset of field: dwell_group_key::method"][::std::mem::offset_of!(dwell_group_key, method) - 24usize];
    ["Offset of field: dwell_group_key::listed"][::std::mem::offset_of!(dwell_group_key, listed) - 25usize];
    ["Offset of field: dwell_group_key::reserved"][::std::mem::offset_of!(dwell_group_key, reserved) - 26usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_prefix_key {
    pub bits: __u32,
    pub address: [__u8; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_prefix_key"][::std::mem::size_of::<dwell_prefix_key>() - 20usize];
    ["Alignment of dwell_prefix_key"][::std::mem::align_of::<dwell_prefix_key>() - 4usize];
    ["Offset of field: dwell_prefix_key::bits"][::std::mem::offset_of!(dwell_prefix_key, bits) - 0usize];
    ["Offset of field: dwell_prefix_key::address"][::std::mem::offset_of!(dwell_prefix_key, address) - 4usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_prefix {
    pub address: dwell_address,
    pub bits: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_prefix"][::std::mem::size_of::<dwell_prefix>() - 24usize];
    ["Alignment of dwell_prefix"][::std::mem::align_of::<dwell_prefix>() - 8usize];
    ["Offset of field: dwell_prefix::address"][::std::mem::offset_of!(dwell_prefix, address) - 0usize];
    ["Offset of field: dwell_prefix::bits"][::std::mem::offset_of!(dwell_prefix, bits) - 16usize];
    ["Offset of field: dwell_prefix::reserved"][::std::mem::offset_of!(dwell_prefix, reserved) - 20usize];
};
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_group {
    pub rtt: dwell_histogram,
    pub queue_sum_ns: __u64,
    pub queue_max_ns: __u64,
    pub sent: __u64,
    pub retransmitted: __u64,
    pub received: __u64,
    pub late: __u64,
    pub ce: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_group"][::std::mem::size_of::<dwell_group>() - 8024usize];
    ["Alignment of dwell_group"][::std::mem::align_of::<dwell_group>() - 8usize];
    ["Offset of field: dwell_group::rtt"][::std::mem::offset_of!(dwell_group, rtt) - 0usize];
    ["Offset of field: dwell_group::queue_sum_ns"][::std::mem::offset_of!(dwell_group, queue_sum_ns) - 7968usize];
    ["Offset of field: dwell_group::queue_max_ns"][::std::mem::offset_of!(dwell_group, queue_max_ns) - 7976usize];
    ["Offset of field: dwell_group::sent"][::std::mem::offset_of!(dwell_group, sent) - 7984usize];
    ["Offset of field: dwell_group::retransmitted"][::std::mem::offset_of!(dwell_group, retransmitted) - 7992usize];
    ["Offset of field: dwell_group::received"][::std::mem::offset_of!(dwell_group, received) - 8000usize];
    ["Offset of field: dwell_group::late"][::std::mem::offset_of!(dwell_group, late) - 8008usize];
    ["Offset of field: dwell_group::ce"][::std::mem::offset_of!(dwell_group, ce) - 8016usize];
};
impl Default for dwell_group {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_rtt_program {
    pub config: dwell_rtt_config,
    pub prefix6_mask: dwell_address,
    pub prefix4_mask: __u32,
    pub max_groups: __u32,
    pub jiffy_ns: __u32,
    pub report: __u8,
    pub aggregate: __u8,
    pub replay: __u8,
    pub prefixes: __u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_rtt_program"][::std::mem::size_of::<dwell_rtt_program>() - 744usize];
    ["Alignment of dwell_rtt_program"][::std::mem::align_of::<dwell_rtt_program>() - 8usize];
    ["Offset of field: dwell_rtt_program::config"][::std::mem::offset_of!(dwell_rtt_program, config) - 0usize];
    ["Offset of field: dwell_rtt_program::prefix6_mask"]
        [::std::mem::offset_of!(dwell_rtt_program, prefix6_mask) - 712usize];
    ["Offset of field: dwell_rtt_program::prefix4_mask"]
        [::std::mem::offset_of!(dwell_rtt_program, prefix4_mask) - 728usize];
    ["Offset of field: dwell_rtt_program::max_groups"]
        [::std::mem::offset_of!(dwell_rtt_program, max_groups) - 732usize];
    ["Offset of field: dwell_rtt_program::jiffy_ns"][::std::mem::offset_of!(dwell_rtt_program, jiffy_ns) - 736usize];
    ["Offset of field: dwell_rtt_program::report"][::std::mem::offset_of!(dwell_rtt_program, report) - 740usize];
    ["Offset of field: dwell_rtt_program::aggregate"][::std::mem::offset_of!(dwell_rtt_program, aggregate) - 741usize];
    ["Offset of field: dwell_rtt_program::replay"][::std::mem::offset_of!(dwell_rtt_program, replay) - 742usize];
    ["Offset of field: dwell_rtt_program::prefixes"][::std::mem::offset_of!(dwell_rtt_program, prefixes) - 743usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dwell_tunnel_end {
    pub program: dwell_decap_program,
    pub counters: dwell_decap_counters,
    pub own: *const dwell_address,
    pub vips: *const dwell_prefix,
    pub senders: *const dwell_prefix,
    pub backends: *const dwell_prefix,
    pub hops: *const dwell_real,
    pub own_count: __u32,
    pub vip_count: __u32,
    pub sender_count: __u32,
    pub backend_count: __u32,
    pub hop_count: __u32,
    pub owns: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_tunnel_end"][::std::mem::size_of::<dwell_tunnel_end>() - 168usize];
    ["Alignment of dwell_tunnel_end"][::std::mem::align_of::<dwell_tunnel_end>() - 8usize];
    ["Offset of field: dwell_tunnel_end::program"][::std::mem::offset_of!(dwell_tunnel_end, program) - 0usize];
    ["Offset of field: dwell_tunnel_end::counters"][::std::mem::offset_of!(dwell_tunnel_end, counters) - 8usize];
    ["Offset of field: dwell_tunnel_end::own"][::std::mem::offset_of!(dwell_tunnel_end, own) - 104usize];
    ["Offset of field: dwell_tunnel_end::vips"][::std::mem::offset_of!(dwell_tunnel_end, vips) - 112usize];
    ["Offset of field: dwell_tunnel_end::senders"][::std::mem::offset_of!(dwell_tunnel_end, senders) - 120usize];
    ["Offset of field: dwell_tunnel_end::backends"][::std::mem::offset_of!(dwell_tunnel_end, backends) - 128usize];
    ["Offset of field: dwell_tunnel_end::hops"][::std::mem::offset_of!(dwell_tunnel_end, hops) - 136usize];
    ["Offset of field: dwell_tunnel_end::own_count"][::std::mem::offset_of!(dwell_tunnel_end, own_count) - 144usize];
    ["Offset of field: dwell_tunnel_end::vip_count"][::std::mem::offset_of!(dwell_tunnel_end, vip_count) - 148usize];
    ["Offset of field: dwell_tunnel_end::sender_count"]
        [::std::mem::offset_of!(dwell_tunnel_end, sender_count) - 152usize];
    ["Offset of field: dwell_tunnel_end::backend_count"]
        [::std::mem::offset_of!(dwell_tunnel_end, backend_count) - 156usize];
    ["Offset of field: dwell_tunnel_end::hop_count"][::std::mem::offset_of!(dwell_tunnel_end, hop_count) - 160usize];
    ["Offset of field: dwell_tunnel_end::owns"][::std::mem::offset_of!(dwell_tunnel_end, owns) - 164usize];
};
impl Default for dwell_tunnel_end {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn dwell_decap_packet(
        tunnel_end: *mut dwell_tunnel_end,
        data: *mut ::std::os::raw::c_void,
        bytes: *mut __u32,
        decap: *mut __u32,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn dwell_decap_is_special(address: dwell_address) -> ::std::os::raw::c_int;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_tcp_seq_state {
    pub doubt_sent: __u32,
    pub probe_seq: __u32,
    pub acked: __u32,
    pub doubt_acked: __u32,
    pub window: __u16,
    pub answered: __u8,
    pub sent: __u8,
    pub blind: __u8,
    pub reserved: [__u8; 3usize],
    pub probe_ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_tcp_seq_state"][::std::mem::size_of::<dwell_tcp_seq_state>() - 32usize];
    ["Alignment of dwell_tcp_seq_state"][::std::mem::align_of::<dwell_tcp_seq_state>() - 8usize];
    ["Offset of field: dwell_tcp_seq_state::doubt_sent"]
        [::std::mem::offset_of!(dwell_tcp_seq_state, doubt_sent) - 0usize];
    ["Offset of field: dwell_tcp_seq_state::probe_seq"]
        [::std::mem::offset_of!(dwell_tcp_seq_state, probe_seq) - 4usize];
    ["Offset of field: dwell_tcp_seq_state::acked"][::std::mem::offset_of!(dwell_tcp_seq_state, acked) - 8usize];
    ["Offset of field: dwell_tcp_seq_state::doubt_acked"]
        [::std::mem::offset_of!(dwell_tcp_seq_state, doubt_acked) - 12usize];
    ["Offset of field: dwell_tcp_seq_state::window"][::std::mem::offset_of!(dwell_tcp_seq_state, window) - 16usize];
    ["Offset of field: dwell_tcp_seq_state::answered"][::std::mem::offset_of!(dwell_tcp_seq_state, answered) - 18usize];
    ["Offset of field: dwell_tcp_seq_state::sent"][::std::mem::offset_of!(dwell_tcp_seq_state, sent) - 19usize];
    ["Offset of field: dwell_tcp_seq_state::blind"][::std::mem::offset_of!(dwell_tcp_seq_state, blind) - 20usize];
    ["Offset of field: dwell_tcp_seq_state::reserved"][::std::mem::offset_of!(dwell_tcp_seq_state, reserved) - 21usize];
    ["Offset of field: dwell_tcp_seq_state::probe_ns"][::std::mem::offset_of!(dwell_tcp_seq_state, probe_ns) - 24usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_spin_state {
    pub edge_ns: __u64,
    pub loop_ns: __u64,
    pub value: __u8,
    pub known: __u8,
    pub early: __u8,
    pub holds: __u8,
    pub flips: __u8,
    pub calm: __s8,
    pub reserved: [__u8; 2usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_spin_state"][::std::mem::size_of::<dwell_spin_state>() - 24usize];
    ["Alignment of dwell_spin_state"][::std::mem::align_of::<dwell_spin_state>() - 8usize];
    ["Offset of field: dwell_spin_state::edge_ns"][::std::mem::offset_of!(dwell_spin_state, edge_ns) - 0usize];
    ["Offset of field: dwell_spin_state::loop_ns"][::std::mem::offset_of!(dwell_spin_state, loop_ns) - 8usize];
    ["Offset of field: dwell_spin_state::value"][::std::mem::offset_of!(dwell_spin_state, value) - 16usize];
    ["Offset of field: dwell_spin_state::known"][::std::mem::offset_of!(dwell_spin_state, known) - 17usize];
    ["Offset of field: dwell_spin_state::early"][::std::mem::offset_of!(dwell_spin_state, early) - 18usize];
    ["Offset of field: dwell_spin_state::holds"][::std::mem::offset_of!(dwell_spin_state, holds) - 19usize];
    ["Offset of field: dwell_spin_state::flips"][::std::mem::offset_of!(dwell_spin_state, flips) - 20usize];
    ["Offset of field: dwell_spin_state::calm"][::std::mem::offset_of!(dwell_spin_state, calm) - 21usize];
    ["Offset of field: dwell_spin_state::reserved"][::std::mem::offset_of!(dwell_spin_state, reserved) - 22usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_icmp_state {
    pub seq: __u32,
    pub known: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_icmp_state"][::std::mem::size_of::<dwell_icmp_state>() - 8usize];
    ["Alignment of dwell_icmp_state"][::std::mem::align_of::<dwell_icmp_state>() - 4usize];
    ["Offset of field: dwell_icmp_state::seq"][::std::mem::offset_of!(dwell_icmp_state, seq) - 0usize];
    ["Offset of field: dwell_icmp_state::known"][::std::mem::offset_of!(dwell_icmp_state, known) - 4usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_flow {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 128usize]>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_flow"][::std::mem::size_of::<dwell_flow>() - 128usize];
    ["Alignment of dwell_flow"][::std::mem::align_of::<dwell_flow>() - 8usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct dwell_matcher {
    pub side: [dwell_matcher__bindgen_ty_1; 2usize],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union dwell_matcher__bindgen_ty_1 {
    pub seq: dwell_tcp_seq_state,
    pub spin: dwell_spin_state,
    pub icmp: dwell_icmp_state,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_matcher__bindgen_ty_1"][::std::mem::size_of::<dwell_matcher__bindgen_ty_1>() - 32usize];
    ["Alignment of dwell_matcher__bindgen_ty_1"][::std::mem::align_of::<dwell_matcher__bindgen_ty_1>() - 8usize];
    ["Offset of field: dwell_matcher__bindgen_ty_1::seq"]
        [::std::mem::offset_of!(dwell_matcher__bindgen_ty_1, seq) - 0usize];
    ["Offset of field: dwell_matcher__bindgen_ty_1::spin"]
        [::std::mem::offset_of!(dwell_matcher__bindgen_ty_1, spin) - 0usize];
    ["Offset of field: dwell_matcher__bindgen_ty_1::icmp"]
        [::std::mem::offset_of!(dwell_matcher__bindgen_ty_1, icmp) - 0usize];
};
impl Default for dwell_matcher__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_matcher"][::std::mem::size_of::<dwell_matcher>() - 64usize];
    ["Alignment of dwell_matcher"][::std::mem::align_of::<dwell_matcher>() - 8usize];
    ["Offset of field: dwell_matcher::side"][::std::mem::offset_of!(dwell_matcher, side) - 0usize];
};
impl Default for dwell_matcher {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_cold {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 176usize]>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union dwell_cold__bindgen_ty_1 {
    pub tunnel: __u32,
    pub next: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_cold__bindgen_ty_1"][::std::mem::size_of::<dwell_cold__bindgen_ty_1>() - 4usize];
    ["Alignment of dwell_cold__bindgen_ty_1"][::std::mem::align_of::<dwell_cold__bindgen_ty_1>() - 4usize];
    ["Offset of field: dwell_cold__bindgen_ty_1::tunnel"]
        [::std::mem::offset_of!(dwell_cold__bindgen_ty_1, tunnel) - 0usize];
    ["Offset of field: dwell_cold__bindgen_ty_1::next"]
        [::std::mem::offset_of!(dwell_cold__bindgen_ty_1, next) - 0usize];
};
impl Default for dwell_cold__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_cold"][::std::mem::size_of::<dwell_cold>() - 176usize];
    ["Alignment of dwell_cold"][::std::mem::align_of::<dwell_cold>() - 8usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_stamp {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 16usize]>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_stamp"][::std::mem::size_of::<dwell_stamp>() - 16usize];
    ["Alignment of dwell_stamp"][::std::mem::align_of::<dwell_stamp>() - 8usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_stamp_set {
    pub stamp: [dwell_stamp; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_stamp_set"][::std::mem::size_of::<dwell_stamp_set>() - 64usize];
    ["Alignment of dwell_stamp_set"][::std::mem::align_of::<dwell_stamp_set>() - 8usize];
    ["Offset of field: dwell_stamp_set::stamp"][::std::mem::offset_of!(dwell_stamp_set, stamp) - 0usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union dwell_native_event {
    pub sample: dwell_rtt_sample,
    pub flow: dwell_flow_event,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_native_event"][::std::mem::size_of::<dwell_native_event>() - 120usize];
    ["Alignment of dwell_native_event"][::std::mem::align_of::<dwell_native_event>() - 8usize];
    ["Offset of field: dwell_native_event::sample"][::std::mem::offset_of!(dwell_native_event, sample) - 0usize];
    ["Offset of field: dwell_native_event::flow"][::std::mem::offset_of!(dwell_native_event, flow) - 0usize];
};
impl Default for dwell_native_event {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug)]
pub struct dwell_native_prepared {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct dwell_native {
    pub config: dwell_rtt_config,
    pub counters: dwell_counters,
    pub buckets: *mut dwell_slot_bucket,
    pub flows: *mut dwell_flow,
    pub cold: *mut dwell_cold,
    pub matchers: *mut dwell_matcher,
    pub stamps: *mut dwell_stamp_set,
    pub prepared: *mut dwell_native_prepared,
    pub pool: dwell_pool,
    pub events: __u32,
    pub reserved: __u32,
    pub event: [dwell_native_event; 8usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_native"][::std::mem::size_of::<dwell_native>() - 1976usize];
    ["Alignment of dwell_native"][::std::mem::align_of::<dwell_native>() - 8usize];
    ["Offset of field: dwell_native::config"][::std::mem::offset_of!(dwell_native, config) - 0usize];
    ["Offset of field: dwell_native::counters"][::std::mem::offset_of!(dwell_native, counters) - 712usize];
    ["Offset of field: dwell_native::buckets"][::std::mem::offset_of!(dwell_native, buckets) - 944usize];
    ["Offset of field: dwell_native::flows"][::std::mem::offset_of!(dwell_native, flows) - 952usize];
    ["Offset of field: dwell_native::cold"][::std::mem::offset_of!(dwell_native, cold) - 960usize];
    ["Offset of field: dwell_native::matchers"][::std::mem::offset_of!(dwell_native, matchers) - 968usize];
    ["Offset of field: dwell_native::stamps"][::std::mem::offset_of!(dwell_native, stamps) - 976usize];
    ["Offset of field: dwell_native::prepared"][::std::mem::offset_of!(dwell_native, prepared) - 984usize];
    ["Offset of field: dwell_native::pool"][::std::mem::offset_of!(dwell_native, pool) - 992usize];
    ["Offset of field: dwell_native::events"][::std::mem::offset_of!(dwell_native, events) - 1008usize];
    ["Offset of field: dwell_native::reserved"][::std::mem::offset_of!(dwell_native, reserved) - 1012usize];
    ["Offset of field: dwell_native::event"][::std::mem::offset_of!(dwell_native, event) - 1016usize];
};
impl Default for dwell_native {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn dwell_native_prepare(
        native: *mut dwell_native,
        data: *const ::std::os::raw::c_void,
        bytes: __u32,
        wire_bytes: __u32,
        link: __u32,
        interface: __u32,
        number: __u64,
    );
}
unsafe extern "C" {
    pub fn dwell_native_packet(
        native: *mut dwell_native,
        data: *const ::std::os::raw::c_void,
        bytes: __u32,
        wire_bytes: __u32,
        link: __u32,
        interface: __u32,
        number: __u64,
        time_ns: __u64,
    );
}
unsafe extern "C" {
    pub fn dwell_native_sweep(native: *mut dwell_native, bucket: __u32, time_ns: __u64, reason: __u32);
}
unsafe extern "C" {
    pub fn dwell_native_bucket_index(value_ns: __u64) -> __u32;
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct dwell_native_segment {
    pub key: dwell_flow_key,
    pub seq: __u32,
    pub ack: __u32,
    pub payload_bytes: __u32,
    pub payload_offset: __u32,
    pub tsval: __u32,
    pub tsecr: __u32,
    pub sack_left: __u32,
    pub sack_right: __u32,
    pub interface: __u32,
    pub window: __u16,
    pub mss: __u16,
    pub scale: __u8,
    pub has_scale: __u8,
    pub has_ts: __u8,
    pub has_sack: __u8,
    pub flags: __u8,
    pub direction: __u8,
    pub ce: __u8,
    pub reserved: __u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_native_segment"][::std::mem::size_of::<dwell_native_segment>() - 88usize];
    ["Alignment of dwell_native_segment"][::std::mem::align_of::<dwell_native_segment>() - 8usize];
    ["Offset of field: dwell_native_segment::key"][::std::mem::offset_of!(dwell_native_segment, key) - 0usize];
    ["Offset of field: dwell_native_segment::seq"][::std::mem::offset_of!(dwell_native_segment, seq) - 40usize];
    ["Offset of field: dwell_native_segment::ack"][::std::mem::offset_of!(dwell_native_segment, ack) - 44usize];
    ["Offset of field: dwell_native_segment::payload_bytes"]
        [::std::mem::offset_of!(dwell_native_segment, payload_bytes) - 48usize];
    ["Offset of field: dwell_native_segment::payload_offset"]
        [::std::mem::offset_of!(dwell_native_segment, payload_offset) - 52usize];
    ["Offset of field: dwell_native_segment::tsval"][::std::mem::offset_of!(dwell_native_segment, tsval) - 56usize];
    ["Offset of field: dwell_native_segment::tsecr"][::std::mem::offset_of!(dwell_native_segment, tsecr) - 60usize];
    ["Offset of field: dwell_native_segment::sack_left"]
        [::std::mem::offset_of!(dwell_native_segment, sack_left) - 64usize];
    ["Offset of field: dwell_native_segment::sack_right"]
        [::std::mem::offset_of!(dwell_native_segment, sack_right) - 68usize];
    ["Offset of field: dwell_native_segment::interface"]
        [::std::mem::offset_of!(dwell_native_segment, interface) - 72usize];
    ["Offset of field: dwell_native_segment::window"][::std::mem::offset_of!(dwell_native_segment, window) - 76usize];
    ["Offset of field: dwell_native_segment::mss"][::std::mem::offset_of!(dwell_native_segment, mss) - 78usize];
    ["Offset of field: dwell_native_segment::scale"][::std::mem::offset_of!(dwell_native_segment, scale) - 80usize];
    ["Offset of field: dwell_native_segment::has_scale"]
        [::std::mem::offset_of!(dwell_native_segment, has_scale) - 81usize];
    ["Offset of field: dwell_native_segment::has_ts"][::std::mem::offset_of!(dwell_native_segment, has_ts) - 82usize];
    ["Offset of field: dwell_native_segment::has_sack"]
        [::std::mem::offset_of!(dwell_native_segment, has_sack) - 83usize];
    ["Offset of field: dwell_native_segment::flags"][::std::mem::offset_of!(dwell_native_segment, flags) - 84usize];
    ["Offset of field: dwell_native_segment::direction"]
        [::std::mem::offset_of!(dwell_native_segment, direction) - 85usize];
    ["Offset of field: dwell_native_segment::ce"][::std::mem::offset_of!(dwell_native_segment, ce) - 86usize];
    ["Offset of field: dwell_native_segment::reserved"]
        [::std::mem::offset_of!(dwell_native_segment, reserved) - 87usize];
};
impl Default for dwell_native_segment {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn dwell_native_segment(
        config: *const dwell_rtt_config,
        data: *const ::std::os::raw::c_void,
        bytes: __u32,
        wire_bytes: __u32,
        link: __u32,
        interface: __u32,
        segment: *mut dwell_native_segment,
    ) -> __u32;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_native_payload {
    pub src: dwell_address,
    pub dst: dwell_address,
    pub seq: __u32,
    pub offset: __u32,
    pub bytes: __u32,
    pub src_port: __u16,
    pub dst_port: __u16,
    pub proto: __u8,
    pub reserved: [__u8; 7usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_native_payload"][::std::mem::size_of::<dwell_native_payload>() - 56usize];
    ["Alignment of dwell_native_payload"][::std::mem::align_of::<dwell_native_payload>() - 8usize];
    ["Offset of field: dwell_native_payload::src"][::std::mem::offset_of!(dwell_native_payload, src) - 0usize];
    ["Offset of field: dwell_native_payload::dst"][::std::mem::offset_of!(dwell_native_payload, dst) - 16usize];
    ["Offset of field: dwell_native_payload::seq"][::std::mem::offset_of!(dwell_native_payload, seq) - 32usize];
    ["Offset of field: dwell_native_payload::offset"][::std::mem::offset_of!(dwell_native_payload, offset) - 36usize];
    ["Offset of field: dwell_native_payload::bytes"][::std::mem::offset_of!(dwell_native_payload, bytes) - 40usize];
    ["Offset of field: dwell_native_payload::src_port"]
        [::std::mem::offset_of!(dwell_native_payload, src_port) - 44usize];
    ["Offset of field: dwell_native_payload::dst_port"]
        [::std::mem::offset_of!(dwell_native_payload, dst_port) - 46usize];
    ["Offset of field: dwell_native_payload::proto"][::std::mem::offset_of!(dwell_native_payload, proto) - 48usize];
    ["Offset of field: dwell_native_payload::reserved"]
        [::std::mem::offset_of!(dwell_native_payload, reserved) - 49usize];
};
unsafe extern "C" {
    pub fn dwell_native_payload(
        data: *const ::std::os::raw::c_void,
        bytes: __u32,
        wire_bytes: __u32,
        link: __u32,
        payload: *mut dwell_native_payload,
    ) -> __u32;
}
pub const DWELL_TX_SOCKET: dwell_stack_layer = 0;
pub const DWELL_TX_TCP: dwell_stack_layer = 1;
pub const DWELL_TX_IP: dwell_stack_layer = 2;
pub const DWELL_TX_QUEUE: dwell_stack_layer = 3;
pub const DWELL_TX_DRIVER: dwell_stack_layer = 4;
pub const DWELL_RX_DRIVER: dwell_stack_layer = 5;
pub const DWELL_RX_IP: dwell_stack_layer = 6;
pub const DWELL_RX_TCP: dwell_stack_layer = 7;
pub const DWELL_RX_READY: dwell_stack_layer = 8;
pub const DWELL_RX_SOCKET: dwell_stack_layer = 9;
pub const DWELL_LAYERS: dwell_stack_layer = 10;
pub type dwell_stack_layer = ::std::os::raw::c_uint;
pub const DWELL_SOCKET_TCP: dwell_stack_segment = 0;
pub const DWELL_TCP_IP: dwell_stack_segment = 1;
pub const DWELL_IP_DRIVER: dwell_stack_segment = 2;
pub const DWELL_QUEUEING: dwell_stack_segment = 3;
pub const DWELL_TX_TOTAL: dwell_stack_segment = 4;
pub const DWELL_TX_UNEXPLAINED: dwell_stack_segment = 5;
pub const DWELL_DRIVER_IP: dwell_stack_segment = 6;
pub const DWELL_IP_TCP: dwell_stack_segment = 7;
pub const DWELL_TCP_SOCKET: dwell_stack_segment = 8;
pub const DWELL_REORDERING: dwell_stack_segment = 9;
pub const DWELL_APPLICATION: dwell_stack_segment = 10;
pub const DWELL_RX_TOTAL: dwell_stack_segment = 11;
pub const DWELL_RX_UNEXPLAINED: dwell_stack_segment = 12;
pub const DWELL_SEGMENTS: dwell_stack_segment = 13;
pub type dwell_stack_segment = ::std::os::raw::c_uint;
pub const DWELL_TX_UNBEGUN: dwell_stack_counter = 0;
pub const DWELL_RX_UNBEGUN: dwell_stack_counter = 1;
pub const DWELL_TX_AGAIN: dwell_stack_counter = 2;
pub const DWELL_RX_AGAIN: dwell_stack_counter = 3;
pub const DWELL_TX_DISPLACED: dwell_stack_counter = 4;
pub const DWELL_RX_DISPLACED: dwell_stack_counter = 5;
pub const DWELL_RX_UNWALKED: dwell_stack_counter = 6;
pub const DWELL_TRACES_LOST: dwell_stack_counter = 7;
pub const DWELL_FLOWS_LOST: dwell_stack_counter = 8;
pub const DWELL_MISSED: dwell_stack_counter = 9;
pub const DWELL_STACK_COUNTERS: dwell_stack_counter = 19;
pub type dwell_stack_counter = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_stack_counters {
    pub value: [__u64; 19usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_stack_counters"][::std::mem::size_of::<dwell_stack_counters>() - 152usize];
    ["Alignment of dwell_stack_counters"][::std::mem::align_of::<dwell_stack_counters>() - 8usize];
    ["Offset of field: dwell_stack_counters::value"][::std::mem::offset_of!(dwell_stack_counters, value) - 0usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_stack_ends {
    pub src: dwell_address,
    pub dst: dwell_address,
    pub sport: __u16,
    pub dport: __u16,
    pub part: __u32,
    pub netns: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_stack_ends"][::std::mem::size_of::<dwell_stack_ends>() - 48usize];
    ["Alignment of dwell_stack_ends"][::std::mem::align_of::<dwell_stack_ends>() - 8usize];
    ["Offset of field: dwell_stack_ends::src"][::std::mem::offset_of!(dwell_stack_ends, src) - 0usize];
    ["Offset of field: dwell_stack_ends::dst"][::std::mem::offset_of!(dwell_stack_ends, dst) - 16usize];
    ["Offset of field: dwell_stack_ends::sport"][::std::mem::offset_of!(dwell_stack_ends, sport) - 32usize];
    ["Offset of field: dwell_stack_ends::dport"][::std::mem::offset_of!(dwell_stack_ends, dport) - 34usize];
    ["Offset of field: dwell_stack_ends::part"][::std::mem::offset_of!(dwell_stack_ends, part) - 36usize];
    ["Offset of field: dwell_stack_ends::netns"][::std::mem::offset_of!(dwell_stack_ends, netns) - 40usize];
    ["Offset of field: dwell_stack_ends::reserved"][::std::mem::offset_of!(dwell_stack_ends, reserved) - 44usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_isns {
    pub src: __u32,
    pub dst: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_isns"][::std::mem::size_of::<dwell_isns>() - 8usize];
    ["Alignment of dwell_isns"][::std::mem::align_of::<dwell_isns>() - 4usize];
    ["Offset of field: dwell_isns::src"][::std::mem::offset_of!(dwell_isns, src) - 0usize];
    ["Offset of field: dwell_isns::dst"][::std::mem::offset_of!(dwell_isns, dst) - 4usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_byte_trace {
    pub ends: dwell_stack_ends,
    pub seq: __u32,
    pub up: __u8,
    pub sent: __u8,
    pub again: __u8,
    pub reserved: __u8,
    pub isns: dwell_isns,
    pub stamp_ns: [__u64; 10usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_byte_trace"][::std::mem::size_of::<dwell_byte_trace>() - 144usize];
    ["Alignment of dwell_byte_trace"][::std::mem::align_of::<dwell_byte_trace>() - 8usize];
    ["Offset of field: dwell_byte_trace::ends"][::std::mem::offset_of!(dwell_byte_trace, ends) - 0usize];
    ["Offset of field: dwell_byte_trace::seq"][::std::mem::offset_of!(dwell_byte_trace, seq) - 48usize];
    ["Offset of field: dwell_byte_trace::up"][::std::mem::offset_of!(dwell_byte_trace, up) - 52usize];
    ["Offset of field: dwell_byte_trace::sent"][::std::mem::offset_of!(dwell_byte_trace, sent) - 53usize];
    ["Offset of field: dwell_byte_trace::again"][::std::mem::offset_of!(dwell_byte_trace, again) - 54usize];
    ["Offset of field: dwell_byte_trace::reserved"][::std::mem::offset_of!(dwell_byte_trace, reserved) - 55usize];
    ["Offset of field: dwell_byte_trace::isns"][::std::mem::offset_of!(dwell_byte_trace, isns) - 56usize];
    ["Offset of field: dwell_byte_trace::stamp_ns"][::std::mem::offset_of!(dwell_byte_trace, stamp_ns) - 64usize];
};
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_flow_segment {
    pub count: __u64,
    pub sum_ns: __u64,
    pub max_ns: __u64,
    pub bucket: [__u32; 204usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_flow_segment"][::std::mem::size_of::<dwell_flow_segment>() - 840usize];
    ["Alignment of dwell_flow_segment"][::std::mem::align_of::<dwell_flow_segment>() - 8usize];
    ["Offset of field: dwell_flow_segment::count"][::std::mem::offset_of!(dwell_flow_segment, count) - 0usize];
    ["Offset of field: dwell_flow_segment::sum_ns"][::std::mem::offset_of!(dwell_flow_segment, sum_ns) - 8usize];
    ["Offset of field: dwell_flow_segment::max_ns"][::std::mem::offset_of!(dwell_flow_segment, max_ns) - 16usize];
    ["Offset of field: dwell_flow_segment::bucket"][::std::mem::offset_of!(dwell_flow_segment, bucket) - 24usize];
};
impl Default for dwell_flow_segment {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_flow_segments {
    pub segment: [dwell_flow_segment; 6usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_flow_segments"][::std::mem::size_of::<dwell_flow_segments>() - 5040usize];
    ["Alignment of dwell_flow_segments"][::std::mem::align_of::<dwell_flow_segments>() - 8usize];
    ["Offset of field: dwell_flow_segments::segment"][::std::mem::offset_of!(dwell_flow_segments, segment) - 0usize];
};
impl Default for dwell_flow_segments {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const DWELL_POINT_QUEUE: dwell_stack_point = 0;
pub const DWELL_POINT_OUT: dwell_stack_point = 1;
pub const DWELL_POINT_IN: dwell_stack_point = 2;
pub type dwell_stack_point = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_device_point {
    pub netns: __u32,
    pub device: __u32,
    pub point: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_device_point"][::std::mem::size_of::<dwell_device_point>() - 16usize];
    ["Alignment of dwell_device_point"][::std::mem::align_of::<dwell_device_point>() - 4usize];
    ["Offset of field: dwell_device_point::netns"][::std::mem::offset_of!(dwell_device_point, netns) - 0usize];
    ["Offset of field: dwell_device_point::device"][::std::mem::offset_of!(dwell_device_point, device) - 4usize];
    ["Offset of field: dwell_device_point::point"][::std::mem::offset_of!(dwell_device_point, point) - 8usize];
    ["Offset of field: dwell_device_point::reserved"][::std::mem::offset_of!(dwell_device_point, reserved) - 12usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_stack_hop {
    pub origin: dwell_device_point,
    pub from: dwell_device_point,
    pub to: dwell_device_point,
    pub generation: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_stack_hop"][::std::mem::size_of::<dwell_stack_hop>() - 56usize];
    ["Alignment of dwell_stack_hop"][::std::mem::align_of::<dwell_stack_hop>() - 8usize];
    ["Offset of field: dwell_stack_hop::origin"][::std::mem::offset_of!(dwell_stack_hop, origin) - 0usize];
    ["Offset of field: dwell_stack_hop::from"][::std::mem::offset_of!(dwell_stack_hop, from) - 16usize];
    ["Offset of field: dwell_stack_hop::to"][::std::mem::offset_of!(dwell_stack_hop, to) - 32usize];
    ["Offset of field: dwell_stack_hop::generation"][::std::mem::offset_of!(dwell_stack_hop, generation) - 48usize];
};
#[repr(C)]
#[derive(
    Debug, Copy, Clone, zerocopy :: FromBytes, zerocopy :: IntoBytes, zerocopy :: Immutable, zerocopy :: KnownLayout,
)]
pub struct dwell_stack_hop_time {
    pub since_ns: __u64,
    pub took: dwell_flow_segment,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_stack_hop_time"][::std::mem::size_of::<dwell_stack_hop_time>() - 848usize];
    ["Alignment of dwell_stack_hop_time"][::std::mem::align_of::<dwell_stack_hop_time>() - 8usize];
    ["Offset of field: dwell_stack_hop_time::since_ns"]
        [::std::mem::offset_of!(dwell_stack_hop_time, since_ns) - 0usize];
    ["Offset of field: dwell_stack_hop_time::took"][::std::mem::offset_of!(dwell_stack_hop_time, took) - 8usize];
};
impl Default for dwell_stack_hop_time {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_stack_program {
    pub filter: dwell_filter,
    pub seed: __u64,
    pub netns: __u32,
    pub row_mask: __u32,
    pub cycle_mask: __u32,
    pub hooked: __u32,
    pub port: __u16,
    pub shift: __u8,
    pub tx_first: __u8,
    pub rx_first: __u8,
    pub flows: __u8,
    pub traces: __u8,
    pub again: __u8,
    pub pace_ns: __u64,
    pub pidns_dev: __u64,
    pub pidns_ino: __u64,
    pub chosen: __u8,
    pub ip_at_queue: __u8,
    pub reserved: [__u8; 6usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_stack_program"][::std::mem::size_of::<dwell_stack_program>() - 712usize];
    ["Alignment of dwell_stack_program"][::std::mem::align_of::<dwell_stack_program>() - 8usize];
    ["Offset of field: dwell_stack_program::filter"][::std::mem::offset_of!(dwell_stack_program, filter) - 0usize];
    ["Offset of field: dwell_stack_program::seed"][::std::mem::offset_of!(dwell_stack_program, seed) - 648usize];
    ["Offset of field: dwell_stack_program::netns"][::std::mem::offset_of!(dwell_stack_program, netns) - 656usize];
    ["Offset of field: dwell_stack_program::row_mask"]
        [::std::mem::offset_of!(dwell_stack_program, row_mask) - 660usize];
    ["Offset of field: dwell_stack_program::cycle_mask"]
        [::std::mem::offset_of!(dwell_stack_program, cycle_mask) - 664usize];
    ["Offset of field: dwell_stack_program::hooked"][::std::mem::offset_of!(dwell_stack_program, hooked) - 668usize];
    ["Offset of field: dwell_stack_program::port"][::std::mem::offset_of!(dwell_stack_program, port) - 672usize];
    ["Offset of field: dwell_stack_program::shift"][::std::mem::offset_of!(dwell_stack_program, shift) - 674usize];
    ["Offset of field: dwell_stack_program::tx_first"]
        [::std::mem::offset_of!(dwell_stack_program, tx_first) - 675usize];
    ["Offset of field: dwell_stack_program::rx_first"]
        [::std::mem::offset_of!(dwell_stack_program, rx_first) - 676usize];
    ["Offset of field: dwell_stack_program::flows"][::std::mem::offset_of!(dwell_stack_program, flows) - 677usize];
    ["Offset of field: dwell_stack_program::traces"][::std::mem::offset_of!(dwell_stack_program, traces) - 678usize];
    ["Offset of field: dwell_stack_program::again"][::std::mem::offset_of!(dwell_stack_program, again) - 679usize];
    ["Offset of field: dwell_stack_program::pace_ns"][::std::mem::offset_of!(dwell_stack_program, pace_ns) - 680usize];
    ["Offset of field: dwell_stack_program::pidns_dev"]
        [::std::mem::offset_of!(dwell_stack_program, pidns_dev) - 688usize];
    ["Offset of field: dwell_stack_program::pidns_ino"]
        [::std::mem::offset_of!(dwell_stack_program, pidns_ino) - 696usize];
    ["Offset of field: dwell_stack_program::chosen"][::std::mem::offset_of!(dwell_stack_program, chosen) - 704usize];
    ["Offset of field: dwell_stack_program::ip_at_queue"]
        [::std::mem::offset_of!(dwell_stack_program, ip_at_queue) - 705usize];
    ["Offset of field: dwell_stack_program::reserved"]
        [::std::mem::offset_of!(dwell_stack_program, reserved) - 706usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct dwell_hop_row {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct dwell_row {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct dwell_layers {
    pub program: dwell_stack_program,
    pub counters: dwell_stack_counters,
    pub rows: *mut dwell_row,
    pub segment: [dwell_histogram; 26usize],
    pub trace: [dwell_byte_trace; 64usize],
    pub traces: __u32,
    pub grid: __u32,
    pub hop_rows: *mut dwell_hop_row,
    pub hop: [dwell_stack_hop; 64usize],
    pub hop_ns: [__u64; 64usize],
    pub hops: __u32,
    pub reserved: __u32,
    pub due_ns: __u64,
    pub isns: dwell_isns,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_layers"][::std::mem::size_of::<dwell_layers>() - 221392usize];
    ["Alignment of dwell_layers"][::std::mem::align_of::<dwell_layers>() - 8usize];
    ["Offset of field: dwell_layers::program"][::std::mem::offset_of!(dwell_layers, program) - 0usize];
    ["Offset of field: dwell_layers::counters"][::std::mem::offset_of!(dwell_layers, counters) - 712usize];
    ["Offset of field: dwell_layers::rows"][::std::mem::offset_of!(dwell_layers, rows) - 864usize];
    ["Offset of field: dwell_layers::segment"][::std::mem::offset_of!(dwell_layers, segment) - 872usize];
    ["Offset of field: dwell_layers::trace"][::std::mem::offset_of!(dwell_layers, trace) - 208040usize];
    ["Offset of field: dwell_layers::traces"][::std::mem::offset_of!(dwell_layers, traces) - 217256usize];
    ["Offset of field: dwell_layers::grid"][::std::mem::offset_of!(dwell_layers, grid) - 217260usize];
    ["Offset of field: dwell_layers::hop_rows"][::std::mem::offset_of!(dwell_layers, hop_rows) - 217264usize];
    ["Offset of field: dwell_layers::hop"][::std::mem::offset_of!(dwell_layers, hop) - 217272usize];
    ["Offset of field: dwell_layers::hop_ns"][::std::mem::offset_of!(dwell_layers, hop_ns) - 220856usize];
    ["Offset of field: dwell_layers::hops"][::std::mem::offset_of!(dwell_layers, hops) - 221368usize];
    ["Offset of field: dwell_layers::reserved"][::std::mem::offset_of!(dwell_layers, reserved) - 221372usize];
    ["Offset of field: dwell_layers::due_ns"][::std::mem::offset_of!(dwell_layers, due_ns) - 221376usize];
    ["Offset of field: dwell_layers::isns"][::std::mem::offset_of!(dwell_layers, isns) - 221384usize];
};
impl Default for dwell_layers {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn dwell_layers_stride() -> __u32;
}
unsafe extern "C" {
    pub fn dwell_layers_hop_stride() -> __u32;
}
unsafe extern "C" {
    pub fn dwell_layers_flow(
        layers: *const dwell_layers,
        src: *const dwell_address,
        dst: *const dwell_address,
        sport: __u16,
        dport: __u16,
    ) -> __u64;
}
unsafe extern "C" {
    pub fn dwell_layers_pass(
        layers: *mut dwell_layers,
        flow: __u64,
        seq: __u32,
        bytes: __u32,
        layer: __u32,
        now_ns: __u64,
        tcp_ns: __u64,
        device: __u32,
    );
}
unsafe extern "C" {
    pub fn dwell_layers_reach(layers: *mut dwell_layers, flow: __u64, end: __u32, layer: __u32, now_ns: __u64);
}
unsafe extern "C" {
    pub fn dwell_layers_cross(
        layers: *mut dwell_layers,
        flow: __u64,
        seq: __u32,
        bytes: __u32,
        point: *const dwell_device_point,
        now_ns: __u64,
    );
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_lowat {
    pub rate: __u64,
    pub bytes: __u32,
    pub set: __u32,
    pub raised_us: __u32,
    pub raised: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_lowat"][::std::mem::size_of::<dwell_lowat>() - 24usize];
    ["Alignment of dwell_lowat"][::std::mem::align_of::<dwell_lowat>() - 8usize];
    ["Offset of field: dwell_lowat::rate"][::std::mem::offset_of!(dwell_lowat, rate) - 0usize];
    ["Offset of field: dwell_lowat::bytes"][::std::mem::offset_of!(dwell_lowat, bytes) - 8usize];
    ["Offset of field: dwell_lowat::set"][::std::mem::offset_of!(dwell_lowat, set) - 12usize];
    ["Offset of field: dwell_lowat::raised_us"][::std::mem::offset_of!(dwell_lowat, raised_us) - 16usize];
    ["Offset of field: dwell_lowat::raised"][::std::mem::offset_of!(dwell_lowat, raised) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_lowat_sample {
    pub rate: __u64,
    pub mss: __u32,
    pub app_limited: __u32,
    pub target_us: __u32,
    pub rtt_us: __u32,
    pub queue_us: __u32,
    pub now_us: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_lowat_sample"][::std::mem::size_of::<dwell_lowat_sample>() - 32usize];
    ["Alignment of dwell_lowat_sample"][::std::mem::align_of::<dwell_lowat_sample>() - 8usize];
    ["Offset of field: dwell_lowat_sample::rate"][::std::mem::offset_of!(dwell_lowat_sample, rate) - 0usize];
    ["Offset of field: dwell_lowat_sample::mss"][::std::mem::offset_of!(dwell_lowat_sample, mss) - 8usize];
    ["Offset of field: dwell_lowat_sample::app_limited"]
        [::std::mem::offset_of!(dwell_lowat_sample, app_limited) - 12usize];
    ["Offset of field: dwell_lowat_sample::target_us"][::std::mem::offset_of!(dwell_lowat_sample, target_us) - 16usize];
    ["Offset of field: dwell_lowat_sample::rtt_us"][::std::mem::offset_of!(dwell_lowat_sample, rtt_us) - 20usize];
    ["Offset of field: dwell_lowat_sample::queue_us"][::std::mem::offset_of!(dwell_lowat_sample, queue_us) - 24usize];
    ["Offset of field: dwell_lowat_sample::now_us"][::std::mem::offset_of!(dwell_lowat_sample, now_us) - 28usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_lowat_program {
    pub target_us: __u32,
    pub every_us: __u32,
    pub congestion: [::std::os::raw::c_char; 16usize],
    pub lowat: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_lowat_program"][::std::mem::size_of::<dwell_lowat_program>() - 32usize];
    ["Alignment of dwell_lowat_program"][::std::mem::align_of::<dwell_lowat_program>() - 4usize];
    ["Offset of field: dwell_lowat_program::target_us"]
        [::std::mem::offset_of!(dwell_lowat_program, target_us) - 0usize];
    ["Offset of field: dwell_lowat_program::every_us"][::std::mem::offset_of!(dwell_lowat_program, every_us) - 4usize];
    ["Offset of field: dwell_lowat_program::congestion"]
        [::std::mem::offset_of!(dwell_lowat_program, congestion) - 8usize];
    ["Offset of field: dwell_lowat_program::lowat"][::std::mem::offset_of!(dwell_lowat_program, lowat) - 24usize];
    ["Offset of field: dwell_lowat_program::reserved"][::std::mem::offset_of!(dwell_lowat_program, reserved) - 28usize];
};
pub const DWELL_LOWAT_CONNECTIONS: dwell_lowat_counter = 0;
pub const DWELL_LOWAT_SETTINGS: dwell_lowat_counter = 1;
pub const DWELL_LOWAT_REFUSED: dwell_lowat_counter = 2;
pub const DWELL_LOWAT_CONGESTION: dwell_lowat_counter = 3;
pub const DWELL_LOWAT_COUNTERS: dwell_lowat_counter = 4;
pub type dwell_lowat_counter = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_lowat_counters {
    pub value: [__u64; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_lowat_counters"][::std::mem::size_of::<dwell_lowat_counters>() - 32usize];
    ["Alignment of dwell_lowat_counters"][::std::mem::align_of::<dwell_lowat_counters>() - 8usize];
    ["Offset of field: dwell_lowat_counters::value"][::std::mem::offset_of!(dwell_lowat_counters, value) - 0usize];
};
unsafe extern "C" {
    pub fn dwell_lowat_next(lowat: *mut dwell_lowat, sample: *const dwell_lowat_sample) -> __u32;
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_owner_key {
    pub local: dwell_address,
    pub remote: dwell_address,
    pub local_port: __u16,
    pub remote_port: __u16,
    pub proto: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_owner_key"][::std::mem::size_of::<dwell_owner_key>() - 40usize];
    ["Alignment of dwell_owner_key"][::std::mem::align_of::<dwell_owner_key>() - 8usize];
    ["Offset of field: dwell_owner_key::local"][::std::mem::offset_of!(dwell_owner_key, local) - 0usize];
    ["Offset of field: dwell_owner_key::remote"][::std::mem::offset_of!(dwell_owner_key, remote) - 16usize];
    ["Offset of field: dwell_owner_key::local_port"][::std::mem::offset_of!(dwell_owner_key, local_port) - 32usize];
    ["Offset of field: dwell_owner_key::remote_port"][::std::mem::offset_of!(dwell_owner_key, remote_port) - 34usize];
    ["Offset of field: dwell_owner_key::proto"][::std::mem::offset_of!(dwell_owner_key, proto) - 36usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_owner {
    pub time_ns: __u64,
    pub cgroup: __u64,
    pub pid: __u32,
    pub name: [::std::os::raw::c_char; 16usize],
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_owner"][::std::mem::size_of::<dwell_owner>() - 40usize];
    ["Alignment of dwell_owner"][::std::mem::align_of::<dwell_owner>() - 8usize];
    ["Offset of field: dwell_owner::time_ns"][::std::mem::offset_of!(dwell_owner, time_ns) - 0usize];
    ["Offset of field: dwell_owner::cgroup"][::std::mem::offset_of!(dwell_owner, cgroup) - 8usize];
    ["Offset of field: dwell_owner::pid"][::std::mem::offset_of!(dwell_owner, pid) - 16usize];
    ["Offset of field: dwell_owner::name"][::std::mem::offset_of!(dwell_owner, name) - 20usize];
    ["Offset of field: dwell_owner::reserved"][::std::mem::offset_of!(dwell_owner, reserved) - 36usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_owner_program {
    pub netns: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_owner_program"][::std::mem::size_of::<dwell_owner_program>() - 4usize];
    ["Alignment of dwell_owner_program"][::std::mem::align_of::<dwell_owner_program>() - 4usize];
    ["Offset of field: dwell_owner_program::netns"][::std::mem::offset_of!(dwell_owner_program, netns) - 0usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_owner_counters {
    pub lost: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_owner_counters"][::std::mem::size_of::<dwell_owner_counters>() - 8usize];
    ["Alignment of dwell_owner_counters"][::std::mem::align_of::<dwell_owner_counters>() - 8usize];
    ["Offset of field: dwell_owner_counters::lost"][::std::mem::offset_of!(dwell_owner_counters, lost) - 0usize];
};
unsafe extern "C" {
    pub fn dwell_quic_lb_config(
        config: *mut dwell_cid_config,
        rotation: __u32,
        server_id_bytes: __u32,
        nonce_bytes: __u32,
        key: *const __u8,
    ) -> ::std::os::raw::c_int;
}
unsafe extern "C" {
    pub fn dwell_quic_lb_encode(
        config: *const dwell_cid_config,
        server_id: *const __u8,
        nonce: *const __u8,
        cid: *mut __u8,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn dwell_quic_lb_decode(
        config: *const dwell_cid_config,
        cid: *const __u8,
        cid_bytes: __u32,
        plain: *mut dwell_cid_plain,
    ) -> ::std::os::raw::c_int;
}
unsafe extern "C" {
    pub fn dwell_quic_lb_encode_stamped(
        config: *const dwell_cid_config,
        server: __u16,
        stamp: __u64,
        cid: *mut __u8,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn dwell_quic_lb_encode_token(
        config: *const dwell_cid_config,
        server: __u16,
        freshness: __u64,
        lifetime_minutes: __u16,
        token: *mut __u8,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn dwell_quic_lb_wait_code(wait_ns: __u64) -> __u16;
}
unsafe extern "C" {
    pub fn dwell_quic_lb_wait_ns(code: __u16) -> __u64;
}
unsafe extern "C" {
    pub fn dwell_quic_lb_block(config: *const dwell_cid_config, octets: *mut __u8, decrypt: ::std::os::raw::c_int);
}
unsafe extern "C" {
    pub fn dwell_native_response_step(
        state: *mut dwell_response_state,
        config: *const dwell_response_config,
        arrival: *const dwell_arrival,
        ended: *mut dwell_epoch,
    ) -> ::std::os::raw::c_int;
}
unsafe extern "C" {
    pub fn dwell_native_response_end(
        state: *mut dwell_response_state,
        config: *const dwell_response_config,
        now_ns: __u64,
        ended: *mut dwell_epoch,
    ) -> ::std::os::raw::c_int;
}
unsafe extern "C" {
    pub fn dwell_native_float16_floor(ns: __u64) -> __u16;
}
unsafe extern "C" {
    pub fn dwell_native_float16_ceil(ns: __u64) -> __u16;
}
unsafe extern "C" {
    pub fn dwell_native_float16_ns(code: __u16) -> __u64;
}
unsafe extern "C" {
    pub fn dwell_steer_heavy_count(
        heavy: *mut dwell_heavy,
        address: *const dwell_address,
        port: __u16,
        random: __u32,
        config: *const dwell_heavy_config,
    );
}
unsafe extern "C" {
    pub fn dwell_steer_heavy_has(
        heavy: *const dwell_heavy,
        address: *const dwell_address,
        config: *const dwell_heavy_config,
    ) -> ::std::os::raw::c_int;
}
unsafe extern "C" {
    pub fn dwell_steer_load_update(
        load: *mut dwell_server_load,
        stamp: __u64,
        unix_s: __u64,
        now_s: __u32,
        config: *const dwell_overload_config,
    ) -> __u32;
}
unsafe extern "C" {
    pub fn dwell_steer_load(
        load: *const dwell_server_load,
        now_s: __u32,
        config: *const dwell_overload_config,
    ) -> __u16;
}
unsafe extern "C" {
    pub fn dwell_steer_divert(
        servers: *const dwell_server_load,
        count: __u32,
        server: __u32,
        from: __u32,
        now_s: __u32,
        config: *const dwell_overload_config,
        least: *mut __u32,
    ) -> ::std::os::raw::c_int;
}
unsafe extern "C" {
    pub fn dwell_steer_network(client: *const dwell_address) -> __u64;
}
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_sip_key {
    pub k0: __u64,
    pub k1: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_sip_key"][::std::mem::size_of::<dwell_sip_key>() - 16usize];
    ["Alignment of dwell_sip_key"][::std::mem::align_of::<dwell_sip_key>() - 8usize];
    ["Offset of field: dwell_sip_key::k0"][::std::mem::offset_of!(dwell_sip_key, k0) - 0usize];
    ["Offset of field: dwell_sip_key::k1"][::std::mem::offset_of!(dwell_sip_key, k1) - 8usize];
};
pub const DWELL_SYNC_REQUEST: dwell_sync_kind = 1;
pub const DWELL_SYNC_REPLY: dwell_sync_kind = 2;
pub type dwell_sync_kind = ::std::os::raw::c_uint;
pub const DWELL_SYNC_UNSTAMPED: dwell_sync_stamper = 0;
pub const DWELL_SYNC_XDP: dwell_sync_stamper = 1;
pub const DWELL_SYNC_SOCKET: dwell_sync_stamper = 2;
pub const DWELL_SYNC_SOCKET_YET: dwell_sync_stamper = 3;
pub type dwell_sync_stamper = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_sync {
    pub magic: __u32,
    pub version: __u8,
    pub kind: __u8,
    pub stamper: __u8,
    pub reserved: __u8,
    pub session: __u64,
    pub sequence: __u64,
    pub arrival_ns: __u64,
    pub departure_ns: __u64,
    pub mac: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_sync"][::std::mem::size_of::<dwell_sync>() - 48usize];
    ["Alignment of dwell_sync"][::std::mem::align_of::<dwell_sync>() - 8usize];
    ["Offset of field: dwell_sync::magic"][::std::mem::offset_of!(dwell_sync, magic) - 0usize];
    ["Offset of field: dwell_sync::version"][::std::mem::offset_of!(dwell_sync, version) - 4usize];
    ["Offset of field: dwell_sync::kind"][::std::mem::offset_of!(dwell_sync, kind) - 5usize];
    ["Offset of field: dwell_sync::stamper"][::std::mem::offset_of!(dwell_sync, stamper) - 6usize];
    ["Offset of field: dwell_sync::reserved"][::std::mem::offset_of!(dwell_sync, reserved) - 7usize];
    ["Offset of field: dwell_sync::session"][::std::mem::offset_of!(dwell_sync, session) - 8usize];
    ["Offset of field: dwell_sync::sequence"][::std::mem::offset_of!(dwell_sync, sequence) - 16usize];
    ["Offset of field: dwell_sync::arrival_ns"][::std::mem::offset_of!(dwell_sync, arrival_ns) - 24usize];
    ["Offset of field: dwell_sync::departure_ns"][::std::mem::offset_of!(dwell_sync, departure_ns) - 32usize];
    ["Offset of field: dwell_sync::mac"][::std::mem::offset_of!(dwell_sync, mac) - 40usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_sync_session {
    pub key: dwell_sip_key,
    pub peer: dwell_address,
    pub largest: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_sync_session"][::std::mem::size_of::<dwell_sync_session>() - 40usize];
    ["Alignment of dwell_sync_session"][::std::mem::align_of::<dwell_sync_session>() - 8usize];
    ["Offset of field: dwell_sync_session::key"][::std::mem::offset_of!(dwell_sync_session, key) - 0usize];
    ["Offset of field: dwell_sync_session::peer"][::std::mem::offset_of!(dwell_sync_session, peer) - 16usize];
    ["Offset of field: dwell_sync_session::largest"][::std::mem::offset_of!(dwell_sync_session, largest) - 32usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_sync_probe {
    pub key: dwell_sip_key,
    pub src: dwell_address,
    pub dst: dwell_address,
    pub interface: __u32,
    pub first: __u32,
    pub src_port: __u16,
    pub dst_port: __u16,
    pub loop_port: __u16,
    pub src_mac: [__u8; 6usize],
    pub dst_mac: [__u8; 6usize],
    pub reserved: [__u16; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_sync_probe"][::std::mem::size_of::<dwell_sync_probe>() - 80usize];
    ["Alignment of dwell_sync_probe"][::std::mem::align_of::<dwell_sync_probe>() - 8usize];
    ["Offset of field: dwell_sync_probe::key"][::std::mem::offset_of!(dwell_sync_probe, key) - 0usize];
    ["Offset of field: dwell_sync_probe::src"][::std::mem::offset_of!(dwell_sync_probe, src) - 16usize];
    ["Offset of field: dwell_sync_probe::dst"][::std::mem::offset_of!(dwell_sync_probe, dst) - 32usize];
    ["Offset of field: dwell_sync_probe::interface"][::std::mem::offset_of!(dwell_sync_probe, interface) - 48usize];
    ["Offset of field: dwell_sync_probe::first"][::std::mem::offset_of!(dwell_sync_probe, first) - 52usize];
    ["Offset of field: dwell_sync_probe::src_port"][::std::mem::offset_of!(dwell_sync_probe, src_port) - 56usize];
    ["Offset of field: dwell_sync_probe::dst_port"][::std::mem::offset_of!(dwell_sync_probe, dst_port) - 58usize];
    ["Offset of field: dwell_sync_probe::loop_port"][::std::mem::offset_of!(dwell_sync_probe, loop_port) - 60usize];
    ["Offset of field: dwell_sync_probe::src_mac"][::std::mem::offset_of!(dwell_sync_probe, src_mac) - 62usize];
    ["Offset of field: dwell_sync_probe::dst_mac"][::std::mem::offset_of!(dwell_sync_probe, dst_mac) - 68usize];
    ["Offset of field: dwell_sync_probe::reserved"][::std::mem::offset_of!(dwell_sync_probe, reserved) - 74usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_sync_exchange {
    pub sequence: __u64,
    pub t1_ns: __u64,
    pub t2_ns: __u64,
    pub t3_ns: __u64,
    pub t4_ns: __u64,
    pub stamper: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_sync_exchange"][::std::mem::size_of::<dwell_sync_exchange>() - 48usize];
    ["Alignment of dwell_sync_exchange"][::std::mem::align_of::<dwell_sync_exchange>() - 8usize];
    ["Offset of field: dwell_sync_exchange::sequence"][::std::mem::offset_of!(dwell_sync_exchange, sequence) - 0usize];
    ["Offset of field: dwell_sync_exchange::t1_ns"][::std::mem::offset_of!(dwell_sync_exchange, t1_ns) - 8usize];
    ["Offset of field: dwell_sync_exchange::t2_ns"][::std::mem::offset_of!(dwell_sync_exchange, t2_ns) - 16usize];
    ["Offset of field: dwell_sync_exchange::t3_ns"][::std::mem::offset_of!(dwell_sync_exchange, t3_ns) - 24usize];
    ["Offset of field: dwell_sync_exchange::t4_ns"][::std::mem::offset_of!(dwell_sync_exchange, t4_ns) - 32usize];
    ["Offset of field: dwell_sync_exchange::stamper"][::std::mem::offset_of!(dwell_sync_exchange, stamper) - 40usize];
};
pub const DWELL_SYNC_ANSWERED: dwell_sync_counter = 0;
pub const DWELL_SYNC_ADMITTED: dwell_sync_counter = 1;
pub const DWELL_SYNC_MALFORMED: dwell_sync_counter = 2;
pub const DWELL_SYNC_UNKNOWN: dwell_sync_counter = 3;
pub const DWELL_SYNC_WRONG_PEER: dwell_sync_counter = 4;
pub const DWELL_SYNC_FORGED: dwell_sync_counter = 5;
pub const DWELL_SYNC_REPLAYED: dwell_sync_counter = 6;
pub const DWELL_SYNC_COUNTERS: dwell_sync_counter = 7;
pub type dwell_sync_counter = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_sync_counters {
    pub value: [__u64; 7usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_sync_counters"][::std::mem::size_of::<dwell_sync_counters>() - 56usize];
    ["Alignment of dwell_sync_counters"][::std::mem::align_of::<dwell_sync_counters>() - 8usize];
    ["Offset of field: dwell_sync_counters::value"][::std::mem::offset_of!(dwell_sync_counters, value) - 0usize];
};
#[repr(C)]
#[derive(
    Debug,
    Default,
    Copy,
    Clone,
    zerocopy :: FromBytes,
    zerocopy :: IntoBytes,
    zerocopy :: Immutable,
    zerocopy :: KnownLayout,
)]
pub struct dwell_sync_program {
    pub experiment_since_ns: __u64,
    pub experiment_offset_ns: __s64,
    pub experiment_drift_ppb: __s64,
    pub port: __u16,
    pub reserved: [__u16; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_sync_program"][::std::mem::size_of::<dwell_sync_program>() - 32usize];
    ["Alignment of dwell_sync_program"][::std::mem::align_of::<dwell_sync_program>() - 8usize];
    ["Offset of field: dwell_sync_program::experiment_since_ns"]
        [::std::mem::offset_of!(dwell_sync_program, experiment_since_ns) - 0usize];
    ["Offset of field: dwell_sync_program::experiment_offset_ns"]
        [::std::mem::offset_of!(dwell_sync_program, experiment_offset_ns) - 8usize];
    ["Offset of field: dwell_sync_program::experiment_drift_ppb"]
        [::std::mem::offset_of!(dwell_sync_program, experiment_drift_ppb) - 16usize];
    ["Offset of field: dwell_sync_program::port"][::std::mem::offset_of!(dwell_sync_program, port) - 24usize];
    ["Offset of field: dwell_sync_program::reserved"][::std::mem::offset_of!(dwell_sync_program, reserved) - 26usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct dwell_sync_agent {
    pub program: dwell_sync_program,
    pub session_id: __u64,
    pub session: dwell_sync_session,
    pub counters: dwell_sync_counters,
    pub now_ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dwell_sync_agent"][::std::mem::size_of::<dwell_sync_agent>() - 144usize];
    ["Alignment of dwell_sync_agent"][::std::mem::align_of::<dwell_sync_agent>() - 8usize];
    ["Offset of field: dwell_sync_agent::program"][::std::mem::offset_of!(dwell_sync_agent, program) - 0usize];
    ["Offset of field: dwell_sync_agent::session_id"][::std::mem::offset_of!(dwell_sync_agent, session_id) - 32usize];
    ["Offset of field: dwell_sync_agent::session"][::std::mem::offset_of!(dwell_sync_agent, session) - 40usize];
    ["Offset of field: dwell_sync_agent::counters"][::std::mem::offset_of!(dwell_sync_agent, counters) - 80usize];
    ["Offset of field: dwell_sync_agent::now_ns"][::std::mem::offset_of!(dwell_sync_agent, now_ns) - 136usize];
};
unsafe extern "C" {
    pub fn dwell_sync_siphash(key: *const dwell_sip_key, message: *const ::std::os::raw::c_void, bytes: __u32)
        -> __u64;
}
unsafe extern "C" {
    pub fn dwell_sync_seal(key: *const dwell_sip_key, sync: *mut dwell_sync);
}
unsafe extern "C" {
    pub fn dwell_sync_is_sealed(
        key: *const dwell_sip_key,
        sync: *const dwell_sync,
        kind: __u8,
    ) -> ::std::os::raw::c_int;
}
unsafe extern "C" {
    pub fn dwell_sync_claimed(program: *const dwell_sync_program, now_ns: __u64) -> __u64;
}
unsafe extern "C" {
    pub fn dwell_sync_agent_frame(
        agent: *mut dwell_sync_agent,
        frame: *mut ::std::os::raw::c_void,
        bytes: __u32,
    ) -> ::std::os::raw::c_int;
}
unsafe extern "C" {
    pub fn dwell_sync_send_frame(
        probe: *const dwell_sync_probe,
        frame: *mut ::std::os::raw::c_void,
        bytes: __u32,
    ) -> ::std::os::raw::c_int;
}
unsafe extern "C" {
    pub fn dwell_sync_take_frame(
        session: __u64,
        probe: *const dwell_sync_probe,
        exchange: *mut dwell_sync_exchange,
        frame: *mut ::std::os::raw::c_void,
        bytes: __u32,
        now_ns: __u64,
    ) -> ::std::os::raw::c_int;
}
