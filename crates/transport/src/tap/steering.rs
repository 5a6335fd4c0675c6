//! Which queue of an interface the kernel puts a frame into: as a packet socket's group would.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::bpf::{self, Instruction, ProgramKind, instruction};
use crate::packet::{Headers, addresses_program, flow_program};

/// `BPF_PROG_TYPE_SOCKET_FILTER` of `linux/bpf.h`.
const SOCKET_FILTER: ProgramKind = ProgramKind { number: 1, attach_type: 0 };

/// By what the kernel chooses the queue of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Its flow ([`landfall_inet::flow`]).
    Flow,
    /// Its two addresses, whatever it carries.
    Addresses,
}

/// Lets the kernel choose a queue so, for as long as the interface exists.
pub(super) fn steer(queue: &File, by: Spread) -> io::Result<()> {
    let program = match by {
        Spread::Flow => flow_program(Headers::OfFrame),
        Spread::Addresses => addresses_program(Headers::OfFrame),
    };
    let program = bpf::load(SOCKET_FILTER, &translated(&program), 0)?;
    let mut number: RawFd = program.as_raw_fd();
    // SAFETY: the request is for the number of a descriptor, which lives through the call. The
    // kernel keeps the program.
    let done = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETSTEERINGEBPF, &raw mut number) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Where values of the packet filter's machine are: what is loaded comes to register 0, and the
/// frame is at register 6 (RFC 9669, 5.5: "Legacy BPF Packet access instructions").
const A: u8 = 0;
const X: u8 = 7;
const FRAME: u8 = 6;

/// The same program for the machine of today. One step of the old one is one or two of the new,
/// and jumps lead forward.
fn translated(program: &[libc::sock_filter]) -> Vec<Instruction> {
    let lengths = program.iter().map(|step| steps_of(step).len());
    let starts: Vec<usize> = lengths
        .scan(0, |at, len| {
            *at += len;
            Some(*at - len)
        })
        .collect();
    // The frame's place is told in register 1.
    let mut new = vec![instruction(0xbf, (FRAME, 1), 0, 0)];
    for (at, step) in program.iter().enumerate() {
        let mut steps = steps_of(step);
        if is_jump(step) {
            let distance = |from: usize, to: u8| {
                let target = starts.get(at + 1 + usize::from(to)).copied().unwrap_or_default();
                target.saturating_sub(starts[at] + from + 1) as i16
            };
            steps[0].offset = distance(0, step.jt);
            steps[1].offset = distance(1, step.jf);
        }
        new.extend(steps);
    }
    new
}

const fn is_jump(step: &libc::sock_filter) -> bool {
    matches!(step.code, 0x15 | 0x45)
}

/// What a step becomes, but for how far jumps lead.
fn steps_of(step: &libc::sock_filter) -> Vec<Instruction> {
    let number = step.k.cast_signed();
    match step.code {
        // Loads from the frame: a word, half of one, a byte.
        0x20 | 0x28 | 0x30 => vec![instruction(step.code as u8, (0, 0), 0, number)],
        // X becomes A.
        0x07 => vec![instruction(0xbf, (X, A), 0, 0)],
        // Arithmetic in 32 bits: by XOR with X, a product, a shift.
        0xac => vec![instruction(0xac, (A, X), 0, 0)],
        0x24 | 0x74 => vec![instruction(step.code as u8, (A, 0), 0, number)],
        // If it is that number, or has one of those bits; or else.
        0x15 | 0x45 => {
            vec![instruction(step.code as u8, (A, 0), 0, number), instruction(0x05, (0, 0), 0, 0)]
        }
        // A is the answer, or a number.
        0x16 => vec![instruction(0x95, (0, 0), 0, 0)],
        _ => vec![instruction(0xb7, (A, 0), 0, number), instruction(0x95, (0, 0), 0, 0)],
    }
}
