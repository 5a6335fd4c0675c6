//! [`Domain`]: endpoints and what they share, behind one lock.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::endpoint::Endpoint;
use crate::notify::{Notify, locked};
use crate::settings::Settings;
use crate::world::{Numbered, World};

/// A domain of libfabric.
#[derive(Debug)]
pub(crate) struct Domain {
    state: Mutex<State>,
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
}

impl Domain {
    pub(crate) fn new(settings: Settings, address: Option<SocketAddr>) -> Arc<Self> {
        let world = World::new();
        let notify = Arc::clone(&world.notify);
        let state = Mutex::new(State { world, endpoints: Numbered::default() });
        Arc::new(Self { state, settings, address, notify })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl State {
    /// Looks at all that has happened.
    pub(crate) fn progress(&mut self) {
        let Self { world, endpoints } = self;
        endpoints.iter_mut().for_each(|endpoint| endpoint.progress(world));
    }

    /// An endpoint, and what it shares with others.
    pub(crate) fn endpoint(&mut self, number: usize) -> Option<(&mut Endpoint, &mut World)> {
        let Self { world, endpoints } = self;
        Some((endpoints.get_mut(number)?, world))
    }
}
