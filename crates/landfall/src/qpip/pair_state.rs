//! [`PairState`]: what the adapter tells the holder of a queue pair, beside
//! completions.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use qpip::{CloseReason, Operation};

use super::error::Error;
use crate::runtime::locked;

/// Where a queue pair stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Not connected, nor bound; or bound, for datagrams.
    #[default]
    Idle,
    /// It waits at a listener, or for the other side's answer.
    Opening,
    /// Connected.
    Connected,
    /// Connected, and the other side sends no more.
    PeerFinished,
    /// It was connected, or did not come to it; create another one.
    Closed(CloseReason),
}

impl Phase {
    const fn code(self) -> u8 {
        match self {
            Self::Idle => 0,
            Self::Opening => 1,
            Self::Connected => 2,
            Self::PeerFinished => 3,
            Self::Closed(_) => 4,
        }
    }
}

#[derive(Debug, Default)]
struct PendingUpdates {
    phase: Phase,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    is_gone: bool,
    watchers: Vec<Waker>,
}

/// State of a queue pair that its holder reads without the adapter's lock.
#[derive(Debug, Default)]
pub(crate) struct PairState {
    /// Requests that are done, ever: so much room there is again.
    sends_done: AtomicU32,
    receives_done: AtomicU32,
    phase: AtomicU8,
    /// Both ends have agreed on words with messages.
    takes_words: AtomicBool,
    news: Mutex<PendingUpdates>,
}

impl PairState {
    fn counter(&self, operation: Operation) -> &AtomicU32 {
        match operation {
            Operation::Send => &self.sends_done,
            Operation::Receive => &self.receives_done,
        }
    }

    #[inline]
    pub(crate) fn done(&self, operation: Operation) -> u32 {
        self.counter(operation).load(Ordering::Acquire)
    }

    /// One more is done. Only the adapter calls this, one thread at a time.
    #[inline]
    pub(crate) fn count_done(&self, operation: Operation) {
        let counter = self.counter(operation);
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Is it known that words may be posted with messages?
    pub(crate) fn takes_words(&self) -> bool {
        self.takes_words.load(Ordering::Relaxed)
    }

    /// It is, from now on.
    pub(crate) fn agree_on_words(&self) {
        self.takes_words.store(true, Ordering::Relaxed);
    }

    /// Is the connection over?
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Closed(CloseReason::Finished).code()
    }

    /// Is the connection asked for, or waited for, and nothing told of it?
    pub(crate) fn is_opening(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Opening.code()
    }

    pub(crate) fn phase(&self) -> Phase {
        locked(&self.news).phase
    }

    pub(crate) fn ends(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let news = locked(&self.news);
        (news.local, news.remote)
    }

    /// Something changed; who waits is to be woken, without the adapter's lock.
    fn tell(&self, wake: &mut Vec<Waker>, change: impl FnOnce(&mut PendingUpdates)) {
        let mut news = locked(&self.news);
        change(&mut news);
        self.phase.store(news.phase.code(), Ordering::Release);
        wake.append(&mut news.watchers);
    }

    pub(crate) fn enter(&self, wake: &mut Vec<Waker>, phase: Phase) {
        self.tell(wake, |news| {
            // The end is the end, whatever is told late.
            if !matches!(news.phase, Phase::Closed(_)) {
                news.phase = phase;
            }
        });
    }

    pub(crate) fn connect(&self, wake: &mut Vec<Waker>, local: SocketAddr, remote: SocketAddr) {
        self.tell(wake, |news| {
            news.phase = Phase::Connected;
            (news.local, news.remote) = (Some(local), Some(remote));
        });
    }

    pub(crate) fn bind(&self, local: SocketAddr) {
        locked(&self.news).local = Some(local);
    }

    /// The adapter does not run any more.
    pub(crate) fn lose(&self, wake: &mut Vec<Waker>) {
        self.tell(wake, |news| news.is_gone = true);
    }

    /// Waits until the phase is one that `is_it` takes something from.
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        is_it: impl FnOnce(Phase) -> Option<T>,
    ) -> Poll<Result<T, Error>> {
        let mut news = locked(&self.news);
        if let Some(found) = is_it(news.phase) {
            return Poll::Ready(Ok(found));
        }
        if news.is_gone {
            return Poll::Ready(Err(Error::AdapterGone));
        }
        let oldest = watch(&mut news.watchers, cx.waker());
        drop(news);
        oldest.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

/// Remembers a waker once, and not without bound: handles that are polled by
/// ever new tasks leave wakers behind. At the bound it gives the oldest, to be
/// woken without a lock.
pub(crate) fn watch(watchers: &mut Vec<Waker>, waker: &Waker) -> Option<Waker> {
    const MOST: usize = 64;
    if watchers.iter().any(|known| known.will_wake(waker)) {
        return None;
    }
    let oldest = (watchers.len() >= MOST).then(|| watchers.remove(0));
    watchers.push(waker.clone());
    oldest
}
