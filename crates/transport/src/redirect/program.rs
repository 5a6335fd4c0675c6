//! The two programs, as instructions, and the little that is needed to write them: marks that
//! jumps lead to.

use std::os::fd::RawFd;

use landfall_inet::{ethernet, ipv4, protocol, tcp};

use crate::bpf::{Instruction, instruction};
use crate::packet::{BEFORE_FRAGMENT, FRAGMENT};

/// `struct __sk_buff` of `linux/bpf.h`: where a program reads what the kernel knows of a frame.
mod field {
    pub(super) const LEN: i16 = 0;
    pub(super) const PACKET_TYPE: i16 = 4;
    pub(super) const VLAN_PRESENT: i16 = 20;
}

/// Functions of the kernel's, in the numbers of `linux/bpf.h`.
mod helper {
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const REDIRECT: i32 = 23;
    pub(super) const CHECK_MTU: i32 = 163;
}

/// `TCX_NEXT`: on to the next program, and then the usual way.
const USUAL_WAY: i32 = -1;
/// `BPF_MTU_CHK_SEGS`: of a super-packet the segments are looked at.
const OF_SEGMENTS: i32 = 1;
/// `BPF_F_INGRESS`: as if the frame had arrived there.
const AS_ARRIVED: i32 = 1;
/// `PACKET_OTHERHOST` of `linux/if_packet.h`.
const FOR_ANOTHER_STATION: i32 = 3;
const PSEUDO_MAP_FD: u8 = 1;

const IPV4: i32 = ethernet::IPV4 as i32;
const IPV6: i32 = ethernet::IPV6 as i32;
const TCP: i32 = protocol::TCP as i32;
const SYN: i32 = tcp::Flags::SYN.0 as i32;
/// Of IPv4's half word of flags and offset.
const MORE_OR_OFFSET: i32 = (ipv4::MORE_FRAGMENTS | ipv4::OFFSET) as i32;

/// The registers: of results, of arguments, and those that survive a call.
const R0: u8 = 0;
const FIRST: u8 = 1;
const FRAME: u8 = 6;
const HEADER_LEN: u8 = 7;
const STACK: u8 = 10;

/// What a jump leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Ipv4,
    Ipv6,
    /// It is no first segment of TCP.
    Measured,
    /// The frame is looked at no further.
    Chosen,
    /// It is handed over, counted or not.
    Handed,
    /// It goes the usual way.
    Left,
}

/// Conditions of jumps (RFC 9669, 4.3), about a number.
#[derive(Clone, Copy, Debug)]
enum If {
    Equal = 0x15,
    NotEqual = 0x55,
    HasBits = 0x45,
}

/// A program that is being written.
#[derive(Debug, Default)]
struct Assembly {
    steps: Vec<Instruction>,
    jumps: Vec<(usize, Mark)>,
    marks: Vec<(Mark, usize)>,
}

impl Assembly {
    fn step(&mut self, code: u8, registers: (u8, u8), offset: i16, immediate: i32) {
        self.steps.push(instruction(code, registers, offset, immediate));
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.step(0xbf, (to, from), 0, 0);
    }

    fn set(&mut self, register: u8, number: i32) {
        self.step(0xb7, (register, 0), 0, number);
    }

    /// Loads a field of what the kernel knows of the frame.
    fn field(&mut self, to: u8, field: i16) {
        self.step(0x61, (to, FRAME), field, 0);
    }

    /// Loads a byte of the frame into register 0. One that ends before it goes the usual way.
    fn byte(&mut self, at: i32) {
        self.step(0x30, (R0, 0), 0, at);
    }

    /// The same for two bytes, as the network has them.
    fn half(&mut self, at: i32) {
        self.step(0x28, (R0, 0), 0, at);
    }

    fn jump(&mut self, condition: If, number: i32, to: Mark) {
        self.jumps.push((self.steps.len(), to));
        self.step(condition as u8, (R0, 0), 0, number);
    }

    fn go(&mut self, to: Mark) {
        self.jumps.push((self.steps.len(), to));
        self.step(0x05, (0, 0), 0, 0);
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.push((mark, self.steps.len()));
    }

    fn call(&mut self, helper: i32) {
        self.step(0x85, (0, 0), 0, helper);
    }

    /// The address of a word of the stack.
    fn address(&mut self, register: u8, at: i16) {
        self.copy(register, STACK);
        self.step(0x07, (register, 0), 0, at.into());
    }

    /// A word of the stack becomes this number.
    fn store(&mut self, at: i16, number: i32) {
        self.step(0x62, (STACK, 0), at, number);
    }

    /// Adds register 1 to a counter that register 0 has the address of, in one piece.
    fn add(&mut self, at: i16) {
        self.step(0xdb, (R0, FIRST), at, 0);
    }

