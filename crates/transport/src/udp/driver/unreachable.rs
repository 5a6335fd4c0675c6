//! Peers at whose address nobody receives. ICMP port unreachable comes to the socket's error
//! queue (`IP_RECVERR`) with the address that the datagram was for, so that one socket can serve
//! many peers. It is asked for only while an engine waits for the first answer of one: for
//! everybody else such messages, which can be forged, stay in the kernel.

use std::os::fd::{AsRawFd, RawFd};

use landfall_placement::{Engine, Instant};

use super::{UdpDriver, receive_message};
use crate::inet::set_option;

/// The most that one turn takes from the queue, so that a flood does not keep it.
const MOST_PER_TURN: usize = 64;

/// Switches reports on, or off; then the kernel forgets those that wait.
fn set_reports(fd: RawFd, ipv6: bool, on: bool) {
    // Without them a peer that is not there is noticed by its silence.
    let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_RECVERR, on.into());
    if ipv6 {
        let _ = set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, on.into());
    }
}

impl UdpDriver {
    /// Before anything is sent: are reports wanted now?
    pub(super) fn want_reports<E: Engine>(&mut self, engine: &E) {
        let wants = engine.awaits_first_answer(self.state.path);
        if wants != self.wants_reports {
            set_reports(self.socket.as_raw_fd(), self.ipv6, wants);
            self.wants_reports = wants;
        }
    }

    /// Hands on the reports that came.
    pub(super) fn take_reports<E: Engine>(&mut self, engine: &mut E, now: Instant) {
        if !self.wants_reports {
            return;
        }
        for _ in 0..MOST_PER_TURN {
            // SAFETY: there is no room for a payload: nothing is written there.
            let report =
                unsafe { receive_message(self.socket.as_raw_fd(), &mut [], libc::MSG_ERRQUEUE) };
            let Ok(Some(report)) = report else { return };
            if report.control.is_unreachable {
                engine.handle_unreachable(now, self.state.path, report.from);
            }
        }
    }
}
