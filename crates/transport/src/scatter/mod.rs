//! AF_PACKET for fragments: a burst of frames a call, each into the places that
//! were posted for it, and many gathered frames a call the other way.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Posted`] | the list of [`Descriptor`]s: where the frames of a burst go |
//! | [`BurstMemory`] | the memory behind it: heads, spilled bytes, pages, by their names |
//! | [`Socket`] | receives a burst with one call, sends many frames with one |
//! | [`Outgoing`] | a frame to be sent: its header, and where its payload lies |
//! | [`Cutting`] | hands over long packets, which the kernel cuts into fragments |
//! | [`Faulty`] | loses, doubles, delays and damages frames on their way out, for tests |
//! | [`Config`] | which interface, which frames, heard where |
//!
//! Anyone who guesses knows the lengths of headers and payloads before they come;
//! the kernel takes frames apart as it copies them, and no copy is left to make.
//! Frame `n` of a burst goes to descriptor `n`: its first bytes to head slot
//! `n`, the next ones to the descriptor's place, all that remain to spill slot
//! `n`, so that no guess can lose a byte.
//!
//! How the kernel behaves here (`net/packet/af_packet.c`, `net/core/dev.c`):
//!
//! - a socket that hears every protocol gets frames before the hooks of
//!   netfilter at the ingress of the interface do, one that hears a single
//!   protocol gets those that the hooks let through: see [`CapturePoint`];
//! - the filter sees what the kernel keeps beside a frame. Frames of a VLAN,
//!   of other stations, and those that leave here are turned away by it, so
//!   neither addresses nor control messages are asked for;
//! - the send address must carry the true ethertype.
//!
//! Checksums of the transport protocols are not looked at: a peer on the same
//! machine may leave them unfinished, as its device would finish them.
//!
//! What does not live here: what a frame says, and what follows from it.

mod faulty;
mod memory;
mod posted;
mod send;
mod socket;
#[cfg(test)]
mod tests;

use crate::packet::{Filter, Interface};

pub use faulty::{Fate, Faulty};
pub use memory::BurstMemory;
pub use posted::{Descriptor, FRAME_MAX, HEAD_SLOT, MOST_DESCRIPTORS, PostError, Posted};
pub use send::{CutError, Cutting, Long, MOST_OUTGOING, Outgoing};
#[cfg(feature = "io-uring")]
pub(crate) use socket::nothing_came;
pub use socket::{Socket, Statistics};

/// Where on its way through the kernel a frame is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// Before the hooks of netfilter at the ingress of the interface
    /// (`ETH_P_ALL`): the kernel can be made to drop what is heard here.
    Everything,
    /// One ethertype, behind those hooks (`ETH_P_IP` for `0x0800`): what they
    /// drop is not heard. To a station of one's own, frames of a VLAN are heard
    /// as well: they have lost their tag by then.
    Protocol(u16),
}

/// How a socket for bursts of frames is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The interface.
    pub interface: Interface,
    /// Which frames are wanted; the kernel looks. Those of a VLAN that it does not
    /// name, of other stations and those that leave here are never heard.
    pub filter: Filter,
    /// Where they are heard.
    pub hearing: CapturePoint,
    /// Pass the queueing discipline of the interface by when sending.
    pub bypass_queue: bool,
    /// How large the kernel's socket buffers shall be.
    pub socket_buffer: usize,
}

impl Config {
    /// All frames of the interface that pass the filter.
    #[must_use]
    pub fn new(interface: impl Into<Interface>, filter: Filter) -> Self {
        Self {
            interface: interface.into(),
            filter,
            hearing: CapturePoint::Everything,
            bypass_queue: false,
            socket_buffer: 64 << 20,
        }
    }

    /// The same, heard behind the hooks of netfilter, one ethertype alone.
    #[must_use]
    pub fn behind_hooks(self, ethertype: u16) -> Self {
        Self { hearing: CapturePoint::Protocol(ethertype), ..self }
    }
}
