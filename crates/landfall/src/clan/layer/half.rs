//! [`Half`]: one side of something, before it knows the other.

use std::fmt;
use std::marker::PhantomData;

use crate::clan::{Cookie, Error, Fabric, Local, Remote, Rights};

/// Our side's memory of a connection to be: the [`cookie`](Self::cookie) goes to the
/// other side, and with the cookie of the other side it becomes `P`.
pub struct Half<F: Fabric, P: Connect<F>> {
    fabric: F,
    local: F::Local,
    cookie: Cookie,
    config: P::Config,
    becomes: PhantomData<fn() -> P>,
}

/// What a half becomes. Only the layer's own types do.
pub trait Connect<F: Fabric>: Sized {
    /// What both sides have to agree on.
    type Config: Copy + fmt::Debug;

    /// How much memory this side exposes; an error if that cannot be.
    #[doc(hidden)]
    fn ours(config: &Self::Config) -> Result<u64, Error>;

    /// How much the other side does.
    #[doc(hidden)]
    fn theirs(config: &Self::Config) -> Result<u64, Error>;

    /// Joins the two.
    #[doc(hidden)]
    fn join(joint: Joint<F>, config: Self::Config) -> Result<Self, Error>;
}

/// Both sides' memory.
#[derive(Debug)]
pub struct Joint<F: Fabric> {
    pub(super) fabric: F,
    pub(super) local: F::Local,
    pub(super) remote: F::Remote,
}

impl<F: Fabric, P: Connect<F>> Half<F, P> {
    pub(super) fn open(fabric: &F, config: P::Config) -> Result<Self, Error> {
        let (local, cookie) = fabric.expose(P::ours(&config)?, Rights::Write)?;
        Ok(Self { fabric: fabric.clone(), local, cookie, config, becomes: PhantomData })
    }

    /// What the other side needs to connect to this one.
    #[must_use]
    pub const fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// Connects to the other side. Both do, in any order; what one sends before the
    /// other has connected waits for it.
    ///
    /// # Errors
    /// The cookie is good for nothing, or its memory is not what this side's
    /// configuration asks for.
    pub fn connect(self, other: &Cookie) -> Result<P, Error> {
        let Self { fabric, local, config, .. } = self;
        let remote = fabric.map(other)?;
        let (expected, found) = (P::theirs(&config)?, remote.len());
        if found != expected {
            return Err(Error::Mismatch { expected, found });
        }
        debug_assert_eq!(Ok(local.len()), P::ours(&config).map_err(drop));
        P::join(Joint { fabric, local, remote }, config)
    }
}

impl<F: Fabric, P: Connect<F>> fmt::Debug for Half<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Half").field("cookie", &self.cookie).field("config", &self.config).finish()
    }
}
