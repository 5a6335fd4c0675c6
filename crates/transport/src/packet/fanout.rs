//! Several sockets of one path, each for an engine of its own (`PACKET_FANOUT`, `packet(7)`):
//! who sent a frame decides which of them gets it, so that all that comes from one peer comes
//! to one engine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use landfall_inet::flow::SPREAD;
use landfall_inet::{ethernet, ipv4, protocol};
use socket2::Socket;

use super::socket::set_option_to;
use super::step::{Step, Targets, instruction};
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
    /// The flow that they belong to, for a station of ours ([`landfall_inet::flow`]).
    Flow,
    /// The two addresses of an IP packet: so all its fragments come to one member, and so does all
    /// else between the two. What is no IP comes to the first member.
    Addresses,
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
            Self::Flow => return flow_program(Headers::OfSocket),
            Self::Addresses => return addresses_program(Headers::OfSocket),
        };
        let mut program = vec![Step::half(half.cast_unsigned()).alone()];
        for word in words {
            program.extend(xor(Step::word(word.cast_unsigned())).map(|step| step.alone()));
        }
        program.extend(SPREADING);
        program
    }
}

/// A becomes what it was, joined by XOR with what is loaded.
const fn xor(load: Step) -> [Step; 3] {
    let x_is_a = Step::plain(libc::BPF_MISC | libc::BPF_TAX, 0);
    let a_xor_x = Step::plain(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0);
    [x_is_a, load, a_xor_x]
}

/// The end of each program: of the product the upper half counts.
const SPREADING: [libc::sock_filter; 3] = [
    instruction(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, SPREAD),
    instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
    instruction(libc::BPF_RET | RETURN_A, 0),
];

/// Where a program finds the headers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    /// The kernel knows what a packet socket's frame carries, and where it begins.
    OfSocket,
    /// At the start of the frame, which has no tag.
    OfFrame,
}

impl Headers {
    /// A place in the network header.
    const fn net(self, at: u32) -> u32 {
        match self {
            Self::OfSocket => libc::SKF_NET_OFF.cast_unsigned() + at,
            Self::OfFrame => ethernet::LEN as u32 + at,
        }
    }

    const fn ethertype(self) -> Step {
        match self {
            Self::OfSocket => Step::ancillary(libc::SKF_AD_PROTOCOL),
            Self::OfFrame => Step::half(ETHERTYPE),
        }
    }
}

/// This many words from there on, joined.
fn words(first: u32, count: u32) -> impl Iterator<Item = Step> {
    let more = (1..count).flat_map(move |nth| xor(Step::word(first + 4 * nth)));
    std::iter::once(Step::word(first)).chain(more)
}

/// The program by which packets are spread by their addresses. Ports are not looked at: only
/// the first fragment of a packet has them.
pub(crate) fn addresses_program(headers: Headers) -> Vec<libc::sock_filter> {
    let addresses = |first, count| words(headers.net(first), count).chain([Step::go_on()]);
    let four: Vec<_> = addresses(12, 2).collect();
    let to_six = Step::skip_if(ethernet::IPV6.into(), four.len() + 1);
    let must_be_four = Step::must_be(ethernet::IPV4.into());
    let steps = [headers.ethertype(), to_six, must_be_four].into_iter();
    finished(&steps.chain(four).chain(addresses(8, 8)).collect::<Vec<_>>())
}

/// With the end of each program, and another one for what is no member's.
fn finished(steps: &[Step]) -> Vec<libc::sock_filter> {
    let targets = Targets { accept: steps.len(), reject: steps.len() + SPREADING.len() };
    let assembled = steps.iter().enumerate().map(|(at, step)| step.assemble(at, &targets));
    let first_member = instruction(libc::BPF_RET | libc::BPF_K, 0);
    assembled.chain(SPREADING).chain([first_member]).collect()
}

/// The program by which flows are spread, as [`landfall_inet::flow::recipient`] says: of a fragment, and of all
/// that has no flow, the first member is to see to it.
pub(crate) fn flow_program(headers: Headers) -> Vec<libc::sock_filter> {
    const IPV4_WITHOUT_OPTIONS: u32 = 0x45;
    let net = |at: u32| headers.net(at);
    let (tcp, udp) = (u32::from(protocol::TCP), u32::from(protocol::UDP));
    // Addresses lie behind one another, and so do the ports behind them in IPv4.
    let joined = |from: u32, count: u32, ports: u32| {
        let ports = xor(Step::word(net(ports)));
        words(net(from), count).chain(ports).chain([Step::go_on()])
    };
    let port = |at: u32| [Step::half(net(at)), Step::go_on()];
    let of_protocol = |steps: usize| [Step::skip_if(udp, steps + 1), Step::must_be(tcp)];
    let (four, six): (Vec<_>, Vec<_>) = (joined(12, 2, 20).collect(), joined(8, 8, 40).collect());
    let mut of_four = vec![
        Step::byte(net(0)),
        Step::must_be(IPV4_WITHOUT_OPTIONS),
        Step::half(net(6)),
        Step::must_lack((ipv4::MORE_FRAGMENTS | ipv4::OFFSET).into()),
        Step::byte(net(9)),
    ];
    of_four.extend(of_protocol(four.len()));
    of_four.extend(four);
    of_four.extend(port(22));
    let mut steps =
        vec![headers.ethertype(), Step::skip_if(ethernet::IPV6.into(), of_four.len() + 1)];
    steps.push(Step::must_be(ethernet::IPV4.into()));
    steps.extend(of_four);
    steps.push(Step::byte(net(6)));
    steps.extend(of_protocol(six.len()));
    steps.extend(six);
    steps.extend(port(42));
    finished(&steps)
}

