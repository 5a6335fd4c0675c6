//! What TCP itself has counted: who read or wrote past us is found out by it.

use crate::kernel;
use crate::segment::Side;

/// How many bytes the program took, as TCP says; `None` where that cannot be told now.
pub(crate) fn received(fd: i32) -> Option<u64> {
    // Bytes may come between the two questions: then they are asked again.
    for _ in 0..4 {
        let before = kernel::counted(fd).ok()?.received;
        let waiting = kernel::queued(fd, libc::FIONREAD).ok()?;
        if kernel::counted(fd).ok()?.received == before {
            return Some(before.wrapping_sub(waiting));
        }
    }
    None
}

/// How many bytes the program sent, as TCP says.
pub(crate) fn sent(fd: i32, side: Side) -> Option<u64> {
    // Of who called, the SYN was acknowledged, too.
    let of_handshake = u64::from(side == Side::Connector);
    for _ in 0..4 {
        let before = kernel::counted(fd).ok()?.acknowledged;
        let waiting = kernel::queued(fd, libc::TIOCOUTQ).ok()?;
        if kernel::counted(fd).ok()?.acknowledged == before {
            return (before + waiting).checked_sub(of_handshake);
        }
    }
    None
}
