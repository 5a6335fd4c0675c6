//! [`Offloaded`]: an engine that an adapter takes work off; and the engines of the papers
//! behind theirs. What each tells its adapter, and when, is the engine's (its mirror of the
//! adapter's tables); here they are joined to the machine.

use std::fmt;

use clan_dsm::Nic;
use landfall_placement::{Engine, Instant};
use stp_core::Endpoint;

/// An engine that an adapter takes work off.
pub trait Offloaded: Engine {
    /// What it tells its adapter.
    type Command: Copy + fmt::Debug + 'static;
    /// What its adapter tells it.
    type Report: Copy + fmt::Debug + 'static;

    /// The next change of the tables of an adapter. What the engine gives out to
    /// be sent later relies on it.
    fn poll_command(&mut self, adapter: u8) -> Option<Self::Command>;

    /// An adapter took something off the engine.
    fn handle_report(&mut self, now: Instant, adapter: u8, report: &Self::Report);

    /// An adapter has forgotten all it was told, and will report none of it.
    fn adapter_lost(&mut self, now: Instant, adapter: u8);
}

/// Tigon-IIs: each has a copy of some of the engine's Blocks.
impl Offloaded for Endpoint {
    type Command = stp_core::offload::Command;
    type Report = stp_core::offload::Report;

    fn poll_command(&mut self, adapter: u8) -> Option<Self::Command> {
        Self::poll_command(self, adapter)
    }

    fn handle_report(&mut self, now: Instant, adapter: u8, report: &Self::Report) {
        Self::handle_report(self, now, adapter, report);
    }

    fn adapter_lost(&mut self, now: Instant, adapter: u8) {
        Self::adapter_lost(self, now, adapter);
    }
}

/// One adapter is joined to an engine that knows of one only: further ones know nothing and
/// place nothing.
macro_rules! with_one_adapter {
    ($(#[$about:meta])* $engine:ty, $module:ident, $lost:expr) => {
        $(#[$about])*
        impl Offloaded for $engine {
            type Command = $module::offload::Command;
            type Report = $module::offload::Report;

            fn poll_command(&mut self, adapter: u8) -> Option<Self::Command> {
                if adapter == 0 { Self::poll_command(self) } else { None }
            }

            fn handle_report(&mut self, now: Instant, adapter: u8, report: &Self::Report) {
                if adapter == 0 {
                    Self::handle_report(self, now, report);
                }
            }

            fn adapter_lost(&mut self, now: Instant, adapter: u8) {
                if adapter == 0 {
                    $lost(self, now);
                }
            }
        }
    };
}

with_one_adapter! {
    /// A LANai 9: it carries all paths of the engine, which is configured so that it
    /// [delegates](qpip::Config::delegates).
    qpip::Adapter, qpip, |engine: &mut Self, _| engine.handle_card_lost()
}

with_one_adapter! {
    /// A CLAN adapter at a native link, which is one link and so has one adapter. Frames of
    /// networks hold several packets, may come twice and out of order, and count once their
    /// turn has come: of those the adapter of the paper takes none, and is told nothing.
    Nic, clan_dsm, Nic::adapter_lost
}
