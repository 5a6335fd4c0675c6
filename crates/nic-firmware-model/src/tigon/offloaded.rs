//! The engine of `stp-core` behind Tigon-IIs.

use landfall_placement::Instant;
use stp_core::Endpoint;
use stp_core::offload::{Command, Report};

use crate::node::Offloaded;

impl Offloaded for Endpoint {
    type Command = Command;
    type Report = Report;

    fn poll_command(&mut self, adapter: u8) -> Option<Command> {
        Self::poll_command(self, adapter)
    }

    fn handle_report(&mut self, now: Instant, adapter: u8, report: &Report) {
        Self::handle_report(self, now, adapter, report);
    }

    fn adapter_lost(&mut self, now: Instant, adapter: u8) {
        Self::adapter_lost(self, now, adapter);
    }
}