/// The program by which datagrams are spread over this many sockets of one port, by the address
/// and port of UDP that sent them: see [`member_of_socket`]. A socket of IPv6 hears peers of
/// IPv4 too, so both are told apart. What it gives is the number of a socket.
pub(crate) fn program_of_sockets(members: u32) -> Vec<libc::sock_filter> {
    /// Of the first byte: set in the version 6, and not in 4.
    const IS_SIX: u32 = 0x20;
    let net = |at: u32| libc::SKF_NET_OFF.cast_unsigned() + at;
    let [product, half, end] = SPREADING;
    let modulo = instruction(libc::BPF_ALU | BPF_MOD | libc::BPF_K, members);
    let spread = |port: &[Step], address: &[u32]| -> Vec<libc::sock_filter> {
        let words = address.iter().flat_map(|at| xor(Step::word(net(*at))));
        let steps = port.iter().copied().chain(words).map(|step| step.alone());
        steps.chain([product, half, modulo, end]).collect()
    };
    let four = spread(&[Step::header_length(net(0)), Step::half_behind_header(net(0))], &[12]);
    let six = spread(&[Step::half(net(40))], &[8, 12, 16, 20]);
    // Neither of them jumps to an end.
    let nowhere = Targets { accept: 0, reject: 0 };
    let to_six = Step::skip_if_set(IS_SIX, four.len()).assemble(1, &nowhere);
    [Step::byte(net(0)).alone(), to_six].into_iter().chain(four).chain(six).collect()
}

/// A number of `linux/bpf_common.h`.
const BPF_MOD: u32 = 0x90;

/// Which of this many sockets of one port gets what this one sends: what the kernel is told to
/// compute.
pub(crate) fn member_of_socket(from: SocketAddr, members: usize) -> usize {
    let address = match from.ip().to_canonical() {
        IpAddr::V4(address) => u32::from(address),
        IpAddr::V6(address) => {
            let words = address.octets();
            let words = words.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
            words.fold(0, |mixed, word| mixed ^ word)
        }
    };
    let mixed = address ^ u32::from(from.port());
    (mixed.wrapping_mul(SPREAD) >> 16) as usize % members
}

/// Where a frame without a tag says what it carries.
const ETHERTYPE: u32 = 12;

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
    let group = spread_deaf(sockets, by)?;
    sockets.iter().for_each(|socket| empty(socket));
    Ok(group)
}

/// The same for sockets that have heard nothing yet.
pub(crate) fn spread_deaf(sockets: &[&Socket], by: SpreadBy) -> Result<Arc<[Socket]>, OpenError> {
    let mut group = None;
    for socket in sockets {
        let fd = socket.as_raw_fd();
        let joined = match group {
            None => found(fd, by).map(|number| group = Some(number)),
            Some(number) => join(fd, libc::PACKET_FANOUT_CBPF, number),
        };
        joined.map_err(OpenError::system("spread frames over sockets (PACKET_FANOUT)"))?;
    }
    let all: io::Result<_> = sockets.iter().map(|socket| socket.try_clone()).collect();
    all.map_err(OpenError::system("hold the sockets of a group"))
}

/// Until it joined, a socket heard all: what only one engine may hear, several would. To them
/// it is lost on the way.
pub(crate) fn empty(socket: &Socket) {
    for _ in 0..MOST_LOST {
        if socket.recv(&mut []).is_err() {
            return;
        }
    }
}

/// Begins a group of sockets of which one is filled, and the next when that has no room. Returns
/// its number.
pub(crate) fn begin_in_turn(socket: &Socket) -> Result<u16, OpenError> {
    let fd = socket.as_raw_fd();
    join(fd, libc::PACKET_FANOUT_ROLLOVER | libc::PACKET_FANOUT_FLAG_UNIQUEID, 0)
        .and_then(|()| number_of(fd))
        .map_err(OpenError::system("begin a group of rings (PACKET_FANOUT)"))
}

/// This socket is one of them.
pub(crate) fn join_in_turn(socket: &Socket, group: u16) -> Result<(), OpenError> {
    join(socket.as_raw_fd(), libc::PACKET_FANOUT_ROLLOVER, group)
        .map_err(OpenError::system("join a group of rings (PACKET_FANOUT)"))
}

