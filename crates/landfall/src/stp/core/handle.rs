//! [`Handle`]: what every handle of an endpoint holds.

use std::sync::Arc;

use super::Core;
use crate::runtime::{self, Runtime};
use crate::stp::memory::Pool;

/// When the last is gone, the endpoint ends.
#[derive(Debug)]
pub(crate) struct Handle {
    handle: runtime::Handle<Core>,
    pool: Arc<Pool>,
}

impl std::ops::Deref for Handle {
    type Target = Runtime<Core>;

    #[inline]
    fn deref(&self) -> &Runtime<Core> {
        &self.handle
    }
}

impl Handle {
    pub(crate) fn new(runtime: Arc<Runtime<Core>>, pool: Arc<Pool>) -> Self {
        Self { handle: runtime::Handle(runtime), pool }
    }

    /// The runtime alone: it outlives the handle.
    pub(crate) fn runtime(&self) -> Arc<Runtime<Core>> {
        Arc::clone(&self.handle.0)
    }

    pub(crate) const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}
