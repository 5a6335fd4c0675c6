//! `io_uring` variants of the socket drivers: several calls with one entry into
//! the kernel, and payload that leaves without a copy; and reads of files.
//!
//! | part | what it is |
//! | --- | --- |
//! | `ring` | the ring itself: opened, or refused in words that help; entered, emptied |
//! | `flight` | which units are in the kernel's hands, and until when |
//! | `zero_copy` | whether sending without a copy is worth trying |
//! | `halves` | what all drivers do alike |
//! | `udp` | [`UringUdpDriver`] |
//! | `packet` | [`UringPacketDriver`] |
//! | `udp_packet` | [`UringUdpPacketDriver`] |
//! | `burst` | [`UringBurst`] |
//! | `file` | [`FileRing`]: files, not sockets |
//! | `file_region` | [`RegionFileRing`]: files into lent memory |
//! | `file_reads` | what both of them do alike |
//!
//! # What goes through the ring, and when
//!
//! A driver never sleeps with a guess posted. So a receive is submitted when a
//! turn runs and told not to wait: it is complete when the entry into the
//! kernel returns, whether something came or not. The runs of units that were
//! waiting to be sent go in with the same entry, behind the receive. An
//! operation that is alone is a plain system call: the ring would gain nothing,
//! and costs more than the call where nothing has come.
//!
//! A send that copies is complete as well when the entry returns. A send
//! without a copy is not: the kernel reads the heads and the payload until the
//! device is done with them, and says so in a *notification*. Until then the
//! heads stay where they are, the payload stays pinned, and the engine does
//! not hear [`handle_sent`](landfall_placement::Engine::handle_sent).
//!
//! # Threads
//!
//! A driver may be moved to another thread between any two turns, as tokio
//! does. A ring for a single issuer (`IORING_SETUP_SINGLE_ISSUER`, and with it
//! `IORING_SETUP_DEFER_TASKRUN`) would refuse that. They save work where
//! completions come later than the submission, which here only notifications
//! do; so the ring is opened without them.
//!
//! What does not live here: what a header says and what an error number means,
//! which are those of the plain drivers.

mod burst;
mod file;
mod file_reads;
mod file_region;
mod flight;
mod halves;
mod packet;
mod ring;
mod udp;
mod udp_packet;

pub use burst::UringBurst;
pub use file::FileRing;
pub use file_region::RegionFileRing;
pub use packet::UringPacketDriver;
pub use ring::Unavailable;
pub use udp::{UringUdpConfig, UringUdpDriver, ZeroCopy, ZeroCopyUse};
pub use udp_packet::UringUdpPacketDriver;
