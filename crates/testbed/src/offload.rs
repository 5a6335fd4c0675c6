//! What an interface does instead of the processor: segmentation, joining of
//! segments, checksums. Read and set by the kernel's own feature names
//! (`net/ethtool/common.c`), as `ethtool -k` and `-K` do.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;

use crate::error::{Error, Tried};
use crate::rivals::UDP_SEGMENT;
use crate::sys;
use crate::sys::{EthtoolCommand, Features, MOST_FEATURES};
use crate::veth::{VethEnd, VethPair};

/// A group of kernel features that goes by one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// TCP super-packets leave whole (`tso`).
    TcpSegmentation,
    /// UDP super-packets leave whole (`tx-udp-segmentation`).
    UdpSegmentation,
    /// The stack cuts super-packets late, in software (`gso`).
    GenericSegmentation,
    /// Frames of one flow are joined on arrival (`gro`).
    GenericReceive,
    /// Checksums are filled in by the device on sending (`tx`).
    TransmitChecksum,
    /// Checksums are verified by the device on arrival (`rx`).
    ReceiveChecksum,
    /// Packets may lie in pieces (`sg`).
    ScatterGather,
}

impl Offload {
    /// Whether the kernel's feature `name` belongs to the group.
    fn covers(self, name: &str) -> bool {
        match self {
            Self::TcpSegmentation => name.starts_with("tx-tcp") && name.ends_with("-segmentation"),
            Self::UdpSegmentation => name == "tx-udp-segmentation",
            Self::GenericSegmentation => name == "tx-generic-segmentation",
            Self::GenericReceive => name == "rx-gro",
            Self::TransmitChecksum => name.starts_with("tx-checksum-"),
            Self::ReceiveChecksum => name == "rx-checksum",
            Self::ScatterGather => name.starts_with("tx-scatter-gather"),
        }
    }
}

/// One feature of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name for it.
    pub name: String,
    /// Whether it is on.
    pub active: bool,
    /// Whether it can be changed on this interface.
    pub changeable: bool,
}

/// All features of `interface`, in the namespace of the calling thread.
pub fn features(interface: &str) -> Result<Vec<Feature>, Error> {
    let mut features = bits(interface)?;
    features.retain(|feature| !feature.name.is_empty());
    Ok(features)
}

/// All feature bits in their order, those without a name too.
fn bits(interface: &str) -> Result<Vec<Feature>, Error> {
    let read = || {
        let socket = Ethtool::open(interface)?;
        let names = socket.names()?;
        let blocks = socket.blocks(names.len())?;
        let feature = |(bit, name): (usize, String)| {
            // struct ethtool_get_features_block: available, requested,
            // active, never_changed.
            let is = |word: usize| blocks[bit / 32][word] >> (bit % 32) & 1 == 1;
            Feature { name, active: is(2), changeable: is(0) && !is(3) }
        };
        Ok(names.into_iter().enumerate().map(feature).collect())
    };
    read().tried(&format!("read the offloads of {interface}"))
}

/// Whether any feature of the group is on, on `interface` in the namespace of
/// the calling thread.
pub fn is_on(interface: &str, offload: Offload) -> Result<bool, Error> {
    Ok(features(interface)?.iter().any(|feature| feature.active && offload.covers(&feature.name)))
}

/// Switches all features of the group that can be changed, and looks whether
/// it happened.
pub fn set(interface: &str, offload: Offload, on: bool) -> Result<(), Error> {
    let before = bits(interface)?;
    let covered = before.iter().enumerate().filter(|(_, bit)| offload.covers(&bit.name));
    let wanted = covered.filter(|(_, bit)| bit.changeable).map(|(nth, _)| nth);
    let change = || Ethtool::open(interface)?.set(before.len(), wanted, on);
    change().tried(&format!("change the offloads of {interface}"))?;
    if is_on(interface, offload)? != on {
        let on = if on { "on" } else { "off" };
        return Err(Error::Unsupported(format!("{offload:?} {on} at {interface}")));
    }
    Ok(())
}

impl VethEnd {
    /// All features of the interface.
    pub fn features(&self) -> Result<Vec<Feature>, Error> {
        self.namespace.enter(|| features(&self.name))?
    }

    /// Whether any feature of the group is on.
    pub fn offload(&self, offload: Offload) -> Result<bool, Error> {
        self.namespace.enter(|| is_on(&self.name, offload))?
    }

    /// Switches a group of features, and looks whether it happened.
    pub fn set_offload(&self, offload: Offload, on: bool) -> Result<(), Error> {
        self.namespace.enter(|| set(&self.name, offload, on))?
    }
}

