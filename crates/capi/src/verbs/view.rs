//! Registered memory where it lies, for C and what is built on it.

use std::ffi::c_void;
use std::ptr::NonNull;

use landfall::clan::{Local as _, Piece};
use landfall::qpip::Pinned;

use super::{Any, Region, range};
use crate::error::{Failure, pointer};
use crate::{close, shared};

/// Some bytes of a region where they lie: see `landfall.h`.
#[derive(Debug)]
pub struct View {
    bytes: NonNull<u8>,
    /// The memory stays where it is as long as this does.
    _held: Held,
}

#[derive(Debug)]
enum Held {
    Pin { _pin: Pinned },
    Piece { _piece: Piece },
}

impl View {
    fn open(region: &Region, at: u64, length: u64) -> Result<Self, Failure> {
        let (of, first, held) = match region.memory() {
            Any::Stp(region) => by_pin(region.pin()?),
            Any::Qpip(region) => by_pin(region.pin()?),
            Any::Clan(region) => {
                let piece = region.local().piece(0..region.len())?;
                let piece = piece.ok_or(Failure::Invalid("this memory has no address"))?;
                (piece.len(), piece.address(), Held::Piece { _piece: piece })
            }
        };
        let outside = Failure::Invalid("the region has no such part");
        let is_within = length > 0 && range(at, length)?.end <= of;
        let at = usize::try_from(at).ok().filter(|_| is_within).ok_or(outside)?;
        // SAFETY: within the memory of the region, as was checked just now.
        Ok(Self { bytes: unsafe { first.add(at) }, _held: held })
    }
}

/// How long memory is, where it lies, and what holds it there.
fn by_pin(pin: Pinned) -> (u64, NonNull<u8>, Held) {
    (pin.len(), pin.address(), Held::Pin { _pin: pin })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_view_open(region: *const Region, at: u64, length: u64) -> *mut View {
    pointer(|| {
        // SAFETY: the caller's promise.
        View::open(unsafe { shared(region) }?, at, length)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_view_bytes(view: *const View) -> *mut c_void {
    // SAFETY: the caller's promise.
    let view = unsafe { view.as_ref() };
    view.map_or(std::ptr::null_mut(), |view| view.bytes.as_ptr().cast())
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_view_close(view: *mut View) {
    // SAFETY: the caller's promise.
    unsafe { close(view) }
}
