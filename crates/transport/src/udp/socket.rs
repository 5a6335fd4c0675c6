//! The kernel's end of a UDP path: a socket with all that is offered switched on, as far as
//! it is there, and message headers, which say what it is told with a call, and what it tells.
//!
//! A header is prepared for one call, and names memory of its own and of its
//! caller: it must stay where it is until that call, by whichever system call
//! or submission, is over.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use landfall_placement::{Ecn, Peer};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::UdpConfig;
use crate::capability::{Capabilities, Feature};
use crate::exchange::{MessageHeader, control_len, set_control, set_name, set_pieces};
use crate::inet::{Control, RawAddress, Received, enable_ecn, grow_buffers, set_option};

/// Whether other sockets are bound to the same address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// None is.
    Alone,
    /// None is yet: the first of a group.
    First,
    /// Others of this user are.
    Joining,
}

/// Opens the socket and finds out what works, in the name of this driver.
pub(crate) fn open(
    config: &UdpConfig,
    driver: &'static str,
    sharing: Sharing,
) -> io::Result<(Socket, Capabilities)> {
    let domain = Domain::for_address(config.bind);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    let mut found = Capabilities::of(driver);
    if domain == Domain::IPV6 {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    let share =
        |socket: &Socket| set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
    if sharing == Sharing::Joining {
        share(&socket)?;
    }
    let is_group = config.bind.ip().is_multicast();
    if is_group {
        // Each socket of the host that has joined gets its copy; the port is nobody's own.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&SockAddr::from(config.bind))?;
    if is_group {
        join(&socket, config)?;
    }
    if sharing == Sharing::First {
        // Not before it is bound: a port that is somebody else's is refused, sharing or not.
        share(&socket)?;
    }
    grow_buffers(socket.as_raw_fd(), config.socket_buffer);
    if config.discover {
        probe_only(socket.as_raw_fd(), domain == Domain::IPV6)?;
    }
    found.add(Feature::DirectPlacement);
    enable_batches(&socket, config, &mut found);
    // A socket of IPv6 talks to peers of IPv4 too.
    enable_ecn(socket.as_raw_fd(), (true, domain == Domain::IPV6), &mut found);
    Ok((socket, found))
}

/// Has the kernel join the group that the socket is bound to.
fn join(socket: &Socket, config: &UdpConfig) -> io::Result<()> {
    match config.bind {
        SocketAddr::V4(group) => {
            let interface = config.interface.unwrap_or(Ipv4Addr::UNSPECIFIED);
            // Else it would hear every group that anybody on this host has joined.
            set_option(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
            socket.join_multicast_v4(group.ip(), &interface)
        }
        SocketAddr::V6(group) => socket.join_multicast_v6(group.ip(), group.scope_id()),
    }
}

/// Nothing is fragmented, and what the kernel has learned of the way is not asked: ICMP
/// messages can be forged, and a way that swallows them is as common.
fn probe_only(fd: RawFd, ipv6: bool) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    if ipv6 {
        let probe = libc::IPV6_PMTUDISC_PROBE;
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
    }
    Ok(())
}

fn enable_batches(socket: &Socket, config: &UdpConfig, found: &mut Capabilities) {
    let fd = socket.as_raw_fd();
    if !config.batch {
        found.lack(Feature::BatchedSend, "switched off by the configuration");
        found.lack(Feature::BatchedReceive, "switched off by the configuration");
        return;
    }
    // Zero switches nothing on, but only a kernel that knows the option takes it.
    match set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0) {
        Ok(()) => found.add(Feature::BatchedSend),
        Err(error) => found.lack(
            Feature::BatchedSend,
            format!("the kernel refused UDP_SEGMENT ({error}); Linux 4.18 or later has it"),
        ),
    }
    match set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1) {
        Ok(()) => found.add(Feature::BatchedReceive),
        Err(error) => found.lack(
            Feature::BatchedReceive,
            format!("the kernel refused UDP_GRO ({error}); Linux 5.0 or later has it"),
        ),
    }
}

/// The device refused a batch.
pub(crate) fn lack_batched_send(found: &mut Capabilities, error: &io::Error) {
    found.lack(
        Feature::BatchedSend,
        format!("the route's device refused a segmented send ({error})"),
    );
}

/// Where the socket can be reached.
pub(crate) fn bound_to(socket: &Socket) -> io::Result<SocketAddr> {
    socket
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("the UDP socket has no internet address"))
}

/// The header of a receive, with room for all that the kernel may say.
#[derive(Debug)]
pub(crate) struct ReceiveHeader {
    header: MessageHeader,
    address: RawAddress,
    control: Control,
}

/// What the kernel told about one receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) len: usize,
    pub(crate) from: Peer,
    /// Some of it found no room.
    pub(crate) truncated: bool,
    pub(crate) control: Received,
}

impl ReceiveHeader {
    pub(crate) const fn new() -> Self {
        Self {
            header: MessageHeader::EMPTY,
            address: RawAddress::unspecified(),
            control: Control::empty(),
        }
    }

    /// Ready to receive into these pieces.
    pub(crate) fn prepare(&mut self, pieces: &mut [libc::iovec]) -> *mut libc::msghdr {
        self.address = RawAddress::unspecified();
        self.header = MessageHeader::EMPTY;
        let header = &mut self.header.0;
        set_name(header, (&raw mut self.address).cast(), RawAddress::LEN);
        set_pieces(header, pieces.as_mut_ptr(), pieces.len());
        set_control(header, self.control.as_mut_ptr(), Control::LEN);
        &raw mut self.header.0
    }

    /// What the kernel told about a receive of `len` bytes.
    pub(crate) fn message(&self, len: usize) -> Message {
        Message {
            len,
            from: self.address.to_socket().map_or(Peer::Unaddressed, Peer::Socket),
            truncated: self.header.0.msg_flags & libc::MSG_TRUNC != 0,
            control: self.control.received(control_len(&self.header.0)),
        }
    }
}

/// The header of a send.
#[derive(Debug)]
pub(crate) struct SendHeader {
    header: MessageHeader,
    address: RawAddress,
    control: Control,
}

/// How and to whom one call sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// Nobody: to the peer that the socket is connected to.
    pub(crate) to: Option<std::net::SocketAddr>,
    /// The length of each unit but the last, if there are several.
    pub(crate) unit_len: Option<u16>,
    pub(crate) ecn: Ecn,
    /// The socket is of family IPv6, whatever the address is.
    pub(crate) ipv6: bool,
}

impl SendHeader {
    pub(crate) const fn new() -> Self {
        Self {
            header: MessageHeader::EMPTY,
            address: RawAddress::unspecified(),
            control: Control::empty(),
        }
    }

    /// Ready to send these pieces.
    pub(crate) fn prepare(
        &mut self,
        pieces: &mut [libc::iovec],
        sending: &Sending,
    ) -> *const libc::msghdr {
        self.header = MessageHeader::EMPTY;
        let header = &mut self.header.0;
        if let Some(to) = sending.to {
            let (address, len) = RawAddress::new(to, sending.ipv6);
            self.address = address;
            set_name(header, (&raw mut self.address).cast(), len);
        }
        set_pieces(header, pieces.as_mut_ptr(), pieces.len());
        let control_len = self.control.for_send(sending.unit_len, sending.ecn, sending.ipv6);
        set_control(header, self.control.as_mut_ptr(), control_len);
        &raw const self.header.0
    }
}
