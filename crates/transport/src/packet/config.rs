//! How a path over an interface is opened.

use std::fmt;

use super::Filter;

/// An interface of the network namespace that the opening thread is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// By its name.
    Name(String),
    /// By its index.
    Index(u32),
}

impl From<&str> for Interface {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<u32> for Interface {
    fn from(index: u32) -> Self {
        Self::Index(index)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Index(index) => write!(f, "number {index}"),
        }
    }
}

/// What a unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A whole frame that begins with its Ethernet header, written and read by
    /// the engine.
    Ethernet {
        /// Which frames are for the engine; the kernel looks.
        filter: Filter,
    },
    /// What follows the Ethernet header of frames of one ethertype; the kernel
    /// writes and reads the header.
    Payload {
        /// The protocol by which the frames are told from others.
        ethertype: u16,
    },
}

/// How a path over an interface is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketConfig {
    /// The interface.
    pub interface: Interface,
    /// What a unit is.
    pub framing: Framing,
    /// Leave segmentation and checksums to the device, where the kernel can.
    /// Frames of one ethertype without an offload get none either way.
    pub offload: bool,
    /// Pass the queueing discipline of the interface by: a little less latency,
    /// no fairness towards others. Not together with `offload`.
    pub bypass_queue: bool,
    /// How large the kernel's socket buffers shall be.
    pub socket_buffer: usize,
}

impl PacketConfig {
    /// A path over this interface, with all offloads.
    #[must_use]
    pub fn new(interface: impl Into<Interface>, framing: Framing) -> Self {
        Self {
            interface: interface.into(),
            framing,
            offload: true,
            bypass_queue: false,
            socket_buffer: 32 << 20,
        }
    }

    /// The same without offloads: frames of the MTU, sums by the driver.
    #[must_use]
    pub fn without_offload(self) -> Self {
        Self { offload: false, ..self }
    }

    /// Are super-packets and checksums the device's?
    pub(super) fn wants_offload(&self) -> bool {
        self.offload && matches!(self.framing, Framing::Ethernet { .. })
    }
}
