//! Who computes the ciphers.
//!
//! | provider | where |
//! | --- | --- |
//! | [`RustCrypto`] | everywhere, in Rust alone |
//! | `AwsLc` | with the feature `std`: several times as fast on servers |

#[cfg(feature = "std")]
mod aws_lc;
mod rust_crypto;

#[cfg(feature = "std")]
pub use aws_lc::AwsLc;
pub use rust_crypto::RustCrypto;

/// The fastest provider of this build.
#[cfg(feature = "std")]
pub type Provider = AwsLc;
/// The fastest provider of this build.
#[cfg(not(feature = "std"))]
pub type Provider = RustCrypto;
