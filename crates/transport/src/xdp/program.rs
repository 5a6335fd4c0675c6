//! The program that hands the frames of a path to a socket and leaves all
//! others to the kernel, loaded by `bpf(2)`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use landfall_inet::{ethernet, vlan};

use super::Framing;
use crate::bpf::{self, Instruction, ProgramKind, instruction};

/// Numbers of `linux/bpf.h`.
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// The program is content with frames in several parts.
const XDP_HAS_FRAGS: u32 = 1 << 5;
const REDIRECT_MAP: i32 = 51;
const PASS: i32 = 2;
const PSEUDO_MAP_FD: u8 = 1;
/// Jumps (RFC 9669, 4.3): if the word is not equal, and if one pointer is behind
/// another.
const MUST_BE: u8 = 0x56;
const IS_SHORT: u8 = 0x2d;
/// If it is, and if it has one of these bits; and the bits that both have.
const IS: u8 = 0x16;
const HAS_BITS: u8 = 0x45;
const AND: u8 = 0x57;

/// Numbers of `linux/if_link.h`: where the program shall run.
pub(super) const BEFORE_THE_STACK: u32 = 1 << 1;
pub(super) const IN_THE_DRIVER: u32 = 1 << 2;

/// A map from queues to sockets, for the program to redirect through.
#[derive(Debug)]
pub(super) struct Map(OwnedFd);

impl Map {
    /// A map that has an entry for this queue, and for all before it.
    pub(super) fn new(queue: u32) -> io::Result<Self> {
        bpf::map(MAP_TYPE_XSKMAP, 4, 4, queue.saturating_add(1)).map(Self)
    }

    /// From now on frames of this queue go to this socket.
    pub(super) fn set(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        #[repr(C)]
        struct Update {
            map: u32,
            _unused: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let update = Update {
            map: self.0.as_raw_fd().cast_unsigned(),
            _unused: 0,
            key: (&raw const queue) as u64,
            value: (&raw const socket) as u64,
            flags: 0,
        };
        // SAFETY: the structure is what the command reads; key and value are
        // four bytes long, as the map has it, and live through the call.
        unsafe { bpf::call(MAP_UPDATE_ELEM, &update) }.map(drop)
    }
}

/// A word of the frame, or of what the program is told.
const fn load_word(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61, (to, from), offset, 0)
}

const fn load_half(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x69, (to, from), offset, 0)
}

const fn set(register: u8, number: i32) -> Instruction {
    instruction(0xb7, (register, 0), 0, number)
}

/// Goes on only if the lower half of register 4 is this; otherwise the frame is
/// passed on. The distance is filled in later.
const fn must_be(number: i32) -> Instruction {
    instruction(MUST_BE, (4, 0), 0, number)
}

/// Hands the frames of a path to the sockets of this map. What has no socket at
/// its queue goes to the kernel, like all other frames.
fn instructions(framing: &Framing, map: RawFd) -> Vec<Instruction> {
    let mut program = vec![
        // r1 is a `struct xdp_md`: where the frame begins and ends.
        load_word(2, 1, 0),
        load_word(3, 1, 4),
        // Has it a whole header?
        instruction(0xbf, (4, 2), 0, 0),
        instruction(0x07, (4, 0), 0, 14),
        instruction(IS_SHORT, (4, 3), 0, 0),
    ];
    let checks = program.len() - 1;
    program.extend(conditions(framing));
    let end = program.len();
    program.extend([
        // redirect_map(map, queue, what to do if there is no socket)
        load_word(2, 1, 16),
        instruction(0x18, (1, PSEUDO_MAP_FD), 0, map),
        instruction(0, (0, 0), 0, 0),
        set(3, PASS),
        instruction(0x85, (0, 0), 0, REDIRECT_MAP),
        instruction(0x95, (0, 0), 0, 0),
    ]);
    let passed_on = program.len();
    program.extend([set(0, PASS), instruction(0x95, (0, 0), 0, 0)]);
    for (at, step) in program.iter_mut().enumerate().take(end).skip(checks) {
        let leaves = step.code == MUST_BE || step.code == IS_SHORT;
        if leaves && step.offset == 0 {
            // The program is a few dozen steps long.
            step.offset = (passed_on - at - 1) as i16;
        }
    }
    program
}

