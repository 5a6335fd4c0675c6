//! The little of rtnetlink that a testbed needs, written by hand: no `ip`
//! program has to be installed.
//!
//! Layouts: `include/uapi/linux/netlink.h`, `rtnetlink.h`, `if_link.h`,
//! `if_addr.h`, `neighbour.h`. Everything is in the machine's byte order and
//! padded to four bytes. Which links are made is decided in `veth`.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, Tried};
use crate::veth::{Mac, VethConfig};

/// The kernel answers at once; this only bounds what cannot happen.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const HEADER_LEN: usize = 16;
/// Answers are acknowledgements and single links, far below this.
const ANSWER_LEN: usize = 16 * 1024;
/// `VETH_INFO_PEER` of `linux/veth.h`, which libc does not have.
const VETH_INFO_PEER: u16 = 1;

/// A message under construction.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: libc::c_int) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend([0; 4]); // the length, set when sent
        bytes.extend(kind.to_ne_bytes());
        let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(1u32.to_ne_bytes()); // sequence: one request per socket use
        bytes.extend([0; 4]); // port: the kernel
        Self { bytes }
    }

    /// `struct ifinfomsg`.
    fn link(mut self, index: u32, flags: u32, change: u32) -> Self {
        self.bytes.extend([libc::AF_UNSPEC as u8, 0, 0, 0]);
        self.bytes.extend(index.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(change.to_ne_bytes());
        self
    }

    /// Fixed fields of a family-specific header, already in wire layout.
    fn fields(mut self, fields: &[u8]) -> Self {
        self.bytes.extend(fields);
        self.pad();
        self
    }

    /// One attribute (`struct rtattr`).
    fn attribute(self, kind: u16, value: &[u8]) -> Self {
        self.nested(kind, |mut message| {
            message.bytes.extend(value);
            message
        })
    }

    /// A C string attribute.
    fn text(self, kind: u16, value: &str) -> Self {
        self.nested(kind, |mut message| {
            message.bytes.extend(value.as_bytes());
            message.bytes.push(0);
            message
        })
    }

    /// An attribute whose value `fill` writes. The length that the kernel
    /// reads leaves out the padding behind the value.
    fn nested(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        let mut filled = fill(self);
        let len = (filled.bytes.len() - start) as u16;
        filled.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        filled.pad();
        filled
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes
    }
}

/// A conversation with the kernel about the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
}

/// One end of a veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewVeth<'a> {
    pub(crate) name: &'a str,
    pub(crate) mac: Mac,
}

impl Netlink {
    /// Opens a conversation in the namespace of the calling thread.
    pub(crate) fn open() -> Result<Self, Error> {
        let open = || {
            let socket = Socket::new(
                Domain::from(libc::AF_NETLINK),
                Type::RAW,
                Some(Protocol::from(libc::NETLINK_ROUTE)),
            )?;
            socket.set_read_timeout(Some(ANSWER_WITHIN))?;
            Ok(socket)
        };
        Ok(Self { socket: open().tried("open a netlink socket")? })
    }

