#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod aead;
mod handshake;
mod keys;
mod layer;
#[cfg(feature = "model")]
pub mod model;
pub mod provider;
mod record;
mod secret;

pub use aead::{
    Aead, CipherKey, Forged, Limits, MOST_HEAD, MOST_PAYLOAD, NONCE_LEN, Suite, TAG_LEN, Tag,
};
pub use handshake::{
    BadFingerprint, Established, Fingerprint, Handshake, HandshakeError, MOST_MESSAGE, Noise,
    NoiseConfig, Pake, PeerIdentity, PublicKey, StaticKey,
};
#[cfg(feature = "rustls")]
pub use handshake::{Tls, TlsError, tls_provider};
pub use keys::{Keys, Role};
#[cfg(feature = "rustls")]
pub use layer::Certificates;
pub use layer::{
    BadKeyLine, CaptureOpener, Expected, HandshakeUnits, KeyLog, MOST_INNER_HEAD, NotOpened,
    OVERHEAD, OpenedUnit, Proof, SealConfig, SealStats, Sealed, TrafficKeys, Trust, TrustAnybody,
};
pub use record::{
    BadUnits, OpenError, Opener, Position, RecordConfig, ScheduledOpener, ScheduledSealer,
    SealError, Sealer, Slot, Units,
};
pub use secret::{Secret, Seed};
