//! What TCP itself has counted: who read or wrote past us is found out by it.

use crate::kernel;
use crate::segment::Side;

/// Whether TCP, too, says that the program took so many bytes.
pub(crate) fn has_received(fd: i32, bytes: u64) -> bool {
    // Bytes may come between the two questions: then they are asked again.
    for _ in 0..4 {
        let (Ok(before), Ok(waiting), Ok(after)) =
            (kernel::counted(fd), kernel::queued(fd, libc::FIONREAD), kernel::counted(fd))
        else {
            return false;
        };
        if before.received == after.received {
            return after.received.wrapping_sub(waiting) == bytes;
        }
    }
    false
}

/// Whether TCP, too, says that the program sent so many bytes.
pub(crate) fn has_sent(fd: i32, bytes: u64, side: Side) -> bool {
    // Of who called, the SYN was acknowledged, too.
    let of_handshake = u64::from(side == Side::Connector);
    for _ in 0..4 {
        let (Ok(before), Ok(waiting), Ok(after)) =
            (kernel::counted(fd), kernel::queued(fd, libc::TIOCOUTQ), kernel::counted(fd))
        else {
            return false;
        };
        if before.acknowledged == after.acknowledged {
            return after.acknowledged + waiting == bytes + of_handshake;
        }
    }
    false
}