/// Begins a group with this socket, with a number that no other has. Returns the number.
fn found(fd: RawFd, by: SpreadBy) -> io::Result<u16> {
    join(fd, libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_UNIQUEID, 0)?;
    let number = number_of(fd)?;
    let program = by.program();
    let len = program.len() as libc::c_ushort;
    // The kernel only reads the program.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program has `len` instructions, and lives through the call.
    unsafe { set_option_to(fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &program)? };
    Ok(number)
}

fn join(fd: RawFd, kind: libc::c_uint, number: u16) -> io::Result<()> {
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
    use landfall_inet::flow;

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

    /// What the kernel's interpreter makes of a frame, whose headers are at its start.
    fn run(program: &[libc::sock_filter], frame: &[u8]) -> u32 {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            let bytes = |len: usize| frame.get(k as usize..k as usize + len);
            let branch = |taken: bool| usize::from(if taken { jt } else { jf });
            at += 1;
            match u32::from(code) {
                // A load behind the end ends the program.
                0x20 => match bytes(4) {
                    Some(bytes) => a = u32::from_be_bytes(bytes.try_into().unwrap()),
                    None => return 0,
                },
                0x28 => match bytes(2) {
                    Some(bytes) => a = u16::from_be_bytes(bytes.try_into().unwrap()).into(),
                    None => return 0,
                },
                0x30 => match bytes(1) {
                    Some(bytes) => a = bytes[0].into(),
                    None => return 0,
                },
                0x07 => x = a,
                0xac => a ^= x,
                0x24 => a = a.wrapping_mul(k),
                0x74 => a >>= k,
                0x15 => at += branch(a == k),
                0x45 => at += branch(a & k != 0),
                0x06 => return k,
                0x16 => return a,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn fragments_of_one_packet_come_to_one_member_whatever_they_carry() {
        let program = addresses_program(Headers::OfFrame);
        let mut random = landfall_placement::Random::from_number(3);
        let mut counts = [0; 4];
        for nth in 0..1_000 {
            let is_v6 = nth % 2 == 1;
            let mut frame: Vec<u8> = (0..8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
            let ethertype = if is_v6 { ethernet::IPV6 } else { ethernet::IPV4 };
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            let addresses = if is_v6 { 22..54 } else { 26..34 };
            let member = run(&program, &frame) % 4;
            counts[member as usize] += 1;
            // Another fragment: other fields and other payload.
            for (at, byte) in frame.iter_mut().enumerate().skip(14) {
                if !addresses.contains(&at) {
                    *byte = random.below(256) as u8;
                }
            }
            assert_eq!(run(&program, &frame) % 4, member, "IPv6: {is_v6}");
            frame.truncate(addresses.end);
            assert_eq!(run(&program, &frame) % 4, member, "nothing behind the addresses");
        }
        assert!(counts.iter().all(|count| (150..350).contains(count)), "{counts:?}");
        assert_eq!(run(&program, &[0x88; 60]), 0, "no IP");
    }

    #[test]
    fn the_kernel_and_the_engines_agree_whose_a_frame_is() {
        let program = flow_program(Headers::OfFrame);
        let mut random = landfall_placement::Random::from_number(7);
        let (mut told, mut of_first) = (0, 0);
        for _ in 0..20_000 {
            let mut frame: Vec<u8> =
                (0..13).flat_map(|_| random.next_u64().to_le_bytes()).collect();
            let is_v6 = random.below(2) == 1;
            let kinds = [protocol::TCP, protocol::UDP, protocol::ICMP4, protocol::FRAGMENT];
            let kind = kinds[random.below(4) as usize];
            let ethertype = if is_v6 { ethernet::IPV6 } else { ethernet::IPV4 };
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            if is_v6 {
                (frame[14], frame[20]) = (0x60, kind);
            } else {
                (frame[14], frame[23]) = (0x45, kind);
                // It is longer than its headers.
                frame[16] |= 1;
                // Some are fragments.
                frame[20] &= if random.below(4) == 0 { 0x3f } else { 0x40 };
                frame[21] = if frame[20] & 0x3f == 0 { 0 } else { frame[21] };
            }
            let len = 54 + random.below(50) as usize;
            for members in [1, 2, 3, 7] {
                let said = run(&program, &frame[..len]) % u32::from(members);
                match flow::recipient(&frame[..len], members) {
                    Some(flow::Recipient::Member(member)) => {
                        assert_eq!(said, u32::from(member), "{:02x?}", &frame[..len]);
                        told += 1;
                    }
                    _ => {
                        assert_eq!(said, 0, "{:02x?}", &frame[..len]);
                        of_first += 1;
                    }
                }
            }
        }
        assert!(told > 10_000 && of_first > 10_000, "{told} and {of_first}");
    }
}
