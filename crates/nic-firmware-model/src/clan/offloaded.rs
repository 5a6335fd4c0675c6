//! A station of `clan-dsm` behind a CLAN adapter: it has one link, and so one adapter.

use clan_dsm::offload::{Command, Report};
use clan_dsm::station::Station;
use landfall_placement::Instant;

use crate::node::Offloaded;

/// The only adapter.
const ADAPTER: u8 = 0;

impl Offloaded for Station {
    type Command = Command;
    type Report = Report;

    fn poll_command(&mut self, adapter: u8) -> Option<Command> {
        if adapter == ADAPTER { Self::poll_command(self) } else { None }
    }

    fn handle_report(&mut self, now: Instant, adapter: u8, report: &Report) {
        if adapter == ADAPTER {
            Self::handle_report(self, now, report);
        }
    }

    fn adapter_lost(&mut self, now: Instant, adapter: u8) {
        if adapter == ADAPTER {
            Self::adapter_lost(self, now);
        }
    }
}
