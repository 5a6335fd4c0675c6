//! [`Handle`]: what every handle of an adapter holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use landfall_placement::Instant;
use landfall_transport::memory::Regions;

use super::Core;
use crate::qpip::doorbell::Doorbells;
use crate::qpip::error::Error;
use crate::runtime::{self, Runtime};

/// When the last is gone, the adapter ends.
///
/// Commands of the management take the runtime's lock. Posting and polling do not: see
/// [`doorbell`](crate::qpip::doorbell) and [`completion_queue`](crate::qpip::completion_queue).
#[derive(Debug)]
pub(crate) struct Handle {
    handle: runtime::Handle<Core>,
    pub(crate) doorbells: Arc<Doorbells>,
    pub(crate) regions: Regions,
    /// Tells handles of this adapter from those of others.
    pub(crate) serial: u32,
}

impl std::ops::Deref for Handle {
    type Target = Runtime<Core>;

    #[inline]
    fn deref(&self) -> &Runtime<Core> {
        &self.handle
    }
}

impl Handle {
    pub(crate) fn new(
        runtime: Arc<Runtime<Core>>,
        doorbells: Arc<Doorbells>,
        regions: Regions,
    ) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Self { handle: runtime::Handle(runtime), doorbells, regions, serial }
    }

    /// Carries out a command of the management. What was posted before, by any
    /// thread that this one has heard from, comes first.
    pub(crate) fn command<T>(&self, command: impl FnOnce(&mut Core, Instant) -> T) -> T {
        self.ask(|core, now| {
            core.take_posts(now);
            let result = command(core, now);
            core.hear();
            result
        })
    }

    /// The adapter runs, or will when its user lets it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.has_ended() { Err(Error::AdapterGone) } else { Ok(()) }
    }
}
