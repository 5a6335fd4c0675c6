//! From a file into a socket.

use std::ffi::c_int;

use libc::off64_t;

use crate::kernel::{self, Outcome, Part};
use crate::next::next;
use crate::table::{self, Guard};
use crate::transfer;

/// What is carried at once.
const PIECE: usize = 64 * 1024;

/// Reads from a file and sends it, until `count` bytes went or no more will go.
fn carry(
    guard: &Guard,
    socket: c_int,
    file: c_int,
    offset: Option<&mut off64_t>,
    count: usize,
) -> Outcome {
    let mut piece = vec![0_u8; count.min(PIECE)];
    let mut done = 0;
    let mut at = offset.as_ref().map(|offset| **offset);
    let mut result = Ok(());
    while done < count {
        let wanted = piece.len().min(count - done);
        let read = match kernel::read_at(file, &mut piece[..wanted], at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(why) => {
                result = Err(why);
                break;
            }
        };
        let part = Part { base: piece.as_mut_ptr(), len: read };
        // SAFETY: the piece is ours.
        let sent = unsafe { transfer::send(guard, socket, &[part], 0) };
        let went = sent.unwrap_or(0);
        done += went;
        if let Some(at) = &mut at {
            *at += went as off64_t;
        } else if went < read {
            // The file's own position has gone too far.
            let _ = kernel::step_back(file, read - went);
        }
        if let Err(why) = sent {
            result = Err(why);
            break;
        }
        if went < read {
            break;
        }
    }
    if let (Some(offset), Some(at)) = (offset, at) {
        *offset = at;
    }
    if done > 0 { Ok(done) } else { result.map(|()| 0) }
}

/// `None` where it is not our business.
///
/// # Safety
///
/// `offset` is null or the program's.
unsafe fn from_file(out: c_int, from: c_int, offset: *mut off64_t, count: usize) -> Option<isize> {
    let guard = table::find(out)?;
    if guard.shared_to_send(out).is_none() && guard.messages().is_none() {
        let by_kernel = || kernel::send_file(out, from, offset, count);
        return Some(super::told(guard.early_send(count, by_kernel)));
    }
    // SAFETY: as promised.
    Some(super::told(carry(&guard, out, from, unsafe { offset.as_mut() }, count)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(
    out: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: usize,
) -> isize {
    // SAFETY: what the program gave; `off_t` has 64 bits here.
    unsafe { from_file(out, from, offset, count) }.unwrap_or_else(|| unsafe {
        next!(sendfile: fn(c_int, c_int, *mut off64_t, usize) -> isize)(out, from, offset, count)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(
    out: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: usize,
) -> isize {
    // SAFETY: what the program gave.
    unsafe { from_file(out, from, offset, count) }.unwrap_or_else(|| unsafe {
        next!(sendfile64: fn(c_int, c_int, *mut off64_t, usize) -> isize)(out, from, offset, count)
    })
}