/// What a frame at r2 has to be; what is compared lies there in network order.
fn conditions(framing: &Framing) -> Vec<Instruction> {
    match framing {
        Framing::Payload { ethertype } => {
            let ethertype = u16::from_ne_bytes(ethertype.to_be_bytes());
            vec![load_half(4, 2, 12), must_be(i32::from(ethertype))]
        }
        Framing::Frames { station, groups } => {
            let [a, b, c, d, e, f] = *station;
            let is_station = [
                load_word(4, 2, 0),
                must_be(i32::from_ne_bytes([a, b, c, d])),
                load_half(4, 2, 4),
                must_be(i32::from(u16::from_ne_bytes([e, f]))),
            ];
            let mut steps = Vec::new();
            if *groups {
                // The first bit on the wire: over the comparison of the station.
                steps.push(instruction(0x71, (4, 2), 0, 0));
                steps.push(instruction(0x45, (4, 0), is_station.len() as i16, 1));
            }
            steps.extend(is_station);
            steps
        }
        Framing::Fragments => fragment_conditions(0),
        Framing::TaggedFragments { outer, inner } => {
            let numbers = [Some(*outer), *inner];
            let tags = numbers.iter().flatten().count() as i16 * TAG;
            let mut steps = has_whole(FRAGMENT_FIELDS + tags).to_vec();
            for (number, at) in numbers.into_iter().flatten().zip([0, TAG]) {
                steps.extend(tag_conditions(number, at));
            }
            steps.extend(fragment_conditions(tags));
            steps
        }
    }
}

/// The bytes of a tag.
const TAG: i16 = vlan::LEN as i16;
/// So much of a frame without tags is looked at.
const FRAGMENT_FIELDS: i16 = 22;

/// Has a frame this many bytes?
fn has_whole(bytes: i16) -> [Instruction; 3] {
    [
        instruction(0xbf, (4, 2), 0, 0),
        instruction(0x07, (4, 0), 0, bytes.into()),
        instruction(IS_SHORT, (4, 3), 0, 0),
    ]
}

/// A number of 16 bits as a half word that was loaded has it.
fn wire(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}

/// At this many bytes behind the stations is a tag of this VLAN, of either kind.
fn tag_conditions(number: u16, at: i16) -> [Instruction; 6] {
    [
        load_half(4, 2, 12 + at),
        instruction(IS, (4, 0), 1, wire(ethernet::SERVICE_VLAN)),
        must_be(wire(ethernet::VLAN)),
        load_half(4, 2, 14 + at),
        // Without the priority.
        instruction(AND, (4, 0), 0, wire(0x0fff)),
        must_be(wire(number)),
    ]
}

/// A fragment of IPv4 has an offset, or more follow; one of IPv6 has a header
/// of its own, first of all. The distances count the steps that are jumped over. All lies behind this
/// many bytes of tags.
fn fragment_conditions(tags: i16) -> Vec<Instruction> {
    const FRAGMENT_HEADER: i32 = 44;
    const MORE_OR_OFFSET: u16 = 0x3fff;
    // Has it the fields that are looked at?
    let mut steps = has_whole(FRAGMENT_FIELDS + tags).to_vec();
    steps.extend([
        load_half(4, 2, 12 + tags),
        instruction(MUST_BE, (4, 0), 4, wire(0x0800)),
        load_half(4, 2, 20 + tags),
        instruction(HAS_BITS, (4, 0), 1, wire(MORE_OR_OFFSET)),
        // No half word is that long: it is passed on.
        must_be(-1),
        instruction(0x05, (0, 0), 3, 0),
        must_be(wire(0x86dd)),
        instruction(0x71, (4, 2), 20 + tags, 0),
        must_be(FRAGMENT_HEADER),
    ]);
    steps
}

/// The program, loaded.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

impl Program {
    pub(super) fn load(framing: &Framing, map: &Map) -> io::Result<Self> {
        let instructions = instructions(framing, map.0.as_raw_fd());
        let kind = ProgramKind { number: PROG_TYPE_XDP, attach_type: ATTACH_TYPE_XDP };
        let loaded = bpf::load(kind, &instructions, XDP_HAS_FRAGS);
        if !matches!(&loaded, Err(error) if error.raw_os_error() == Some(libc::EINVAL)) {
            return loaded.map(Self);
        }
        // Before Linux 5.18 frames had one part.
        bpf::load(kind, &instructions, 0).map(Self)
    }

