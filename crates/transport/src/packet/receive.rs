//! Receiving: one frame a call, into the guessed span where the engine has a guess.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use landfall_placement::{Ecn, Engine, Instant, Peer};

use super::address::LinkAddress;
use super::control::{Auxiliary, Control};
use super::driver::PacketDriver;
use super::vnet::{self, VNET_HEADER};
use crate::exchange::{Arrival, Turn};

/// While frames keep coming, so many are taken in one turn.
const FRAMES_PER_TURN: usize = 16;
/// And no more than so many bytes, so that acknowledgements leave.
const BYTES_PER_TURN: usize = 256 << 10;

/// What one `recvmsg` brought.
enum Received {
    /// The socket is empty.
    Nothing,
    /// A frame that has no form that could be handed over; it is gone.
    Unreadable,
    Frame(Frame),
}

struct Frame {
    /// With the virtio-net header.
    len: usize,
    from: LinkAddress,
    truncated: bool,
    auxiliary: Auxiliary,
}

/// Receives what came and hands it to the engine, frame by frame: each is
/// placed by a guess that knows of those before. Gives the number of units.
///
/// The first frame after a silence is taken alone, since looking for another
/// one would only delay the answer to it.
pub(super) fn receive<E: Engine>(
    driver: &mut PacketDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<u32> {
    let frames = if driver.streaming { FRAMES_PER_TURN } else { 1 };
    let (mut units, mut bytes) = (0, 0);
    for _ in 0..frames {
        let posted = driver.inbox.post(engine, &mut driver.pins, None);
        let received = receive_frame(driver.socket.as_raw_fd(), posted.as_mut_slice());
        if let Ok(Received::Frame(frame)) = &received {
            driver.counters.receive_calls += 1;
            bytes += frame.len;
            units += settle(driver, engine, now, frame);
        }
        driver.pins.release();
        driver.streaming = !matches!(received?, Received::Nothing);
        if !driver.streaming {
            driver.counters.empty_calls += 1;
            break;
        }
        if bytes >= BYTES_PER_TURN {
            break;
        }
    }
    Ok(units)
}

/// Hands a frame to the engine, if it is for this path.
fn settle<E: Engine>(
    driver: &mut PacketDriver,
    engine: &mut E,
    now: Instant,
    frame: &Frame,
) -> u32 {
    let Some(arrival) = judge(driver, frame) else {
        driver.counters.malformed += 1;
        return 0;
    };
    let counters = &mut driver.counters;
    let mut turn = Turn { engine, now, pins: &mut driver.pins, counters };
    driver.inbox.settle(&mut turn, &arrival, None)
}

/// What came, if the path carries such frames.
fn judge(driver: &PacketDriver, frame: &Frame) -> Option<Arrival> {
    let header = if driver.offload { VNET_HEADER } else { 0 };
    let len = frame.len.checked_sub(header)?;
    let for_this_path = frame.from.is_for_us() && frame.auxiliary.vlan.is_none();
    if frame.truncated || !for_this_path {
        return None;
    }
    let mut told = vnet::Received::default();
    if driver.offload {
        told = vnet::read(&driver.inbox.prefix);
    } else if driver.payload_of.is_none() {
        // What the kernel knows of TCP and UDP says nothing of other protocols.
        told.verified = frame.auxiliary.verified;
    }
    let from = match driver.payload_of {
        Some(_) => frame.from.peer(),
        None => Peer::Unaddressed,
    };
    Some(Arrival {
        len,
        unit_len: len.max(1),
        from,
        ecn: Ecn::NotCapable,
        coalesced: told.coalesced,
        verified: told.verified,
    })
}

/// One `recvmsg`.
fn receive_frame(fd: RawFd, iovecs: &mut [libc::iovec]) -> io::Result<Received> {
    let mut from = LinkAddress::unspecified();
    let mut control = Control::empty();
    // SAFETY: an all-zero msghdr is a valid one that names nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut from.0).cast();
    header.msg_namelen = LinkAddress::LEN;
    header.msg_iov = iovecs.as_mut_ptr();
    header.msg_iovlen = iovecs.len();
    header.msg_control = control.as_mut_ptr();
    header.msg_controllen = Control::LEN;
    // SAFETY: the header names an address, a control buffer and a list that
    // live through the call; the list names scratch memory of the inbox and
    // lent memory that is pinned until after the call.
    let len = unsafe { libc::recvmsg(fd, &raw mut header, libc::MSG_DONTWAIT) };
    let Ok(len) = usize::try_from(len) else {
        return without_frame(io::Error::last_os_error());
    };
    Ok(Received::Frame(Frame {
        len,
        from,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        auxiliary: control.auxiliary(header.msg_controllen),
    }))
}

/// What it means that no frame came.
fn without_frame(error: io::Error) -> io::Result<Received> {
    match error.raw_os_error() {
        // An interface that is down may come up again.
        Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(Received::Nothing),
        // It was coalesced by rules that a virtio-net header has no word for.
        Some(libc::EINVAL) => Ok(Received::Unreadable),
        _ => Err(error),
    }
}