    /// Counts the frame, and hands it to an interface. All others are left alone.
    fn hand_over(
        mut self,
        counters: RawFd,
        key: i32,
        interface: i32,
        how: i32,
    ) -> Vec<Instruction> {
        const KEY: i16 = -4;
        self.mark(Mark::Chosen);
        self.store(KEY, key);
        self.step(0x18, (FIRST, PSEUDO_MAP_FD), 0, counters);
        self.step(0, (0, 0), 0, 0);
        self.address(2, KEY);
        self.call(helper::MAP_LOOKUP_ELEM);
        self.jump(If::Equal, 0, Mark::Handed);
        self.set(FIRST, 1);
        self.add(0);
        self.field(FIRST, field::LEN);
        self.add(8);
        self.mark(Mark::Handed);
        self.set(FIRST, interface);
        self.set(2, how);
        self.call(helper::REDIRECT);
        self.step(0x95, (0, 0), 0, 0);
        self.mark(Mark::Left);
        self.set(R0, USUAL_WAY);
        self.step(0x95, (0, 0), 0, 0);
        self.finish()
    }

    /// Says how far jumps lead: always forward, and a few dozen steps at most.
    fn finish(mut self) -> Vec<Instruction> {
        for (at, mark) in self.jumps {
            let target = self.marks.iter().find(|(name, _)| *name == mark);
            let target = target.map_or(self.steps.len() - 1, |(_, target)| *target);
            self.steps[at].offset = target.saturating_sub(at + 1) as i16;
        }
        self.steps
    }
}

/// Which counter is whose.
pub(super) const OUT: i32 = 0;
/// See [`OUT`].
pub(super) const IN: i32 = 1;

/// What the upper interface sends: to the lower one what that can carry, a super-packet by its
/// segments. The first segments of connections are left, for they say how long others may be.
pub(super) fn outwards(counters: RawFd, lower: i32) -> Vec<Instruction> {
    const MTU: i16 = -8;
    let mut program = Assembly::default();
    program.copy(FRAME, FIRST);
    program.half(12);
    program.jump(If::Equal, IPV4, Mark::Ipv4);
    program.jump(If::NotEqual, IPV6, Mark::Measured);
    program.byte(20);
    program.jump(If::NotEqual, TCP, Mark::Measured);
    program.byte(14 + 40 + 13);
    program.jump(If::HasBits, SYN, Mark::Left);
    program.go(Mark::Measured);
    program.mark(Mark::Ipv4);
    program.byte(23);
    program.jump(If::NotEqual, TCP, Mark::Measured);
    // The length of IPv4's header, in words.
    program.byte(14);
    program.step(0x57, (R0, 0), 0, 0xf);
    program.step(0x67, (R0, 0), 0, 2);
    program.copy(HEADER_LEN, R0);
    program.step(0x50, (R0, HEADER_LEN), 0, 14 + 13);
    program.jump(If::HasBits, SYN, Mark::Left);
    program.mark(Mark::Measured);
    program.store(MTU, 0);
    program.copy(FIRST, FRAME);
    program.set(2, lower);
    program.address(3, MTU);
    program.set(4, 0);
    program.set(5, OF_SEGMENTS);
    program.call(helper::CHECK_MTU);
    program.jump(If::NotEqual, 0, Mark::Left);
    program.hand_over(counters, OUT, lower, 0)
}

/// What arrives at the lower interface: to the upper one, as if it had arrived there, unless it is
/// a fragment or may be one ([`Filter::fragments`](crate::packet::Filter::fragments)), of a VLAN or
/// for another station.
pub(super) fn inwards(counters: RawFd, upper: i32) -> Vec<Instruction> {
    let mut program = Assembly::default();
    program.copy(FRAME, FIRST);
    program.field(R0, field::PACKET_TYPE);
    program.jump(If::Equal, FOR_ANOTHER_STATION, Mark::Left);
    program.field(R0, field::VLAN_PRESENT);
    program.jump(If::NotEqual, 0, Mark::Left);
    program.half(12);
    program.jump(If::Equal, IPV6, Mark::Ipv6);
    program.jump(If::NotEqual, IPV4, Mark::Chosen);
    program.half(20);
    program.jump(If::HasBits, MORE_OR_OFFSET, Mark::Left);
    program.go(Mark::Chosen);
    program.mark(Mark::Ipv6);
    program.byte(20);
    for header in BEFORE_FRAGMENT.into_iter().chain([FRAGMENT]) {
        program.jump(If::Equal, header.cast_signed(), Mark::Left);
    }
    program.hand_over(counters, IN, upper, AS_ARRIVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_forward_to_where_their_mark_is() {
        for program in [outwards(7, 3), inwards(7, 4)] {
            let last = program.len() - 1;
            assert_eq!(program[last].code, 0x95, "it ends");
            assert_eq!(program[last - 1].immediate, USUAL_WAY);
            for (at, step) in program.iter().enumerate() {
                if matches!(step.code, 0x05 | 0x15 | 0x45 | 0x55) {
                    let target = at + 1 + usize::try_from(step.offset).unwrap();
                    assert!(target < last, "step {at} leads behind the end");
                }
            }
        }
    }
}
