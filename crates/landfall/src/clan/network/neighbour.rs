//! [`Link`], and what handles know of the host at its other end.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use clan_dsm::{Ended, HostId, LinkId};
use landfall_placement::Peer;
use landfall_seal::{HandshakeError, PeerIdentity};

use super::builder::ended;
use super::engines::EngineHandle;
use super::state::{NodeState, Submission};
use crate::clan::Error;
use crate::runtime::locked;

const OPENING: u8 = 0;
const UP: u8 = 1;
const DOWN: u8 = 2;

/// A link, as its handles see it: one look at an atomic says whether it is up.
#[derive(Debug)]
pub(crate) struct Neighbour {
    pub(crate) link: LinkId,
    /// Where it was when the link came to be.
    peer: Peer,
    /// What the engine calls it: where the way is encrypted it is not the same.
    pub(crate) name: Peer,
    state: AtomicU8,
    rest: Mutex<Rest>,
}

#[derive(Debug, Default)]
struct Rest {
    host: Option<HostId>,
    why: Option<Ended>,
    /// There are no keys for it: why, and what to do.
    no_keys: Option<(HandshakeError, String)>,
    watchers: Vec<Waker>,
}

impl Neighbour {
    pub(crate) fn opening(link: LinkId, peer: Peer, name: Peer) -> Arc<Self> {
        let (state, rest) = (AtomicU8::new(OPENING), Mutex::default());
        Arc::new(Self { link, peer, name, state, rest })
    }

    /// Where it was when the link came to be.
    pub(crate) const fn peer(&self) -> Peer {
        self.peer
    }

    /// Is the way to it encrypted?
    pub(crate) fn is_sealed(&self) -> bool {
        self.name != self.peer
    }

    /// There are no keys for it, and will be none.
    pub(crate) fn note_no_keys(&self, why: HandshakeError, advice: String) {
        locked(&self.rest).no_keys = Some((why, advice));
    }

    fn no_keys(&self) -> Option<Error> {
        let (why, advice) = locked(&self.rest).no_keys.clone()?;
        Some(Error::NoKeys { peer: self.peer, why, advice })
    }

    /// The link is up. Returns the tasks to wake.
    pub(crate) fn set_up(&self, host: HostId) -> Vec<Waker> {
        let mut rest = locked(&self.rest);
        rest.host = Some(host);
        self.state.store(UP, Ordering::SeqCst);
        std::mem::take(&mut rest.watchers)
    }

