//! The engine of `qpip` behind a card.

use landfall_placement::Instant;
use qpip::offload::{Command, Report};

use crate::node::Offloaded;

/// One card carries all paths of the engine, which is configured so that it
/// [delegates](qpip::Config::delegates): further ones know nothing and place nothing.
impl Offloaded for qpip::Adapter {
    type Command = Command;
    type Report = Report;

    fn poll_command(&mut self, adapter: u8) -> Option<Command> {
        if adapter == 0 { Self::poll_command(self) } else { None }
    }

    fn handle_report(&mut self, now: Instant, adapter: u8, report: &Report) {
        if adapter == 0 {
            Self::handle_report(self, now, report);
        }
    }

    fn adapter_lost(&mut self, _now: Instant, adapter: u8) {
        if adapter == 0 {
            self.handle_card_lost();
        }
    }
}
