//! What both sides of a run have in common: core and namespace, how they meet, and how one
//! ends when the other does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall_placement::Peer;
use landfall_testbed::cpu;
use landfall_testbed::rivals::WorkerPlace;

/// Said by a side that ended because the other did.
#[derive(Debug)]
pub(crate) struct OtherSideEnded;

impl std::fmt::Display for OtherSideEnded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the other side ended early")
    }
}

impl std::error::Error for OtherSideEnded {}

/// What one side tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// Its name; none once it is ready.
    Met(Option<Peer>),
    /// It has ended.
    Over,
}

/// Hears updates for a side that is in another process.
#[derive(Clone)]
pub(crate) struct RemoteSide(Arc<dyn Fn(Update) + Send + Sync>);

impl RemoteSide {
    pub(crate) fn new(tell: impl Fn(Update) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for RemoteSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteSide")
    }
}

/// What both sides see.
#[derive(Debug, Default)]
pub(crate) struct RunState {
    over: AtomicBool,
    remote: Option<RemoteSide>,
}

impl RunState {
    /// With a side in another process, whose updates come by [`hear`](Self::hear).
    pub(crate) fn with_remote(remote: RemoteSide) -> Self {
        Self { remote: Some(remote), ..Self::default() }
    }

    /// Takes an update of a side in another process.
    pub(crate) fn hear(&self, news: Update) {
        match news {
            Update::Met(_) => {}
            Update::Over => self.over.store(true, Ordering::Relaxed),
        }
    }

    fn tell(&self, news: Update) {
        self.hear(news);
        if let Some(RemoteSide(tell)) = &self.remote {
            tell(news);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Tells the other side, however the holder ends.
    pub(crate) fn end_when_dropped(&self) -> impl Drop + '_ {
        struct End<'a>(&'a RunState);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.tell(Update::Over);
            }
        }
        End(self)
    }
}

/// Where the two sides exchange their names before they begin. A side that
/// ends before hangs up, so nobody waits for it.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    tell: AddressReport,
    hear: Receiver<Option<Peer>>,
    limit: Duration,
}

#[derive(Debug)]
enum AddressReport {
    Here(Sender<Option<Peer>>),
    RemoteSide(RemoteSide),
}

impl Rendezvous {
    pub(super) fn between_two(limit: Duration) -> (Self, Self) {
        let ((tell_b, hear_a), (tell_a, hear_b)) = (channel(), channel());
        let side = |tell, hear| Self { tell: AddressReport::Here(tell), hear, limit };
        (side(tell_a, hear_a), side(tell_b, hear_b))
    }

    /// With a side that is remote: what it says is put into the channel.
    pub(crate) fn with_remote(remote: RemoteSide, limit: Duration) -> (Self, Sender<Option<Peer>>) {
        let (put, hear) = channel();
        (Self { tell: AddressReport::RemoteSide(remote), hear, limit }, put)
    }

    /// Tells the own name, and waits for the other's.
    pub(crate) fn exchange(&self, own: Peer) -> Result<Peer> {
        self.meet(Some(own))?.context("the two sides are out of step")
    }

    /// Waits until both sides are ready.
    pub(crate) fn ready(&self) -> Result<()> {
        self.meet(None).map(drop)
    }

    fn meet(&self, word: Option<Peer>) -> Result<Option<Peer>> {
        match &self.tell {
            AddressReport::Here(other) => other.send(word).map_err(|_| OtherSideEnded)?,
            AddressReport::RemoteSide(RemoteSide(tell)) => tell(Update::Met(word)),
        }
        Ok(self.hear.recv_timeout(self.limit).map_err(|_| OtherSideEnded)?)
    }
}

/// Moves the calling thread to the core and into the namespace of its side.
pub(crate) fn place_thread(side: &WorkerPlace) -> Result<()> {
    if let Some(core) = side.core {
        cpu::pin_this_thread(core)?;
    }
    if let Some(namespace) = &side.namespace {
        namespace.join_this_thread()?;
    }
    Ok(())
}

/// Both results, or the error that explains the other.
pub(crate) fn both<S, R>(send: Result<S>, receive: Result<R>) -> Result<(S, R)> {
    match (send, receive) {
        (Ok(send), Ok(receive)) => Ok((send, receive)),
        (Err(error), Err(other)) if error.is::<OtherSideEnded>() => {
            Err(other.context("the receiving side"))
        }
        (Err(error), _) => Err(error.context("the sending side")),
        (_, Err(error)) => Err(error.context("the receiving side")),
    }
}

/// What a thread gave, or that it panicked.
pub(crate) fn joined<T>(thread: std::thread::Result<Result<T>>) -> Result<T> {
    thread.unwrap_or_else(|_| bail!("a thread panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_side_that_fails_is_not_waited_for() {
        let (one, other) = Rendezvous::between_two(Duration::from_secs(60));
        let waiting = thread::spawn(move || one.exchange(Peer::Node(1)));
        drop(other);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(error.is::<OtherSideEnded>());
    }

    #[test]
    fn the_error_that_explains_the_other_is_told() {
        let ended = || Err::<(), _>(OtherSideEnded.into());
        let reason = || Err::<(), _>(anyhow::anyhow!("no such path"));
        for outcome in [both(ended(), reason()), both(reason(), ended())] {
            assert!(format!("{:#}", outcome.unwrap_err()).contains("no such path"));
        }
    }
}
