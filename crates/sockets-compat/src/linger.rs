//! What happens behind a socket that was dropped: its last bytes still have to arrive,
//! and nobody is left to wait for that.
//!
//! One thread of the process sees them off, for a bounded time each. It is there while
//! there is something to do.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::waiting::locked;

type Last = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls a future until it is done, or for so long at most; then it is dropped.
pub(crate) fn see_off(limit: Duration, last: impl Future<Output = ()> + Send + 'static) {
    let Some(deadline) = Instant::now().checked_add(limit) else { return };
    let mut parlour = locked(&LINGERING);
    if parlour.count >= MOST {
        drop(parlour);
        // Without a goodbye.
        drop(last);
        return;
    }
    parlour.count += 1;
    parlour.arrived.push((deadline, Box::pin(last)));
    match &parlour.thread {
        Some(thread) => thread.unpark(),
        None => {
            let started = thread::Builder::new().name("sockets-linger".into()).spawn(work);
            match started {
                Ok(thread) => parlour.thread = Some(thread.thread().clone()),
                Err(_) => {
                    let arrived = std::mem::take(&mut parlour.arrived);
                    parlour.count = 0;
                    drop(parlour);
                    drop(arrived);
                }
            }
        }
    }
}

/// This many at a time.
const MOST: usize = 1 << 16;

struct LingerQueue {
    arrived: Vec<(Instant, Last)>,
    /// Those that have arrived, with those that the thread has.
    count: usize,
    thread: Option<Thread>,
}

static LINGERING: Mutex<LingerQueue> =
    Mutex::new(LingerQueue { arrived: Vec::new(), count: 0, thread: None });

/// One that the thread sees off.
struct LingeringSocket {
    deadline: Instant,
    last: Last,
    call: Arc<Call>,
}

/// It has to be looked at.
struct Call {
    is_due: AtomicBool,
    thread: Thread,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.is_due.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn work() {
    let mut leaving: Vec<LingeringSocket> = Vec::new();
    loop {
        let gone = leaving.len();
        leaving.retain_mut(LingeringSocket::stays);
        let gone = gone - leaving.len();
        let mut parlour = locked(&LINGERING);
        parlour.count = parlour.count.saturating_sub(gone);
        let arrived = std::mem::take(&mut parlour.arrived);
        if arrived.is_empty() && leaving.is_empty() {
            parlour.thread = None;
            return;
        }
        drop(parlour);
        if arrived.is_empty() {
            let next = leaving.iter().map(|leaving| leaving.deadline).min();
            let now = Instant::now();
            if !leaving.iter().any(|leaving| leaving.call.is_due.load(Ordering::SeqCst)) {
                thread::park_timeout(
                    next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now)),
                );
            }
        }
        leaving.extend(arrived.into_iter().map(|(deadline, last)| {
            let call = Call { is_due: AtomicBool::new(true), thread: thread::current() };
            LingeringSocket { deadline, last, call: Arc::new(call) }
        }));
    }
}

impl LingeringSocket {
    /// Is it still there after a look?
    fn stays(&mut self) -> bool {
        if self.call.is_due.swap(false, Ordering::SeqCst) {
            let waker = Waker::from(Arc::clone(&self.call));
            if self.last.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                return false;
            }
        }
        Instant::now() < self.deadline
    }
}
