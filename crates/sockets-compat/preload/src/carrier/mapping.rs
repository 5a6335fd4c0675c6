//! The memory of a connection that is carried, and why a connection is broken.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use landfall::stp::MappedMemory;

use crate::registry::Name;
use crate::segment::{Role, Segment};
use crate::socket_diag::SocketDiag;
use crate::{kernel, ring};

/// A mapping of the memory.
pub(super) struct Mapping(Segment);

// SAFETY: it is atomics, and bytes that are only copied; see `Segment`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn of(segment: Segment) -> Arc<Self> {
        Arc::new(Self(segment))
    }

    /// Both rings, for drivers to send from and to place bytes in.
    pub(super) fn rings(self: &Arc<Self>) -> Option<MappedMemory> {
        let (base, len) = self.both_rings();
        // SAFETY: it begins at a page and has whole pages, which stay mapped until the last
        // owner of the mapping is gone; all that uses them copies by words.
        Some(unsafe { MappedMemory::new(NonNull::new(base)?, len, Arc::clone(self) as _) })
    }

    /// Whether no process has the program's end any more.
    pub(super) fn is_left(&self, diag: &SocketDiag, name: &Name, role: Role, cookie: u64) -> bool {
        let end = self.end(role);
        let interface = end.interface.load(Ordering::Relaxed);
        match diag.end_of(name, role, cookie, interface) {
            Ok(Some(known)) if known.is_connected() => !known.has_file,
            // Both directions of TCP are over, which says nothing of the program: it may
            // have to read yet what the end by TCP has overtaken.
            Ok(_) => {
                let process = self.between().process.load(Ordering::Relaxed);
                let holders = end.holders.load(Ordering::Acquire);
                process != 0 && !kernel::is_alive(process) && holders <= 1
            }
            Err(_) => false,
        }
    }
}

impl Deref for Mapping {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        &self.0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: references into it are borrowed from this.
        unsafe { self.0.unmap() };
    }
}

/// Why a connection is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The program has written nonsense into the memory.
    ByProgram,
    /// The other carrier talks nonsense.
    ByCarrier,
    /// The other carrier has said so.
    There,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByProgram => "the program has written nonsense",
            Self::ByCarrier => "the other carrier talks nonsense",
            Self::There => "it is broken there",
        })
    }
}

impl From<ring::Malformed> for Broken {
    fn from(_: ring::Malformed) -> Self {
        Self::ByProgram
    }
}