    /// The link is down. Returns the tasks to wake.
    pub(crate) fn set_down(&self, why: Ended) -> Vec<Waker> {
        let mut rest = locked(&self.rest);
        rest.why = rest.why.or(Some(why));
        self.state.store(DOWN, Ordering::SeqCst);
        std::mem::take(&mut rest.watchers)
    }

    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.state.load(Ordering::SeqCst) == UP
    }

    /// # Errors
    /// It is not up.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_up() { Ok(()) } else { Err(Error::PeerLost) }
    }

    pub(crate) fn host(&self) -> Option<HostId> {
        locked(&self.rest).host
    }

    pub(crate) fn why(&self) -> Option<Ended> {
        locked(&self.rest).why
    }

    /// Waits for a change, unless `is_so` already.
    fn poll_state(&self, context: &mut Context<'_>, is_so: impl Fn(u8) -> bool) -> Poll<()> {
        let mut rest = locked(&self.rest);
        if is_so(self.state.load(Ordering::SeqCst)) {
            return Poll::Ready(());
        }
        let before = NodeState::watch(&mut rest.watchers, context.waker());
        drop(rest);
        before.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

/// The way to another node. Clones are the same link; it stays open when the last
/// is dropped, for the windows that lead through it.
#[derive(Clone, Debug)]
pub struct Link {
    handle: EngineHandle,
    neighbour: Arc<Neighbour>,
}

impl Link {
    pub(crate) const fn new(handle: EngineHandle, neighbour: Arc<Neighbour>) -> Self {
        Self { handle, neighbour }
    }

    /// The host at the other end, once it has answered.
    #[must_use]
    pub fn host(&self) -> Option<HostId> {
        self.neighbour.host()
    }

    /// Where the other end is, while there is a link.
    #[must_use]
    pub fn peer(&self) -> Option<Peer> {
        let link = self.neighbour.link;
        self.handle.look(|core| core.peer_at(link))
    }

    /// Who the other end has proven to be. Nothing where the link is plain, or over for a while.
    ///
    /// ```
    /// use landfall::clan::network::{HostId, Node, PeerIdentity, Transport};
    ///
    /// let open = |host| {
    ///     let path = Transport::udp("127.0.0.1:0".parse().unwrap());
    ///     Node::builder(HostId::new(host).unwrap()).path(path).encrypt_loopback().open()
    /// };
    /// let (here, there) = (open(1)?, open(2)?);
    /// let link = here.link(there.local().unwrap())?;
    /// link.wait_up(None)?;
    /// let Some(PeerIdentity::PublicKey(key)) = link.peer_identity() else { panic!() };
    /// assert_eq!(Some(key.fingerprint()), there.fingerprint());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        let name = self.neighbour.name;
        self.neighbour.is_sealed().then(|| self.handle.look(|core| core.engine.identity(name)))?
    }

    /// Is it encrypted and authenticated?
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.neighbour.is_sealed()
    }

    /// Is it up? It costs a load.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.neighbour.is_up()
    }

    /// Why it is over, if it is.
    #[must_use]
    pub fn why(&self) -> Option<Ended> {
        self.neighbour.why()
    }

    /// Waits until the other end answers; gives its host.
    ///
    /// # Errors
    /// [`Error::NoRoute`]: nobody answers. [`Error::Refused`]: somebody does not
    /// want to. [`Error::NoKeys`]: there are no keys to encrypt with, since the other end is not
    /// who it should be, or does not encrypt.
    pub async fn up(&self) -> Result<HostId, Error> {
        poll_fn(|context| self.neighbour.poll_state(context, |state| state != OPENING)).await;
        if let Some(no_keys) = self.neighbour.no_keys() {
            return Err(no_keys);
        }
        match (self.neighbour.host(), self.neighbour.why()) {
            (Some(host), None) => Ok(host),
            (_, Some(Ended::There(reason))) => Err(Error::Refused(reason)),
            _ if self.handle.has_ended() => Err(Error::NodeGone),
            _ => Err(Error::NoRoute),
        }
    }

    /// The same on this thread, which drives the node meanwhile.
    ///
    /// # Errors
    /// Those of [`up`](Self::up), and [`Error::TimedOut`].
    pub fn wait_up(&self, deadline: Option<Instant>) -> Result<HostId, Error> {
        self.handle.block_on(self.up(), deadline)?.ok_or(Error::TimedOut)?
    }

    /// Waits until it is over; gives why.
    pub async fn down(&self) -> Ended {
        poll_fn(|context| self.neighbour.poll_state(context, |state| state == DOWN)).await;
        self.neighbour.why().unwrap_or(Ended::Here)
    }

    /// The same on this thread; nothing if it is not over before the deadline.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn wait_down(&self, deadline: Option<Instant>) -> Result<Option<Ended>, Error> {
        self.handle.block_on(self.down(), deadline)
    }

    /// Ends it, and all that goes over it. The other end hears of it.
    pub fn close(&self) {
        self.handle.submit(Submission::CloseLink(self.neighbour.link));
    }

    /// Is it up, and if not, what does that mean?
    ///
    /// # Errors
    /// It is over, or not up yet.
    pub fn check(&self) -> Result<(), Error> {
        match (self.neighbour.no_keys(), self.neighbour.why()) {
            (Some(no_keys), _) => Err(no_keys),
            (None, Some(why)) => Err(ended(why)),
            (None, None) => self.neighbour.check(),
        }
    }
}
