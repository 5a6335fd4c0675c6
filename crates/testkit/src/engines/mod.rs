//! Unlike engines that settle the contract of [`landfall_placement::Engine`].
//!
//! | module | what it is |
//! | --- | --- |
//! | [`numbered`] | the scheduled one: numbered units of a message, each with its place, granted before it is sent |
//! | [`stream`] | the byte stream: TCP-like, with heads of varying length and segments that the device cuts |
//! | [`halves`] | messages in two units with one checksum, which are kept until both are there |
//!
//! All are honest small protocols: they bound everything, do the same again when
//! given the same again, and but for the halves they lose nothing. Tests, benchmarks and the `perf`
//! tool run them over every driver. They are no protocols for the open
//! Internet: there is no congestion control, and a peer is believed what a
//! header says as long as its keys are right.
//!
//! What does not live here: memory, I/O, clocks.

mod bits;
pub mod halves;
pub mod numbered;
pub mod stream;

pub use halves::Halves;
pub use landfall_placement::Area;
pub use numbered::Numbered;
pub use stream::Stream;