impl VethPair {
    /// Whether frames of the MTU really cross the link from `a` to `b`.
    ///
    /// A veth takes super-packets whole, up to 64 KiB: no frame of the MTU
    /// ever exists, which no cable can do. With real frames the sender's
    /// stack cuts, the frames cross one by one, and the receiver's stack
    /// joins them, as with a network adapter. A figure should always say
    /// which of the two it is.
    pub fn set_real_frames(&self, real: bool) -> Result<(), Error> {
        self.a.set_offload(Offload::TcpSegmentation, !real)?;
        self.a.set_offload(Offload::UdpSegmentation, !real)?;
        self.b.set_offload(Offload::GenericReceive, real)
    }

    /// Whether [`set_real_frames`](Self::set_real_frames) is in force.
    pub fn has_real_frames(&self) -> Result<bool, Error> {
        Ok(!self.a.offload(Offload::TcpSegmentation)?
            && !self.a.offload(Offload::UdpSegmentation)?
            && self.b.offload(Offload::GenericReceive)?)
    }
}

/// A conversation about one interface.
struct Ethtool<'a> {
    socket: UdpSocket,
    interface: &'a str,
}

impl<'a> Ethtool<'a> {
    fn open(interface: &'a str) -> io::Result<Self> {
        // Any socket serves: only its namespace matters.
        Ok(Self { socket: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?, interface })
    }

    /// The items of the answer, without the header.
    fn ask(&self, request: Features) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; request.len()];
        let mut command = EthtoolCommand::features(&mut bytes, request)?;
        sys::ethtool(self.socket.as_fd(), self.interface, &mut command)?;
        Ok(bytes.split_off(size_of_val(&*request.header())))
    }

    /// The names of all feature bits, in the order of the bits.
    fn names(&self) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: cmd, reserved, sset_mask (64 bits), data.
        let mut bytes = [0; 20];
        let mut command = EthtoolCommand::feature_count(&mut bytes);
        sys::ethtool(self.socket.as_fd(), self.interface, &mut command)?;
        let count = word(&bytes, 16);
        if count == 0 || count > MOST_FEATURES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let request = Features::Names(count);
        let bytes = self.ask(request)?;
        let names = bytes.chunks_exact(request.item_len());
        Ok(names.take(count as usize).map(text).collect())
    }

    /// The state of all bits, 32 per block.
    fn blocks(&self, bits: usize) -> io::Result<Vec<[u32; 4]>> {
        let request = Features::Get(block_count(bits));
        let bytes = self.ask(request)?;
        let blocks = bytes.chunks_exact(request.item_len());
        Ok(blocks.map(|block| [0, 4, 8, 12].map(|at| word(block, at))).collect())
    }

    fn set(&self, bits: usize, wanted: impl Iterator<Item = usize>, on: bool) -> io::Result<()> {
        let request = Features::Set(block_count(bits));
        let mut words = vec![0u32; block_count(bits) as usize * 2];
        for bit in wanted {
            // struct ethtool_set_features_block: valid, requested.
            words[bit / 32 * 2] |= 1 << (bit % 32);
            words[bit / 32 * 2 + 1] |= u32::from(on) << (bit % 32);
        }
        let mut bytes = vec![0; size_of_val(&*request.header())];
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let mut command = EthtoolCommand::features(&mut bytes, request)?;
        sys::ethtool(self.socket.as_fd(), self.interface, &mut command).map(drop)
    }
}

fn block_count(bits: usize) -> u32 {
    bits.div_ceil(32) as u32
}

/// The word at `at`, or zero behind the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    word.map_or(0, u32::from_ne_bytes)
}

/// The C string in a field of fixed size.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

// Datagrams that arrive together, for tests of what a driver does with a batch.

/// From now on the kernel cuts what is sent on a socket into datagrams of this
/// length. On loopback they arrive in one piece, for a receiver that takes them so.
///
/// # Errors
/// The kernel refused `UDP_SEGMENT`.
pub fn send_in_batches(socket: &UdpSocket, datagram: u16) -> Result<(), Error> {
    sys::set_option(socket.as_fd(), libc::SOL_UDP, UDP_SEGMENT, datagram.into())
        .map_err(|source| Error::system("switch UDP segmentation on", source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_cover_what_ethtool_covers() {
        let tso = Offload::TcpSegmentation;
        assert!(tso.covers("tx-tcp-segmentation") && tso.covers("tx-tcp6-segmentation"));
        assert!(!tso.covers("tx-udp-segmentation") && !tso.covers("tx-generic-segmentation"));
        assert!(Offload::TransmitChecksum.covers("tx-checksum-ip-generic"));
    }

    #[test]
    fn loopback_has_features_and_an_unknown_interface_none() {
        let features = features("lo").unwrap();
        assert!(features.iter().any(|feature| feature.name == "rx-gro"));
        assert!(matches!(super::features("no-such-link"), Err(Error::System { .. })));
        assert!(matches!(
            super::features("a name that is far too long"),
            Err(Error::System { .. })
        ));
    }
}
