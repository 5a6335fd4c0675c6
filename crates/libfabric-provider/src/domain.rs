//! [`Domain`]: endpoints and what they share, behind one lock.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::carrier::Carrier;
use crate::completion::Failure;
use crate::endpoint::Endpoint;
use crate::events::Source;
use crate::notify::{Notify, locked};
use crate::process::Origin;
use crate::settings::Settings;
use crate::world::{Numbered, World};

/// A domain of libfabric.
#[derive(Debug)]
pub(crate) struct Domain {
    state: Mutex<State>,
    origin: Origin,
    /// What a child of a fork finds, which may use nothing of its parent's: nothing.
    elsewhere: Mutex<State>,
    pub(crate) settings: Settings,
    /// Where endpoints are opened that say nothing else.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) notify: Arc<Notify>,
}

/// What is behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) world: World,
    pub(crate) endpoints: Numbered<Endpoint>,
    /// Below all endpoints that connect from one address, whatever the port.
    carriers: Vec<(IpAddr, Weak<Carrier>)>,
    /// How often all endpoints were looked at.
    round: u64,
}

impl Domain {
    pub(crate) fn new(settings: Settings, address: Option<SocketAddr>) -> Arc<Self> {
        let world = World::new();
        let notify = Arc::clone(&world.notify);
        let state = Mutex::new(State::new(world));
        let elsewhere = Mutex::new(State::new(World::new()));
        let origin = Origin::here();
        Arc::new(Self { state, origin, elsewhere, settings, address, notify })
    }

    /// Was it opened in this process?
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        locked(if self.is_here() { &self.state } else { &self.elsewhere })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !self.is_here() {
            // Its connections are the parent's, who goes on.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::replace(state, State::new(World::new())));
        }
    }
}

impl State {
    fn new(world: World) -> Self {
        Self { world, endpoints: Numbered::default(), carriers: Vec::new(), round: 0 }
    }

    /// Looks at all that has happened.
    pub(crate) fn progress(&mut self) {
        let Self { world, endpoints, round, .. } = self;
        *round += 1;
        endpoints.iter_mut().for_each(|endpoint| endpoint.progress(world, *round));
    }

    /// An endpoint, and what it shares with others.
    pub(crate) fn endpoint(&mut self, number: usize) -> Option<(&mut Endpoint, &mut World)> {
        let Self { world, endpoints, .. } = self;
        Some((endpoints.get_mut(number)?, world))
    }

    /// What is below an endpoint that connects from this address: one for all of them, unless
    /// the program says which port it is to be.
    pub(crate) fn carrier(
        &mut self,
        address: SocketAddr,
        settings: &Settings,
    ) -> Result<Arc<Carrier>, Failure> {
        let of_all = address.port() == 0;
        self.carriers.retain(|(_, known)| known.strong_count() > 0);
        let known = self.carriers.iter().find(|(ip, _)| of_all && *ip == address.ip());
        if let Some(carrier) = known.and_then(|(_, known)| known.upgrade()) {
            return Ok(carrier);
        }
        let carrier = Carrier::bind(address, settings)?;
        if of_all {
            self.carriers.push((address.ip(), Arc::downgrade(&carrier)));
        }
        Ok(carrier)
    }
}

impl Source for Domain {
    fn progress(&self) {
        self.lock().progress();
    }
}
