//! Counters of the core, each with a name.

/// Defines an enum of counters whose values are the core's numbers, with `ALL` in the core's order and `name()`.
macro_rules! counters {
    ($(#[$outer:meta])* $enum:ident: $count:expr; $($(#[$doc:meta])* $name:ident = $core:ident, $label:literal;)*) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $enum { $($(#[$doc])* $name = $crate::abi::$core,)* }

        impl $enum {
            /// All counters, in the order of the core's numbers.
            pub const ALL: [$enum; $count as usize] = [$($enum::$name,)*];

            /// Returns the counter's name in output and in metrics.
            pub fn name(self) -> &'static str {
                match self { $($enum::$name => $label,)* }
            }
        }
    };
}

pub(crate) use counters;

/// Sums the counters of several CPUs, one array for each.
pub(crate) fn sum<const N: usize>(cpus: impl IntoIterator<Item = [u64; N]>) -> [u64; N] {
    let mut total = [0; N];
    for cpu in cpus {
        for (total, value) in total.iter_mut().zip(cpu) {
            *total += value;
        }
    }
    total
}
