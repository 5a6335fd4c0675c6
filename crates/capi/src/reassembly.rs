//! Reassembly of fragments of IP, for C: frames in, packets out.

use std::ffi::{CString, c_char, c_void};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use landfall_placement::{Duration, Instant};
use spec_defrag::HashSecret;
use spec_defrag::reassembly::{Config, DropReason, Link, Outcome, Reassembler as Engine};

use crate::error::{Failure, address, code, number, pointer};
use crate::{bytes, close, handle, shared};

/// What a reassembler is like: see `landfall.h`.
#[derive(Debug)]
#[repr(C)]
pub struct Reassembly {
    link: u32,
    packets: u32,
    bytes: u64,
    lifetime: u32,
    reserved: u32,
}

/// What was done so far: see `landfall.h`.
#[derive(Debug)]
#[repr(C)]
pub struct ReassemblyCounts {
    offered: u64,
    packets: u64,
    dropped: u64,
    expired: u64,
    waiting: u64,
    memory: u64,
}

/// Joins fragments: see `landfall.h`.
#[derive(Debug)]
pub struct Reassembler {
    engine: Engine,
    packet: Vec<u8>,
}

impl Reassembly {
    fn config(&self) -> Result<Config, Failure> {
        let link = match self.link {
            0 => Link::Ethernet,
            1 => Link::Ip,
            _ => return Err(Failure::Invalid("the link is not known")),
        };
        if self.reserved != 0 {
            return Err(Failure::Invalid("what is reserved is not 0"));
        }
        let mut config = Config { link, ..usual() };
        // One source has a sixteenth at most, as usual.
        if self.packets > 0 {
            config.packets = self.packets;
            config.packets_per_source = (self.packets / 16).max(1);
        }
        if self.bytes > 0 {
            config.bytes = self.bytes;
            config.bytes_per_source = (self.bytes / 16).max(1);
        }
        if self.lifetime > 0 {
            config.lifetime = Duration::from_millis(self.lifetime.into());
        }
        Ok(config)
    }
}

fn usual() -> Config {
    // Hashes with keys of the operating system are as random as these.
    let random = || RandomState::new().hash_one(0);
    Config { reports: 0, ..Config::new(HashSecret::new(random(), random())) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_reassembler_open(config: *const Reassembly) -> *mut Reassembler {
    pointer(|| {
        // SAFETY: it is null, or the caller's promise.
        let config = unsafe { config.as_ref() }.map_or_else(|| Ok(usual()), Reassembly::config)?;
        Ok(Reassembler { engine: Engine::new(config), packet: Vec::new() })
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_reassemble(
    reassembler: *mut Reassembler,
    now: u64,
    frame: *const c_void,
    length: usize,
    packet: *mut *const c_void,
) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let (reassembler, offered) =
            unsafe { (handle(reassembler)?, bytes(frame.cast(), length)?) };
        // SAFETY: it is null, or the caller's promise.
        let packet = unsafe { packet.as_mut() }.ok_or(Failure::Invalid("packet is NULL"))?;
        *packet = std::ptr::null();
        if offered.is_empty() {
            return Err(Failure::Invalid("a frame has no bytes"));
        }
        match reassembler.engine.offer(Instant::from_nanos(now), offered) {
            Outcome::Kept => Ok(0),
            Outcome::NotFragment => {
                *packet = frame;
                Ok(length as i64)
            }
            Outcome::Packet(whole) => {
                reassembler.packet.clear();
                reassembler.packet.extend_from_slice(whole.head());
                whole.pieces().for_each(|piece| reassembler.packet.extend_from_slice(piece));
                *packet = reassembler.packet.as_ptr().cast();
                Ok(reassembler.packet.len() as i64)
            }
            Outcome::Dropped(why) => Err(Failure::Known(-6, why.as_str().to_owned())),
        }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_reassembler_counts(
    reassembler: *const Reassembler,
    counts: *mut ReassemblyCounts,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let Reassembler { engine, .. } = unsafe { shared(reassembler) }?;
        // SAFETY: it is null, or the caller's promise.
        let counts = unsafe { counts.as_mut() }.ok_or(Failure::Invalid("counts are NULL"))?;
        *counts = ReassemblyCounts {
            offered: engine.counters().offered(),
            packets: engine.counters().packets,
            dropped: engine.counters().all_dropped(),
            expired: engine.counters().expired + engine.counters().evicted,
            waiting: engine.packets() as u64,
            memory: engine.memory(),
        };
        Ok(())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_reassembler_expire(reassembler: *mut Reassembler, now: u64) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let reassembler = unsafe { handle(reassembler) }?;
        reassembler.engine.handle_timeout(Instant::from_nanos(now));
        Ok(())
    })
}

/// The reasons as C has them: in their order, with a zero byte.
static REASONS: LazyLock<Vec<CString>> = LazyLock::new(|| {
    let text = |reason: &DropReason| CString::new(reason.as_str()).unwrap_or_default();
    DropReason::ALL.iter().map(text).collect()
});

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_reassembler_dropped(
    reassembler: *const Reassembler,
    reason: u32,
    count: *mut u64,
) -> *const c_char {
    address(|| {
        // SAFETY: the caller's promise.
        let Reassembler { engine, .. } = unsafe { shared(reassembler) }?;
        let found = DropReason::ALL.get(reason as usize).zip(REASONS.get(reason as usize));
        let (reason, text) = found.ok_or(Failure::Invalid("there is no such reason"))?;
        // SAFETY: it is null, or the caller's promise.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = engine.counters().dropped(*reason);
        }
        Ok(text.as_ptr().cast_mut())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_reassembler_close(reassembler: *mut Reassembler) {
    // SAFETY: the caller's promise.
    unsafe { close(reassembler) }
}
