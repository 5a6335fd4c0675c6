//! The engines of `clan-dsm` behind a CLAN adapter: a station, which has one link, and so one
//! adapter; and the one for networks that lose, whose frames are all the host's.

use clan_dsm::Nic;
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

/// Its frames hold several packets, may come twice and out of order, and count once their
/// turn has come. The adapter of the paper has links that do none of that: it takes nothing
/// off this engine, and carries its frames to the host and from it.
impl Offloaded for Nic {
    type Command = Command;
    type Report = Report;

    fn poll_command(&mut self, _adapter: u8) -> Option<Command> {
        None
    }

    fn handle_report(&mut self, _now: Instant, _adapter: u8, _report: &Report) {}

    fn adapter_lost(&mut self, _now: Instant, _adapter: u8) {}
}
