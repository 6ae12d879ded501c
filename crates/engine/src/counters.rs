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

/// Gives a newtype of the core's counters, one for each number, its sum over CPUs and its access by a counter's name.
macro_rules! sums {
    ($sums:ident of $core:ident by $enum:ident) => {
        impl $sums {
            /// Sums the counters of several CPUs.
            pub fn sum<'a>(cpus: impl IntoIterator<Item = &'a $crate::abi::$core>) -> $sums {
                $sums($crate::counters::sum(cpus.into_iter().map(|cpu| cpu.value)))
            }

            /// Returns one of the counters.
            pub fn get(&self, counter: $enum) -> u64 {
                self.0[counter as usize]
            }
        }
    };
}

pub(crate) use {counters, sums};

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
