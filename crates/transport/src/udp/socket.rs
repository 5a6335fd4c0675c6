//! A UDP socket with all that the kernel offers switched on, as far as it is there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::UdpConfig;
use crate::capability::{Capabilities, Feature};

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
    grow_buffers(&socket, config.socket_buffer);
    found.add(Feature::DirectPlacement);
    enable_batches(&socket, config, &mut found);
    enable_ecn(&socket, domain, &mut found);
    Ok((socket, found))
}

/// As large as allowed: with CAP_NET_ADMIN as asked, else up to the system's limit.
fn grow_buffers(socket: &Socket, size: usize) {
    let size = libc::c_int::try_from(size).unwrap_or(libc::c_int::MAX);
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        let fd = socket.as_raw_fd();
        if set_option(fd, libc::SOL_SOCKET, force, size).is_err() {
            // Smaller buffers cost speed, not correctness.
            let _ = set_option(fd, libc::SOL_SOCKET, plain, size);
        }
    }
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

fn enable_ecn(socket: &Socket, domain: Domain, found: &mut Capabilities) {
    let fd = socket.as_raw_fd();
    let ipv4 = set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    let ipv6 = if domain == Domain::IPV6 {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)
    } else {
        Ok(())
    };
    match ipv4.and(ipv6) {
        Ok(()) => found.add(Feature::Ecn),
        Err(error) => {
            found.lack(Feature::Ecn, format!("the kernel does not report the IP header: {error}"));
        }
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

pub(crate) fn set_option(fd: RawFd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` is an int that lives through the call, `len` is its size.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
