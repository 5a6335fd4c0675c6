//! A UDP socket with all that the kernel offers switched on, as far as it is there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::UdpConfig;
use crate::capability::{Capabilities, Feature};
use crate::inet::{enable_ecn, grow_buffers, set_option};

/// Opens the socket and finds out what works, in the name of this driver.
pub(crate) fn open(config: &UdpConfig, driver: &'static str) -> io::Result<(Socket, Capabilities)> {
    let domain = Domain::for_address(config.bind);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    let mut found = Capabilities::of(driver);
    if domain == Domain::IPV6 {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(config.bind))?;
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
