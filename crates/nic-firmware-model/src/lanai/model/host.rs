//! [`Host`]: a node that runs the engine.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use landfall_placement::{Duration, Instant};
use landfall_simnet::{EngineConfig, EngineNode};
use qpip::{Adapter, Event};

use super::faulty::{Fault, Faulty};
use super::world::Shape;
use crate::lanai::{Helps, Lanai, LanaiSizes, LanaiTables, StageCosts};
use crate::machine::{self, Costs, Parts, Requests, Sizes};
use crate::node::NicNode;
use crate::world::Runs;

/// A card of a host of ours.
pub type Card = machine::Adapter<'static, Faulty<Lanai<'static>>>;
/// A host with a card.
pub type Carded = NicNode<Faulty<Lanai<'static>>, Adapter>;
/// A host without one: every payload is copied by a naive driver.
pub type Plain = EngineNode<Adapter>;

/// Where the events of a host go.
pub type Told = Rc<RefCell<VecDeque<Event>>>;

/// A node that runs the engine.
pub trait Host: Runs<Adapter> {
    /// Does a card run the seam?
    const IS_CARDED: bool;
    /// A node for this engine, whose events go there: this host of a world.
    fn make(engine: Adapter, told: Told, host: usize, shape: &Shape) -> Self;
    /// The firmware is loaded anew, where there is one.
    fn restart(&mut self, now: Instant);
}

/// What a card is made of.
#[derive(Clone, Debug)]
pub struct Build {
    /// Its tables.
    pub tables: LanaiSizes,
    /// Its slots and rings.
    pub sizes: Sizes,
    /// Work requests in their ring, and doorbells.
    pub requests: (usize, usize),
    /// What the machine costs.
    pub costs: Costs,
    /// What the firmware costs.
    pub stages: StageCosts,
    /// Which help of hardware it has.
    pub helps: Helps,
    /// From the moment at which the host could hear of something until it does.
    pub latency: Duration,
    /// What is wrong with the firmware.
    pub fault: Option<Fault>,
}

/// Few entries, and everything at the same instant.
impl Default for Build {
    fn default() -> Self {
        Self {
            tables: LanaiSizes { entries: 16, pointers: 32, mappings: 4, routes: 4 },
            sizes: Sizes::default(),
            requests: (64, 64),
            costs: Costs::OFF,
            stages: StageCosts::default(),
            helps: Helps::default(),
            latency: Duration::ZERO,
            fault: None,
        }
    }
}

impl Build {
    /// The card.
    #[must_use]
    pub fn card(&self) -> Card {
        let tables = LanaiTables::owned(self.tables, (0x5eed, 0x0bad));
        let firmware = Faulty::new(Lanai::new(tables, self.stages, self.helps), self.fault);
        let requests = Requests::owned(self.requests.0, self.requests.1);
        Card::new(firmware, Parts { requests, ..Parts::owned(&self.sizes) }, self.costs)
    }
}

/// Links into switches carry routes beside what the last one carries.
fn config(shape: &Shape) -> EngineConfig {
    let usual = EngineConfig::default();
    EngineConfig { most_unit: usual.most_unit.min(shape.link.mtu), ..usual }
}

impl Host for Carded {
    const IS_CARDED: bool = true;

    fn make(engine: Adapter, told: Told, host: usize, shape: &Shape) -> Self {
        let mut card = shape.card.card();
        for (to, route) in shape.network.routes(host) {
            // What finds no room has no way.
            let _ = card.firmware_mut().inner_mut().set_route(to, route);
        }
        Self::with_config(engine, vec![card], config(shape))
            .interrupt_latency(shape.card.latency)
            .on_event(move |_, _, _, event| told.borrow_mut().push_back(event))
    }

    fn restart(&mut self, now: Instant) {
        Self::restart(self, now, 0);
    }
}

impl Host for Plain {
    const IS_CARDED: bool = false;

    fn make(engine: Adapter, told: Told, _: usize, shape: &Shape) -> Self {
        Self::with_config(engine, config(shape))
            .on_event(move |_, _, _, event| told.borrow_mut().push_back(event))
    }

    fn restart(&mut self, _: Instant) {}
}
