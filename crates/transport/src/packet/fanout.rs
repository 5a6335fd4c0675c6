//! Several sockets of one path, each for an engine of its own (`PACKET_FANOUT`, `packet(7)`):
//! who sent a frame decides which of them gets it, so that all that comes from one peer comes
//! to one engine.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use socket2::Socket;

use super::socket::set_option_to;
use super::step::{Step, instruction};
use crate::OpenError;

/// By what frames are spread over the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpreadBy {
    /// The station that sent them.
    Station,
    /// The address and port of UDP that sent them, over IPv4.
    SocketOfFour,
    /// The same over IPv6.
    SocketOfSix,
}

impl SpreadBy {
    /// By the sender's socket, of the IP version of this address.
    pub(crate) const fn socket(local: IpAddr) -> Self {
        match local {
            IpAddr::V4(_) => Self::SocketOfFour,
            IpAddr::V6(_) => Self::SocketOfSix,
        }
    }

    /// Which member gets a frame: the kernel takes what this gives modulo their number.
    ///
    /// The parts of the sender's name are joined by XOR, and the product with an odd constant
    /// (2³² divided by the golden ratio) spreads neighbours; of it the upper half counts.
    fn program(self) -> Vec<libc::sock_filter> {
        let link = |at: i32| libc::SKF_LL_OFF + at;
        let net = |at: i32| libc::SKF_NET_OFF + at;
        let (words, half) = match self {
            Self::Station => (vec![link(8)], link(6)),
            Self::SocketOfFour => (vec![net(12)], net(20)),
            Self::SocketOfSix => (vec![net(8), net(12), net(16), net(20)], net(40)),
        };
        let xor = |load: Step| {
            let x_is_a = instruction(libc::BPF_MISC | libc::BPF_TAX, 0);
            let a_xor_x = instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0);
            [x_is_a, load.alone(), a_xor_x]
        };
        let mut program = vec![Step::half(half.cast_unsigned()).alone()];
        for word in words {
            program.extend(xor(Step::word(word.cast_unsigned())));
        }
        program.push(instruction(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, SPREAD));
        program.push(instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16));
        program.push(instruction(libc::BPF_RET | RETURN_A, 0));
        program
    }
}

/// 2³² divided by the golden ratio, and odd.
const SPREAD: u32 = 0x9e37_79b1;

/// `BPF_A` of `linux/filter.h`: what is returned is in A.
const RETURN_A: u32 = 0x10;

/// A network that sends more while sockets are opened has lost more.
const MOST_LOST: usize = 1 << 16;

/// Which of this many members gets what this station sends: what the kernel is told to compute.
pub(crate) const fn member_of(station: [u8; 6], members: usize) -> usize {
    let [a, b, c, d, e, f] = station;
    let mixed = u32::from_be_bytes([c, d, e, f]) ^ u32::from_be_bytes([0, 0, a, b]);
    (mixed.wrapping_mul(SPREAD) >> 16) as usize % members
}

/// Spreads what comes over these sockets, which are bound alike. Returns them for all who use
/// one of them to hold: where one is closed, what comes is spread anew, and peers of the
/// others come to other sockets than before.
pub(crate) fn spread(sockets: &[&Socket], by: SpreadBy) -> Result<Arc<[Socket]>, OpenError> {
    let mut group = None;
    for socket in sockets {
        let fd = socket.as_raw_fd();
        let joined = match group {
            None => found(fd, by).map(|number| group = Some(number)),
            Some(number) => join(fd, number, 0),
        };
        joined.map_err(OpenError::system("spread frames over sockets (PACKET_FANOUT)"))?;
    }
    sockets.iter().for_each(|socket| empty(socket));
    let all: io::Result<_> = sockets.iter().map(|socket| socket.try_clone()).collect();
    all.map_err(OpenError::system("hold the sockets of a group"))
}

/// Until it joined, a socket heard all: what only one engine may hear, several would. To them
/// it is lost on the way.
fn empty(socket: &Socket) {
    for _ in 0..MOST_LOST {
        if socket.recv(&mut []).is_err() {
            return;
        }
    }
}

/// Begins a group with this socket, with a number that no other has. Returns the number.
fn found(fd: RawFd, by: SpreadBy) -> io::Result<u16> {
    join(fd, 0, libc::PACKET_FANOUT_FLAG_UNIQUEID)?;
    let number = number_of(fd)?;
    let program = by.program();
    let len = program.len() as libc::c_ushort;
    // The kernel only reads the program.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program has `len` instructions, and lives through the call.
    unsafe { set_option_to(fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &program)? };
    Ok(number)
}

fn join(fd: RawFd, number: u16, flag: libc::c_uint) -> io::Result<()> {
    let kind = libc::PACKET_FANOUT_CBPF | flag;
    let group = (kind << 16) | libc::c_uint::from(number);
    // SAFETY: a number points to nothing.
    unsafe { set_option_to(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &group) }
}

/// The number of the group that a socket is in.
fn number_of(fd: RawFd) -> io::Result<u16> {
    let (mut group, mut len) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: an int and its length, both of which live through the call.
    let done = unsafe {
        let (group, len) = ((&raw mut group).cast(), &raw mut len);
        libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, group, len)
    };
    // The lower half is the number, the upper one the kind.
    if done == 0 { Ok(group as u16) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_that_are_neighbours_are_spread() {
        for members in [2, 3, 4, 8] {
            let mut counts = vec![0; members];
            for last in 0..=255 {
                counts[member_of([2, 0, 0, 0, 7, last], members)] += 1;
            }
            let fair = 256 / members;
            assert!(counts.iter().all(|count| (fair / 2..fair * 2).contains(count)), "{counts:?}");
        }
        assert_eq!(member_of([0xff; 6], 1), 0);
    }
}
