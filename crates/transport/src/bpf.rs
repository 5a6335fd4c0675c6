//! Programs of the kernel's, loaded by `bpf(2)` itself: their instructions, and the call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An instruction (RFC 9669, 3).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// The source above the destination.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

pub(crate) const fn instruction(
    code: u8,
    (to, from): (u8, u8),
    offset: i16,
    immediate: i32,
) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, immediate }
}

/// What a program is for, in the numbers of `linux/bpf.h`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramKind {
    pub(crate) number: u32,
    pub(crate) attach_type: u32,
}

/// A number of `linux/bpf.h`.
const PROG_LOAD: libc::c_long = 5;

/// Loads a program, if the kernel can prove that it ends and reads nothing that it may not.
pub(crate) fn load(
    kind: ProgramKind,
    instructions: &[Instruction],
    flags: u32,
) -> io::Result<OwnedFd> {
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
    let load = Load {
        prog_type: kind.number,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: flags,
        prog_name: *b"landfall\0\0\0\0\0\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: kind.attach_type,
    };
    // SAFETY: the structure is the beginning of what the command reads. It
    // names this many instructions and a string, which live through the call.
    unsafe { open(PROG_LOAD, &load) }
}

/// A command that opens something.
///
/// # Safety
/// Like [`call`].
pub(crate) unsafe fn open<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for it.
    let fd = unsafe { call(command, attributes) }?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// The attributes are what the command reads, or the beginning of it; what they
/// name lives through the call.
pub(crate) unsafe fn call<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    let attributes = std::ptr::from_ref(attributes);
    // SAFETY: the structure lives through the call, and its length is told; the
    // kernel takes what is behind it for zeros. The caller vouches for the rest.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// Numbers of `linux/bpf.h`.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_ARRAY: u32 = 2;

/// Lets a program look at what passes an interface, for as long as the descriptor that this gives
/// is open.
pub(crate) fn link(
    program: &OwnedFd,
    interface: u32,
    attach_type: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
    }
    let prog_fd = program.as_raw_fd().cast_unsigned();
    let create = Create { prog_fd, target_ifindex: interface, attach_type, flags };
    // SAFETY: the structure is the beginning of what the command reads, and
    // names no memory.
    unsafe { open(LINK_CREATE, &create) }
}

/// A map of the kind and sizes that are asked for.
pub(crate) fn map(
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    let create = Create { map_type, key_size, value_size, max_entries };
    // SAFETY: the structure is the beginning of what the command reads, and
    // names no memory.
    unsafe { open(MAP_CREATE, &create) }
}

/// Values of this many bytes, a multiple of eight, which programs write and which are read here.
#[derive(Debug)]
pub(crate) struct Array<const LEN: usize>(OwnedFd);

impl<const LEN: usize> Array<LEN> {
    /// All zero.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        const { assert!(LEN.is_multiple_of(8)) };
        map(MAP_TYPE_ARRAY, size_of::<u32>() as u32, LEN as u32, entries).map(Self)
    }

    /// The value with this number as it is now.
    pub(crate) fn get(&self, key: u32) -> io::Result<[u8; LEN]> {
        #[repr(C)]
        struct Lookup {
            map: u32,
            _unused: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let mut value = [0; LEN];
        let lookup = Lookup {
            map: self.0.as_raw_fd().cast_unsigned(),
            _unused: 0,
            key: (&raw const key) as u64,
            value: (&raw mut value) as u64,
            flags: 0,
        };
        // SAFETY: the structure is what the command reads; the key is four bytes long and the value
        // as long as the map has it, a multiple of eight, and both live through the call.
        unsafe { call(MAP_LOOKUP_ELEM, &lookup) }?;
        Ok(value)
    }
}

impl<const LEN: usize> AsRawFd for Array<LEN> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
