//! The program that hands the frames of one ethertype to a socket and leaves
//! all others to the kernel, loaded by `bpf(2)` itself.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An instruction (RFC 9669, 3).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// The source above the destination.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Numbers of `linux/bpf.h`.
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// The program is content with frames in several parts.
const XDP_HAS_FRAGS: u32 = 1 << 5;
const REDIRECT_MAP: i32 = 51;
const PASS: i32 = 2;
const PSEUDO_MAP_FD: u8 = 1;

/// Numbers of `linux/if_link.h`: where the program shall run.
pub(super) const BEFORE_THE_STACK: u32 = 1 << 1;
pub(super) const IN_THE_DRIVER: u32 = 1 << 2;

/// A map from queues to sockets, for the program to redirect through.
#[derive(Debug)]
pub(super) struct Map(OwnedFd);

impl Map {
    /// A map that has an entry for this queue.
    pub(super) fn new(queue: u32) -> io::Result<Self> {
        #[repr(C)]
        struct Create {
            map_type: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
        }
        let max_entries = queue.saturating_add(1);
        let create = Create { map_type: MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries };
        // SAFETY: the structure is the beginning of what the command reads, and
        // names no memory.
        unsafe { open(MAP_CREATE, &create) }.map(Self)
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
        unsafe { bpf(MAP_UPDATE_ELEM, &update) }.map(drop)
    }
}

/// Hands frames of one ethertype to the sockets of this map. What has no
/// socket at its queue goes to the kernel, like all other frames.
fn instructions(ethertype: u16, map: RawFd) -> [Instruction; 15] {
    let instruction = |code, (to, from): (u8, u8), offset, immediate| Instruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    };
    let load = |to, from, offset| instruction(0x61, (to, from), offset, 0);
    let set = |register, number| instruction(0xb7, (register, 0), 0, number);
    let ethertype = i32::from(u16::from_ne_bytes(ethertype.to_be_bytes()));
    [
        // r1 is a `struct xdp_md`: where the frame begins and ends.
        load(2, 1, 0),
        load(3, 1, 4),
        // Has it a whole header?
        instruction(0xbf, (4, 2), 0, 0),
        instruction(0x07, (4, 0), 0, 14),
        instruction(0x2d, (4, 3), 8, 0),
        // Is it of the ethertype? As it lies there, two bytes in network order.
        instruction(0x69, (4, 2), 12, 0),
        instruction(0x55, (4, 0), 6, ethertype),
        // redirect_map(map, queue, what to do if there is no socket)
        load(2, 1, 16),
        instruction(0x18, (1, PSEUDO_MAP_FD), 0, map),
        instruction(0, (0, 0), 0, 0),
        set(3, PASS),
        instruction(0x85, (0, 0), 0, REDIRECT_MAP),
        instruction(0x95, (0, 0), 0, 0),
        set(0, PASS),
        instruction(0x95, (0, 0), 0, 0),
    ]
}

/// The program, loaded.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

impl Program {
    pub(super) fn load(ethertype: u16, map: &Map) -> io::Result<Self> {
        #[repr(C)]
        struct Load {
            prog_type: u32,
            insn_cnt: u32,
            insns: u64,
            license: u64,
            log_level: u32,
            log_size: u32,
            log_buf: u64,
            kern_version: u32,
            prog_flags: u32,
            prog_name: [u8; 16],
            prog_ifindex: u32,
            expected_attach_type: u32,
        }
        let instructions = instructions(ethertype, map.0.as_raw_fd());
        let mut load = Load {
            prog_type: PROG_TYPE_XDP,
            insn_cnt: instructions.len() as u32,
            insns: instructions.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log_buf: 0,
            kern_version: 0,
            prog_flags: XDP_HAS_FRAGS,
            prog_name: *b"landfall\0\0\0\0\0\0\0\0",
            prog_ifindex: 0,
            expected_attach_type: ATTACH_TYPE_XDP,
        };
        // SAFETY: the structure is the beginning of what the command reads. It
        // names so many instructions and a string, which live through the call.
        let loaded = unsafe { open(PROG_LOAD, &load) };
        if !matches!(&loaded, Err(error) if error.raw_os_error() == Some(libc::EINVAL)) {
            return loaded.map(Self);
        }
        // Before Linux 5.18 frames had one part.
        load.prog_flags = 0;
        // SAFETY: likewise.
        unsafe { open(PROG_LOAD, &load) }.map(Self)
    }

    /// Lets the program look at what an interface receives, for as long as the
    /// descriptor that this gives is open.
    pub(super) fn attach(&self, interface: u32, flags: u32) -> io::Result<OwnedFd> {
        #[repr(C)]
        struct Create {
            prog_fd: u32,
            target_ifindex: u32,
            attach_type: u32,
            flags: u32,
        }
        let create = Create {
            prog_fd: self.0.as_raw_fd().cast_unsigned(),
            target_ifindex: interface,
            attach_type: ATTACH_TYPE_XDP,
            flags,
        };
        // SAFETY: the structure is the beginning of what the command reads, and
        // names no memory.
        unsafe { open(LINK_CREATE, &create) }
    }
}

/// A command that opens something.
///
/// # Safety
/// Like [`bpf`].
unsafe fn open<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for it.
    let fd = unsafe { bpf(command, attributes) }?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// The attributes are what the command reads, or the beginning of it; what they
/// name lives through the call.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    let attributes = std::ptr::from_ref(attributes);
    // SAFETY: the structure lives through the call, and its length is told; the
    // kernel takes what is behind it for zeros. The caller vouches for the rest.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_where_frames_are_passed_on() {
        let program = instructions(0x88b5, 7);
        for jump in [4usize, 6] {
            let to = jump + 1 + usize::try_from(program[jump].offset).unwrap();
            assert_eq!((program[to].code, program[to].immediate), (0xb7, PASS));
        }
        let wire = [0x88, 0xb5];
        assert_eq!(program[6].immediate, i32::from(u16::from_ne_bytes(wire)));
    }
}