    /// The index of the interface `name`.
    pub(crate) fn index_of(&self, name: &str) -> Result<u32, Error> {
        let what = format!("find interface {name}");
        let request =
            Message::new(libc::RTM_GETLINK, 0).link(0, 0, 0).text(libc::IFLA_IFNAME, name);
        let answer = self.ask(request, &what)?;
        // The index follows family, padding and type in `struct ifinfomsg`.
        answer
            .get(HEADER_LEN + 4..HEADER_LEN + 8)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_ne_bytes)
            .ok_or_else(|| Error::system(what, io::ErrorKind::InvalidData.into()))
    }

    /// Makes a veth pair: one end here, its peer in the namespace `far`.
    pub(crate) fn add_veth(
        &self,
        near: NewVeth<'_>,
        peer: NewVeth<'_>,
        far: BorrowedFd<'_>,
        config: VethConfig,
    ) -> Result<(), Error> {
        let far = far.as_raw_fd().to_ne_bytes();
        let request = Message::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
            .link(0, 0, 0)
            .text(libc::IFLA_IFNAME, near.name)
            .attribute(libc::IFLA_ADDRESS, &near.mac.0)
            .attribute(libc::IFLA_MTU, &config.mtu.to_ne_bytes())
            .attribute(libc::IFLA_NUM_TX_QUEUES, &config.queues.to_ne_bytes())
            .attribute(libc::IFLA_NUM_RX_QUEUES, &config.queues.to_ne_bytes())
            .nested(libc::IFLA_LINKINFO, |message| {
                message.text(libc::IFLA_INFO_KIND, "veth").nested(libc::IFLA_INFO_DATA, |message| {
                    message.nested(VETH_INFO_PEER, |message| {
                        message
                            .link(0, 0, 0)
                            .text(libc::IFLA_IFNAME, peer.name)
                            .attribute(libc::IFLA_ADDRESS, &peer.mac.0)
                            .attribute(libc::IFLA_MTU, &config.mtu.to_ne_bytes())
                            .attribute(libc::IFLA_NUM_TX_QUEUES, &config.queues.to_ne_bytes())
                            .attribute(libc::IFLA_NUM_RX_QUEUES, &config.queues.to_ne_bytes())
                            .attribute(libc::IFLA_NET_NS_FD, &far)
                    })
                })
            });
        self.ask(request, "make a veth pair").map(drop)
    }

    /// Makes a bridge without cables.
    pub(crate) fn add_bridge(&self, name: &str) -> Result<(), Error> {
        let request = Message::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
            .link(0, 0, 0)
            .text(libc::IFLA_IFNAME, name)
            .nested(libc::IFLA_LINKINFO, |message| message.text(libc::IFLA_INFO_KIND, "bridge"));
        self.ask(request, "make a bridge").map(drop)
    }

    /// Plugs a link into a bridge.
    pub(crate) fn set_master(&self, index: u32, bridge: u32) -> Result<(), Error> {
        let request = Message::new(libc::RTM_NEWLINK, 0)
            .link(index, 0, 0)
            .attribute(libc::IFLA_MASTER, &bridge.to_ne_bytes());
        self.ask(request, "plug an interface into a bridge").map(drop)
    }

    /// Switches a link on.
    pub(crate) fn set_up(&self, index: u32) -> Result<(), Error> {
        let up = libc::IFF_UP as u32;
        let request = Message::new(libc::RTM_NEWLINK, 0).link(index, up, up);
        self.ask(request, "switch an interface on").map(drop)
    }

    /// Switches a link off.
    pub(crate) fn set_down(&self, index: u32) -> Result<(), Error> {
        let request = Message::new(libc::RTM_NEWLINK, 0).link(index, 0, libc::IFF_UP as u32);
        self.ask(request, "switch an interface off").map(drop)
    }

    /// Sets the largest packet of a link.
    pub(crate) fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), Error> {
        let request = Message::new(libc::RTM_NEWLINK, 0)
            .link(index, 0, 0)
            .attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
        self.ask(request, &format!("set the MTU to {mtu}")).map(drop)
    }

    /// Lets the kernel hand a link nothing that is more than one packet.
    pub(crate) fn send_single(&self, index: u32) -> Result<(), Error> {
        let request = Message::new(libc::RTM_NEWLINK, 0)
            .link(index, 0, 0)
            .attribute(libc::IFLA_GSO_MAX_SEGS, &1u32.to_ne_bytes());
        self.ask(request, "send single packets").map(drop)
    }

    /// Removes a link; of a veth pair both ends go.
    pub(crate) fn remove(&self, index: u32) -> Result<(), Error> {
        let request = Message::new(libc::RTM_DELLINK, 0).link(index, 0, 0);
        self.ask(request, "remove an interface").map(drop)
    }

    /// Gives a link an address that is usable at once: duplicate address
    /// detection would hold an IPv6 address back for a second.
    pub(crate) fn add_address(&self, index: u32, address: IpAddr, prefix: u8) -> Result<(), Error> {
        let octets = octets(address);
        let flags = libc::IFA_F_NODAD as u8;
        let [a, b, c, d] = index.to_ne_bytes();
        let request = Message::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
            // struct ifaddrmsg: family, prefix, flags, scope, index.
            .fields(&[family(address), prefix, flags, libc::RT_SCOPE_UNIVERSE, a, b, c, d])
            .attribute(libc::IFA_LOCAL, &octets)
            .attribute(libc::IFA_ADDRESS, &octets);
        self.ask(request, &format!("add the address {address}")).map(drop)
    }

    /// Tells a link where `address` lives, so that nobody has to ask.
    pub(crate) fn add_neighbour(&self, index: u32, address: IpAddr, mac: Mac) -> Result<(), Error> {
        let [a, b, c, d] = index.to_ne_bytes();
        let [state_low, state_high] = libc::NUD_PERMANENT.to_ne_bytes();
        let request = Message::new(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
            // struct ndmsg: family, padding, index, state, flags, type.
            .fields(&[family(address), 0, 0, 0, a, b, c, d, state_low, state_high, 0, 0])
            .attribute(libc::NDA_DST, &octets(address))
            .attribute(libc::NDA_LLADDR, &mac.0);
        self.ask(request, &format!("add the neighbour {address}")).map(drop)
    }

    /// Sends one request and waits for its end. Gives the answer that came
    /// before the acknowledgement, or nothing.
    fn ask(&self, request: Message, what: &str) -> Result<Vec<u8>, Error> {
        self.exchange(&request.finish()).tried(what)
    }

    fn exchange(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        (&self.socket).write_all(request)?;
        let mut answer = Vec::new();
        let mut buffer = [0; ANSWER_LEN];
        loop {
            let len = (&self.socket).read(&mut buffer)?;
            let mut rest = &buffer[..len];
            while let Some((message, next)) = split_message(rest) {
                rest = next;
                let kind = u16::from_ne_bytes([message[4], message[5]]);
                if i32::from(kind) != libc::NLMSG_ERROR {
                    answer = message.to_vec();
                    continue;
                }
                let code = message
                    .get(HEADER_LEN..HEADER_LEN + 4)
                    .and_then(|bytes| bytes.try_into().ok())
                    .map_or(-libc::EBADMSG, i32::from_ne_bytes);
                return match code {
                    0 => Ok(answer),
                    code => Err(io::Error::from_raw_os_error(-code)),
                };
            }
        }
    }
}

/// The first message of a datagram, and what follows it.
fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    if len < HEADER_LEN {
        return None;
    }
    let message = bytes.get(..len)?;
    Some((message, bytes.get(len.next_multiple_of(4)..).unwrap_or(&[])))
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_but_say_their_true_length() {
        let bytes = Message::new(7, 0).text(3, "abcd").attribute(4, &[9]).finish();
        assert_eq!(bytes.len(), HEADER_LEN + 12 + 8);
        assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes());
        assert_eq!(bytes[HEADER_LEN..HEADER_LEN + 2], 9u16.to_ne_bytes());
        assert_eq!(&bytes[HEADER_LEN + 4..HEADER_LEN + 12], b"abcd\0\0\0\0");
    }

    #[test]
    fn a_cut_message_is_not_read() {
        assert!(split_message(&[]).is_none());
        assert!(split_message(&[0; 16]).is_none());
        let mut long = [0; 16];
        long[..4].copy_from_slice(&17u32.to_ne_bytes());
        assert!(split_message(&long).is_none());
    }
}
