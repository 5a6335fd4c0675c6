//! smoltcp's reassembly. It is part of its interface: what is timed goes from a frame to a packet in
//! a raw socket.

use std::collections::VecDeque;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::raw;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpProtocol, IpVersion};

/// Frames that come, without their link headers.
#[derive(Default)]
pub(crate) struct Frames<'f>(VecDeque<&'f [u8]>);

pub(crate) struct Receive<'f>(&'f [u8]);

impl RxToken for Receive<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Nothing leaves.
pub(crate) struct Nowhere;

impl TxToken for Nowhere {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        f(&mut vec![0; len])
    }
}

impl<'f> Device for Frames<'f> {
    type RxToken<'a>
        = Receive<'f>
    where
        Self: 'a;
    type TxToken<'a>
        = Nowhere
    where
        Self: 'a;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = 65_535;
        capabilities.medium = Medium::Ip;
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }

    fn receive(&mut self, _now: Instant) -> Option<(Receive<'f>, Nowhere)> {
        Some((Receive(self.0.pop_front()?), Nowhere))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Nowhere> {
        Some(Nowhere)
    }
}

/// An interface with a raw socket for UDP.
pub(crate) struct Smoltcp<'f> {
    frames: Frames<'f>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl<'f> Smoltcp<'f> {
    pub(crate) fn new() -> Self {
        let mut frames = Frames::default();
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut frames, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::v4(10, 0, 1, 1), 8)).expect("room for one");
        });
        let buffer =
            || raw::PacketBuffer::new(vec![raw::PacketMetadata::EMPTY; 64], vec![0; 1 << 18]);
        let socket =
            raw::Socket::new(Some(IpVersion::Ipv4), Some(IpProtocol::Udp), buffer(), buffer());
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Self { frames, interface, sockets, socket }
    }

    /// Takes a frame; shows each packet that comes out.
    pub(crate) fn offer(&mut self, now: u64, frame: &'f [u8], mut shown: impl FnMut(&[u8])) {
        self.frames.0.push_back(&frame[14..]);
        let now = Instant::from_micros(now as i64);
        self.interface.poll(now, &mut self.frames, &mut self.sockets);
        let socket = self.sockets.get_mut::<raw::Socket<'_>>(self.socket);
        while let Ok(packet) = socket.recv() {
            shown(packet);
        }
    }
}
