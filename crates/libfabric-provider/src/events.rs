//! [`Events`]: an event queue: what happens to connections of `FI_EP_MSG`, and what the program
//! itself writes there.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::completion::{Failure, Texts};
use crate::notify::{Event, Notify, locked};
use crate::passive::Passive;
use crate::process::Origin;

/// This much may wait to be read before the program itself may write no more. What happens to
/// connections is bounded by their number.
const MOST_NOTICES: usize = 1 << 12;

/// Something that happened, or that the program wrote.
#[derive(Debug)]
pub(crate) struct Notice {
    /// The handle that it is about, and what the program knows it by.
    pub(crate) fid: usize,
    pub(crate) context: usize,
    pub(crate) what: Occurrence,
    /// What the other side says along, or what the program wrote.
    pub(crate) data: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum Occurrence {
    Request(Request),
    Connected,
    Shutdown,
    Failed(Failure),
    /// The program's own, with this number.
    Written(u32),
}

/// Somebody wants to connect.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) passive: Weak<Passive>,
    /// By which it is accepted.
    pub(crate) id: u64,
    pub(crate) from: SocketAddr,
    /// What the program was given for it when it looked without taking; else 0.
    pub(crate) info: usize,
}

/// Whatever makes turns of the network for those who wait for its events.
pub(crate) trait Source: Send + Sync + std::fmt::Debug {
    fn progress(&self);
}

/// What is behind the lock.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) texts: Texts,
    /// What came with the error that was read last: the program may look at it until it reads
    /// again.
    pub(crate) last: Vec<u8>,
}

impl Queued {
    pub(crate) fn has_error(&self) -> bool {
        self.notices.front().is_some_and(|notice| matches!(notice.what, Occurrence::Failed(_)))
    }

    /// The next error: what it is about, and its number and text.
    pub(crate) fn take_error(&mut self) -> Option<(Notice, c_int, c_int)> {
        if !self.has_error() {
            return None;
        }
        let mut notice = self.notices.pop_front()?;
        let Occurrence::Failed(failure) = &mut notice.what else { return None };
        let (error, text) = (failure.error, std::mem::take(&mut failure.text));
        self.last = std::mem::take(&mut notice.data);
        let number = self.texts.keep(text);
        Some((notice, error, number))
    }
}

/// An event queue.
#[derive(Debug)]
pub(crate) struct Events {
    origin: Origin,
    queued: Mutex<Queued>,
    sources: Mutex<Vec<Weak<dyn Source>>>,
    pub(crate) event: Arc<Event>,
}

impl Events {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        let queued = Queued { notices: VecDeque::new(), texts: Texts::new(), last: Vec::new() };
        let sources = Mutex::default();
        let (origin, event) = (Origin::here(), Event::new()?);
        Ok(Arc::new(Self { origin, queued: Mutex::new(queued), sources, event }))
    }

    /// Was it opened in this process? A child of it may use nothing of it.
    pub(crate) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// What happens there is reported here from now on.
    pub(crate) fn follow(&self, source: &Arc<dyn Source>, notify: &Notify) {
        let mut sources = locked(&self.sources);
        sources.retain(|known| known.strong_count() > 0);
        if !sources.iter().any(|known| known.ptr_eq(&Arc::downgrade(source))) {
            sources.push(Arc::downgrade(source));
            notify.watch(&self.event);
        }
    }

    pub(crate) fn push(&self, notice: Notice) {
        self.lock().notices.push_back(notice);
        self.event.ring();
    }

    /// A handle is closed: nothing is told of it any more.
    pub(crate) fn forget(&self, fid: usize) {
        self.lock()
            .notices
            .retain(|notice| notice.fid != fid || matches!(notice.what, Occurrence::Written(_)));
    }

    /// A connection that was asked for is gone, before the program has heard of it.
    pub(crate) fn withdraw(&self, fid: usize, request: u64) {
        let is_it = |notice: &Notice| {
            notice.fid == fid
                && matches!(&notice.what, Occurrence::Request(known) if known.id == request)
        };
        self.lock().notices.retain(|notice| !is_it(notice));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().notices.len() >= MOST_NOTICES
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queued> {
        locked(&self.queued)
    }

    /// Looks at all that may have happened, if nothing waits yet.
    pub(crate) fn progress(&self) {
        if !self.lock().notices.is_empty() {
            return;
        }
        let sources: Vec<_> = locked(&self.sources).iter().filter_map(Weak::upgrade).collect();
        sources.iter().for_each(|source| source.progress());
    }

    /// May a program sleep at the descriptor? Not while something waits.
    pub(crate) fn may_sleep(&self) -> bool {
        self.event.arm();
        // What happened before it was armed shows here, what happens later rings it.
        self.progress();
        self.lock().notices.is_empty()
    }
}
