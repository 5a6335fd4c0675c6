//! What has become of a connection, for its log and for those who look at all connections.

use std::sync::atomic::Ordering;

use super::{Connection, SegmentView};
use crate::log::{self, Verdict};
use crate::registry::Name;
use crate::segment::Role;
use crate::status;

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
}
