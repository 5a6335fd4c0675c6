//! The engine of `clan-dsm` behind a CLAN adapter: at a native link, which is one link and so
//! has one adapter. Frames of networks hold several packets, may come twice and out of order,
//! and count once their turn has come: of those the adapter of the paper takes none, and is
//! told nothing.

use clan_dsm::Nic;
use clan_dsm::offload::{Command, Report};
use landfall_placement::Instant;

use crate::node::Offloaded;

/// The only adapter.
const ADAPTER: u8 = 0;

impl Offloaded for Nic {
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
