//! Frames that a test makes, on an interface that others use.

use std::fs::File;
use std::io::{self, Write};

use crate::error::{Error, Tried};
use crate::netlink::Netlink;
use crate::sys;

/// Sends whole Ethernet frames through an interface of the calling thread's namespace, past
/// its addresses: a test can speak for stations and hosts that are not there. Hears nothing.
#[derive(Debug)]
pub struct FrameSender(File);

impl FrameSender {
    /// On this interface. Needs `CAP_NET_RAW`.
    pub fn open(interface: &str) -> Result<Self, Error> {
        let index = Netlink::open()?.index_of(interface)?;
        let socket = sys::packet_socket(index, false).tried("make a packet socket")?;
        Ok(Self(socket.into()))
    }

    /// Sends one frame, from its destination on.
    ///
    /// # Errors
    /// Those of `send(2)`: the interface may be down, or busy.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut file = &self.0;
        file.write_all(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Namespace, VethConfig, VethPair, require_namespaces};
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn a_frame_that_a_test_made_arrives() {
        require_namespaces!();
        let (a, b) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        let pair = VethPair::between(&a, &b, VethConfig::default()).unwrap();
        let [from, to] = pair.ends();
        let listener = b.enter(|| UdpSocket::bind("0.0.0.0:9").unwrap()).unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let sender = a.enter(|| FrameSender::open(&from.name)).unwrap().unwrap();
        let mut frame = [to.mac.0, from.mac.0].concat();
        // IPv4 and UDP without checksums that matter: from a host that is not there.
        frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend_from_slice(&from.ipv4.octets());
        frame.extend_from_slice(&to.ipv4.octets());
        let mut sum: u32 =
            frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
        sum = (sum & 0xffff) + (sum >> 16);
        frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        frame.extend_from_slice(&[0x12, 0x34, 0, 9, 0, 10, 0, 0, b'h', b'i']);
        sender.send(&frame).unwrap();
        let mut got = [0; 8];
        let (len, source) = listener.recv_from(&mut got).unwrap();
        assert_eq!((&got[..len], source.port()), (&b"hi"[..], 0x1234));
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        require_namespaces!();
        let namespace = Namespace::new().unwrap();
        let refused = namespace.enter(|| FrameSender::open("nowhere0")).unwrap();
        assert!(refused.unwrap_err().to_string().contains("nowhere0"));
    }
}
