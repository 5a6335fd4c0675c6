//! What has become of a connection, for its log and for those who look at all connections.

use std::sync::atomic::Ordering;

use super::{Connection, SegmentView};
use crate::log::{self, Verdict};
use crate::registry::Name;
use crate::segment::Role;
use crate::{kernel, status};

impl Connection {
    /// Says once, to whom it may concern, what has become of it.
    pub(super) fn tells(&self, verdict: Verdict) {
        if !self.has_told.swap(true, Ordering::Relaxed)
            && let Some(name) = self.name()
        {
            self.is_decided(verdict);
            log::report(self.role(), &name, verdict);
        }
    }

    /// The same for who looks at all connections.
    pub(super) fn is_decided(&self, verdict: Verdict) {
        status::decided(self.record.load(Ordering::Relaxed), verdict);
    }

    /// It has begun, and both ends look for each other.
    pub(super) fn is_entered(&self, role: Role, name: &Name) {
        let serial = self.serial.load(Ordering::Relaxed);
        self.record.store(status::looks_for_the_other(role, name, serial), Ordering::Relaxed);
    }

    /// It comes from before `exec`, or from another process, and may be decided.
    pub(super) fn is_decided_already(&self) {
        if let Some(shared) = self.shared().filter(SegmentView::are_both_here) {
            self.is_decided(shared.together());
        }
    }

    /// Says how long it was open here and how much went, if somebody wants all told.
    pub(crate) fn tells_of_its_end(&self, fd: i32) {
        if !log::tells_all() {
            return;
        }
        let Some(name) = self.name() else { return };
        let bytes = self.shared().map_or_else(
            || {
                let counted = kernel::counted(fd);
                counted.map_or([0; 2], |tcp| [tcp.acknowledged, tcp.received])
            },
            |shared| {
                let (sends, receives) = (&shared.sends.sending, &shared.receives.receiving);
                [(&sends.by_tcp, &sends.head), (&receives.by_tcp, &receives.tail)].map(
                    |(tcp, ring)| {
                        tcp.load(Ordering::Relaxed).wrapping_add(ring.load(Ordering::Relaxed))
                    },
                )
            },
        );
        log::report_end(self.role(), &name, self.age(), bytes);
    }
}
