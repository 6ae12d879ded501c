//! Why a verb failed, and which exit status follows from it.

use std::error::Error;

/// Declares the type `Failure` of a binary, with a conversion from each listed type of error. After the arrow stands
/// the exit status that follows from the error; one that ends the run with [`Exit::Done`](crate::Exit::Done) has no
/// message.
///
/// A binary declares the type itself because only its own type can be converted from errors of other crates.
#[macro_export]
macro_rules! failure {
    ($($source:ty: $error:pat => $exit:expr,)*) => {
        /// Why a run ended early, and with which status.
        #[derive(Debug)]
        pub struct Failure {
            /// The status to exit with.
            pub exit: $crate::Exit,
            /// The message; `None` where the user knows the cause, as after Ctrl-C.
            pub error: Option<::anyhow::Error>,
        }

        impl Failure {
            /// A failure with a message.
            pub fn new(exit: $crate::Exit, error: impl Into<::anyhow::Error>) -> Failure {
                Failure { exit, error: Some(error.into()) }
            }

            /// A failure because of wrong usage or input.
            pub fn usage(error: impl Into<::anyhow::Error>) -> Failure {
                Failure::new($crate::Exit::Usage, error)
            }

            /// Ends a run quietly and successfully, because nobody reads its output any more.
            pub fn closed() -> Failure {
                Failure { exit: $crate::Exit::Done, error: None }
            }
        }

        $(impl From<$source> for Failure {
            fn from(error: $source) -> Failure {
                let $error = &error;
                match $exit {
                    $crate::Exit::Done => Failure::closed(),
                    exit => Failure::new(exit, error),
                }
            }
        })*

        /// Reports the failure to the user, and returns its exit status.
        impl From<Failure> for std::process::ExitCode {
            fn from(failure: Failure) -> std::process::ExitCode {
                if let Some(error) = &failure.error {
                    $crate::log::alarm(format_args!("{}", $crate::failure::in_words(error.chain())));
                }
                failure.exit.into()
            }
        }
    };
}

/// Returns an error and its causes in one line, without causes that the words before them tell already.
pub fn in_words<'a>(chain: impl Iterator<Item = &'a (dyn Error + 'static)>) -> String {
    chain.fold(String::new(), |said, cause| match cause.to_string() {
        cause if said.is_empty() => cause,
        cause if said.contains(&cause) => said,
        cause => format!("{said}: {cause}"),
    })
}
