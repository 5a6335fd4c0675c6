//! [`Passive`]: an endpoint that listens for connections of `FI_EP_MSG`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::abi::FI_EOPBADSTATE;
use crate::carrier::Carrier;
use crate::channel::{EventTarget, Role, Taken};
use crate::completion::Failure;
use crate::core::Options;
use crate::endpoint::Endpoint;
use crate::events::Source;
use crate::info::Hints;
use crate::notify::locked;
use crate::process::Origin;
use crate::settings::Settings;
use crate::world::World;

/// It shares nothing with other endpoints: no queues, and no memory.
#[derive(Debug)]
pub(crate) struct Passive {
    state: Mutex<State>,
    origin: Origin,
    name: SocketAddr,
    settings: Settings,
    /// What its connections are offered with, and by which version of the interface.
    offer: (Hints, u32),
}

#[derive(Debug)]
struct State {
    endpoint: Endpoint,
    world: World,
    round: u64,
}

impl Passive {
    /// Listens at an address.
    pub(crate) fn listen(
        address: SocketAddr,
        settings: Settings,
        target: EventTarget,
        offer: (Hints, u32),
    ) -> Result<Arc<Self>, Failure> {
        let carrier = Carrier::bind(address, &settings)?;
        let name = carrier.name();
        let (world, options) = (World::new(), Options::default());
        let (notify, events) = (Arc::clone(&world.notify), Arc::clone(&target.events));
        let endpoint = Endpoint::open(0, carrier, &notify, options, Role::listening(target))?;
        let state = Mutex::new(State { endpoint, world, round: 0 });
        let passive = Arc::new(Self { state, origin: Origin::here(), name, settings, offer });
        locked(&passive.state).endpoint.role.is_of(&passive);
        let source: Arc<dyn Source> = Arc::clone(&passive) as Arc<dyn Source>;
        events.follow(&source, &notify);
        Ok(passive)
    }

    pub(crate) const fn offer(&self) -> (Hints, u32) {
        self.offer
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Was it opened in this process? A child of it may use nothing of it.
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        self.is_here().then(|| locked(&self.state))
    }

    /// Takes a connection that was asked for.
    pub(crate) fn give_away(&self, request: u64) -> Result<Taken, i32> {
        self.lock().ok_or(FI_EOPBADSTATE)?.endpoint.give_away(request)
    }

    /// Refuses one.
    pub(crate) fn refuse(&self, request: u64, data: Vec<u8>) -> Result<(), i32> {
        let State { endpoint, world, .. } = &mut *self.lock().ok_or(FI_EOPBADSTATE)?;
        endpoint.refuse(world, request, data)
    }

    /// Lets those that were refused hear it, and ends all that wait.
    pub(crate) fn close(&self) {
        if let Some(mut state) = self.lock() {
            let State { endpoint, world, .. } = &mut *state;
            endpoint.close(world);
        }
    }

    /// Where peers reach it.
    pub(crate) const fn name(&self) -> SocketAddr {
        self.name
    }
}

impl Source for Passive {
    fn progress(&self) {
        if let Some(mut state) = self.lock() {
            let State { endpoint, world, round } = &mut *state;
            *round += 1;
            endpoint.progress(world, *round);
        }
    }
}
