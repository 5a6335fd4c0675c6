//! How a socket for bursts of frames is opened.

use crate::packet::{Filter, Interface};

/// Where on its way through the kernel a frame is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
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
    /// Which frames are wanted; the kernel looks. Those of a VLAN, of other
    /// stations and those that leave here are never heard.
    pub filter: Filter,
    /// Where they are heard.
    pub hearing: Hearing,
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
            hearing: Hearing::Everything,
            bypass_queue: false,
            socket_buffer: 64 << 20,
        }
    }

    /// The same, heard behind the hooks of netfilter, one ethertype alone.
    #[must_use]
    pub fn behind_hooks(self, ethertype: u16) -> Self {
        Self { hearing: Hearing::Protocol(ethertype), ..self }
    }
}