    /// Lets the program look at what an interface receives, for as long as the
    /// descriptor that this gives is open.
    pub(super) fn attach(&self, interface: u32, flags: u32) -> io::Result<OwnedFd> {
        bpf::link(&self.0, interface, ATTACH_TYPE_XDP, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a frame: handed over, or passed on.
    fn is_handed_over(framing: &Framing, frame: &[u8]) -> bool {
        let program = instructions(framing, 7);
        let mut at = 0;
        let mut compared: u64 = 0;
        for _ in 0..program.len() {
            let Instruction { code, offset, immediate, .. } = program[at];
            let field = || &frame[usize::try_from(offset).unwrap()..];
            let operand = u64::from(immediate.cast_unsigned());
            let jumps = match code {
                // The length was added just before.
                IS_SHORT => frame.len() < usize::try_from(program[at - 1].immediate).unwrap(),
                0x05 => true,
                MUST_BE => compared != operand & u64::from(u32::MAX),
                HAS_BITS => compared & operand != 0,
                IS => compared == operand & u64::from(u32::MAX),
                0x85 => return true,
                0x95 => return false,
                _ => false,
            };
            match (code, at) {
                (0x71, _) => compared = field()[0].into(),
                (AND, _) => compared &= operand,
                (0x69, _) => compared = u16::from_ne_bytes([field()[0], field()[1]]).into(),
                (0x61, 5..) if program[at].registers == 0x24 => {
                    compared = u32::from_ne_bytes(field()[..4].try_into().unwrap()).into();
                }
                _ => {}
            }
            at += 1 + if jumps { usize::try_from(offset).unwrap() } else { 0 };
        }
        panic!("a program without end");
    }

    #[test]
    fn frames_of_the_ethertype_are_handed_over() {
        let framing = Framing::Payload { ethertype: 0x88b5 };
        let frame = |ethertype: u16| [&[2; 12][..], &ethertype.to_be_bytes()].concat();
        assert!(is_handed_over(&framing, &frame(0x88b5)));
        assert!(!is_handed_over(&framing, &frame(0xb588)));
        assert!(!is_handed_over(&framing, &frame(0x88b5)[..13]));
    }

    #[test]
    fn fragments_are_handed_over_and_whole_packets_are_not() {
        let frame = |ethertype: u16, at_20: [u8; 2]| {
            let mut frame = [[2; 12].as_slice(), &ethertype.to_be_bytes(), &[0x45; 20]].concat();
            frame[20..22].copy_from_slice(&at_20);
            frame
        };
        for (ethertype, at_20, expected) in [
            (0x0800, [0x20, 0], true),
            (0x0800, [0, 1], true),
            (0x0800, [0x3f, 0xff], true),
            (0x0800, [0, 0], false),
            (0x0800, [0x40, 0], false),
            (0x86dd, [44, 64], true),
            (0x86dd, [17, 64], false),
            (0x86dd, [0, 44], false),
            (0x0806, [0x20, 44], false),
        ] {
            let frame = frame(ethertype, at_20);
            let said = is_handed_over(&Framing::Fragments, &frame);
            assert_eq!(said, expected, "{ethertype:#x} {at_20:02x?}");
            assert!(!is_handed_over(&Framing::Fragments, &frame[..21]));
        }
    }

    #[test]
    fn fragments_of_a_vlan_are_handed_over_and_those_of_others_are_not() {
        let frame = |tags: &[(u16, u16)], at_20: [u8; 2]| {
            let mut frame = vec![2; 12];
            for (kind, control) in tags {
                frame.extend([kind.to_be_bytes(), control.to_be_bytes()].concat());
            }
            frame.extend([0x08, 0, 0x45, 0, 0, 40, 0, 1]);
            frame.extend(at_20);
            frame.extend([0; 16]);
            frame
        };
        const MORE: [u8; 2] = [0x20, 0];
        let of = |outer, inner| Framing::TaggedFragments { outer, inner };
        for (framing, tags, at_20, expected) in [
            (of(5, None), &[(0x8100, 5)][..], MORE, true),
            (of(5, None), &[(0x8100, 0xe005)], MORE, true),
            (of(5, None), &[(0x88a8, 5)], MORE, true),
            (of(5, None), &[(0x8100, 6)], MORE, false),
            (of(5, None), &[(0x8100, 5)], [0, 0], false),
            (of(5, None), &[], MORE, false),
            (of(5, None), &[(0x8100, 5), (0x8100, 7)], MORE, false),
            (of(5, Some(7)), &[(0x88a8, 5), (0x8100, 7)], MORE, true),
            (of(5, Some(7)), &[(0x8100, 0x2005), (0x8100, 0x4007)], MORE, true),
            (of(5, Some(7)), &[(0x88a8, 7), (0x8100, 5)], MORE, false),
            (of(5, Some(7)), &[(0x88a8, 5)], MORE, false),
            (of(5, Some(7)), &[(0x88a8, 5), (0x8100, 7)], [0x40, 0], false),
        ] {
            let frame = frame(tags, at_20);
            assert_eq!(is_handed_over(&framing, &frame), expected, "{framing:?} {tags:x?}");
            assert!(!is_handed_over(&framing, &frame[..21 + 4 * tags.len()]), "cut");
        }
    }

    #[test]
    fn frames_to_the_station_are_handed_over_and_those_to_groups_if_wanted() {
        let station = [0x82, 1, 2, 3, 0x84, 5];
        let frame = |to: [u8; 6]| [&to[..], &[7; 8]].concat();
        for groups in [false, true] {
            let framing = Framing::Frames { station, groups };
            assert!(is_handed_over(&framing, &frame(station)));
            for byte in 0..6 {
                let mut other = station;
                other[byte] ^= 2;
                assert!(!is_handed_over(&framing, &frame(other)), "byte {byte}");
            }
            for group in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1]] {
                assert_eq!(is_handed_over(&framing, &frame(group)), groups);
            }
        }
    }
}
