//! What was looked for, and what was found.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// Something that a machine may offer, by the name that `--require` and the
/// JSON use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Feature {
    /// A kernel that is new enough for everything here
    Kernel,
    /// A core for each of two threads
    TwoCores,
    /// CAP_NET_ADMIN: interfaces and forced buffer sizes
    NetAdmin,
    /// CAP_NET_RAW: packet sockets
    NetRaw,
    /// Network namespaces can be made
    Namespaces,
    /// UDP batches leave with one call (UDP_SEGMENT)
    UdpGso,
    /// UDP batches arrive with one call (UDP_GRO)
    UdpGro,
    /// Socket buffers are as large as the UDP driver asks for
    SocketBuffers,
    /// AF_PACKET sockets
    Packet,
    /// AF_PACKET with segmentation and checksum offload (PACKET_VNET_HDR)
    PacketOffload,
    /// nft, by which bigmtu keeps frames from the kernel
    Nft,
    /// TAP devices
    Tap,
    /// Raw IP sockets, for protocols with a number of their own
    RawIp,
    /// AF_XDP sockets, with the program that redirects frames to them
    Xdp,
    /// io_uring
    IoUring,
    /// Zero-copy send with io_uring (SendZc)
    SendZc,
    /// Transparent or reserved huge pages
    HugePages,
    /// Memory may be locked, as io_uring and AF_XDP need it
    LockedMemory,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("unnamed", |value| value.get_name()))
    }
}

/// What was found out about a feature.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// Which.
    pub(crate) feature: Feature,
    /// What people call it.
    pub(crate) name: &'static str,
    /// Is it there?
    pub(crate) present: bool,
    /// What was seen.
    pub(crate) detail: String,
    /// What to do about it, where it is missing.
    pub(crate) remedy: Option<String>,
}

impl Finding {
    /// It is there.
    pub(crate) fn present(feature: Feature, name: &'static str, detail: impl Into<String>) -> Self {
        Self { feature, name, present: true, detail: detail.into(), remedy: None }
    }

    /// It is not there, and this is what to do.
    pub(crate) fn missing(
        feature: Feature,
        name: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (detail, remedy) = (detail.into(), Some(remedy.into()));
        Self { feature, name, present: false, detail, remedy }
    }
}
