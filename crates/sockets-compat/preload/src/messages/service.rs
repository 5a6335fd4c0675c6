//! The service: one thread that carries the messages of all sockets of this process.
//!
//! It runs tasks, and sleeps in `poll` on what they wait for: the service's ends of the pairs,
//! and a bell that wakers and orders ring. It begins with the first order. A child of a
//! fork has no service until it gives an order of its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::future::Future;
use std::mem::zeroed;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::carriers::{self, Hosts};
use super::exchange::Mapped;
use super::packets::{self, File};
use crate::kernel::{self, Errno};
use crate::lock::Locked;

/// The longest message that is taken, where the program has not said it.
pub(super) const USUAL_LIMIT: c_int = 1 << 20;
/// How long a program that ends waits for its last messages to arrive.
const FAREWELL: Duration = Duration::from_secs(5);

/// What carries STP: chosen by `LANDFALL_STP`, alike at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StpCarrier {
    /// Datagrams of UDP to and from this port.
    Udp(u16),
    /// Protocol 118 of IP itself, which takes privileges.
    Ip,
}

impl StpCarrier {
    pub(super) fn chosen() -> Result<Self, Errno> {
        const ENOPROTOOPT: Errno = Errno(libc::ENOPROTOOPT);
        let Some(text) = std::env::var_os("LANDFALL_STP") else {
            return Ok(Self::Udp(sockets_compat::STP_UDP_PORT));
        };
        match text.to_str() {
            Some("ip") => Ok(Self::Ip),
            Some("" | "udp") => Ok(Self::Udp(sockets_compat::STP_UDP_PORT)),
            Some(text) => text
                .strip_prefix("udp/")
                .and_then(|port| port.parse().ok())
                .map(Self::Udp)
                .ok_or(ENOPROTOOPT),
            None => Err(ENOPROTOOPT),
        }
    }
}

/// What came of the wish to listen: the name, or why not and the service's end back.
pub(super) type Listened = (Result<SocketAddr, Errno>, Option<(File, Mapped)>);

/// What the service is asked to do with a service's end.
pub(super) enum Order {
    Connect {
        service_end: File,
        page: Mapped,
        address: SocketAddr,
        transport: StpCarrier,
    },
    Listen {
        service_end: File,
        page: Mapped,
        address: SocketAddr,
        transport: StpCarrier,
        tell: SyncSender<Listened>,
    },
}

struct Service {
    orders: Sender<Order>,
    bell: Arc<Bell>,
}

static SERVICE: Locked<Option<Service>> = Locked::new(None);
/// ServiceEnd ends that the service of this process has.
static SERVICE_ENDS: Locked<Vec<c_int>> = Locked::new(Vec::new());
/// Connections whose program may still have sent something.
static LIVE: AtomicU32 = AtomicU32::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Gives an order, to a service that begins with it if there is none.
pub(super) fn order(order: Order) -> Result<(), Errno> {
    SERVICE.with(|service| {
        if service.is_none() {
            *service = Some(begin()?);
        }
        let Some(service) = service else { return Err(Errno(libc::ENOBUFS)) };
        service.orders.send(order).map_err(|_| Errno(libc::ENOBUFS))?;
        service.bell.ring();
        Ok(())
    })
}

fn begin() -> Result<Service, Errno> {
    let (orders, inbox) = channel();
    let bell = Arc::new(Bell { counter: File::counter()?, has_rung: AtomicBool::new(false) });
    let for_thread = Arc::clone(&bell);
    // Signals are for the program's own threads. What is started here, and by what is
    // started here, has this mask.
    // SAFETY: sets of ours; all signals is a valid one.
    let before = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let thread = std::thread::Builder::new().name("landfall-stp".into());
    let started = thread.spawn(move || ServiceThread::new(for_thread).run(&inbox));
    // SAFETY: the set that was in force.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started.map_err(|_| Errno(libc::EAGAIN))?;
    Ok(Service { orders, bell })
}

/// Before a fork, and after it.
pub(crate) fn stands_still() {
    SERVICE.stands_still();
    SERVICE_ENDS.stands_still();
}

pub(crate) fn goes_on() {
    SERVICE_ENDS.goes_on();
    SERVICE.goes_on();
}

/// In a child of a fork: the thread is not here, and its ends are the parent's.
pub(crate) fn after_fork() {
    // What it shares with its thread may be locked for ever: it is left as it lies.
    SERVICE.with(|service| std::mem::forget(service.take()));
    for fd in SERVICE_ENDS.with(std::mem::take) {
        let _ = kernel::close(fd);
    }
    LIVE.store(0, Ordering::Relaxed);
    IS_ENDING.store(false, Ordering::Relaxed);
}

/// The program ends: what it has sent still arrives, and the others hear that it is over.
pub(crate) fn end() {
    if LIVE.load(Ordering::Acquire) == 0 {
        return;
    }
    IS_ENDING.store(true, Ordering::SeqCst);
    SERVICE_ENDS.with(|ends| {
        ends.iter().for_each(|service_end| packets::shut(*service_end, libc::SHUT_RD));
    });
    let begin = Instant::now();
    loop {
        let live = LIVE.load(Ordering::Acquire);
        if live == 0 || begin.elapsed() >= FAREWELL {
            return;
        }
        let _ = kernel::sleep_on(&LIVE, live, 50);
    }
}

pub(super) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// The service's end of a pair.
#[derive(Debug)]
pub(super) struct ServiceEnd(File);

impl ServiceEnd {
    pub(super) fn new(file: File) -> Self {
        SERVICE_ENDS.with(|ends| ends.push(file.fd()));
        Self(file)
    }

    pub(super) fn fd(&self) -> c_int {
        self.0.fd()
    }
}

impl Drop for ServiceEnd {
    fn drop(&mut self) {
        SERVICE_ENDS.with(|ends| ends.retain(|fd| *fd != self.0.fd()));
    }
}

/// A connection that a program which ends has to wait for.
#[derive(Debug)]
pub(super) struct LingerGuard(());

impl LingerGuard {
    pub(super) fn new() -> Self {
        LIVE.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for LingerGuard {
    fn drop(&mut self) {
        if LIVE.fetch_sub(1, Ordering::AcqRel) == 1 {
            kernel::wake(&LIVE, i32::MAX);
        }
    }
}

#[derive(Debug)]
struct Bell {
    counter: File,
    has_rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        if !self.has_rung.swap(true, Ordering::SeqCst) {
            self.counter.count(1);
        }
    }

    fn silence(&self) {
        if self.has_rung.load(Ordering::SeqCst) {
            self.counter.counted();
            self.has_rung.store(false, Ordering::SeqCst);
        }
    }
}

type Job = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    job: Job,
    call: Arc<Call>,
}

/// The waker of a task.
struct Call {
    is_due: AtomicBool,
    bell: Arc<Bell>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::SeqCst);
        self.bell.ring();
    }
}

/// What tasks ask of the thread that runs them.
#[derive(Default)]
struct ServiceRequests {
    jobs: Vec<Job>,
    ready: BTreeMap<(c_int, i16), Waker>,
    deadlines: Vec<(Instant, Waker)>,
}

thread_local! {
    static WISHES: RefCell<ServiceRequests> = RefCell::default();
}

/// Another task.
pub(super) fn spawn(job: impl Future<Output = ()> + 'static) {
    WISHES.with_borrow_mut(|wishes| wishes.jobs.push(Box::pin(job)));
}

/// Waits until a descriptor is ready for these events, or over; gives what it is.
pub(super) async fn ready(fd: c_int, events: i16) -> i16 {
    std::future::poll_fn(|cx| match kernel::poll_one(fd, events, 0) {
        Ok(0) => {
            let wish = (fd, events);
            WISHES.with_borrow_mut(|wishes| wishes.ready.insert(wish, cx.waker().clone()));
            Poll::Pending
        }
        Ok(found) => Poll::Ready(found),
        Err(_) => Poll::Ready(libc::POLLERR),
    })
    .await
}

/// Waits for a future, but not longer than that.
pub(super) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let deadline = Instant::now() + limit;
    let (mut future, mut is_wished) = (std::pin::pin!(future), false);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if Instant::now() >= deadline => Poll::Ready(None),
        Poll::Pending => {
            if !std::mem::replace(&mut is_wished, true) {
                let wish = (deadline, cx.waker().clone());
                WISHES.with_borrow_mut(|wishes| wishes.deadlines.push(wish));
            }
            Poll::Pending
        }
    })
    .await
}

/// The thread.
struct ServiceThread {
    bell: Arc<Bell>,
    tasks: Vec<Task>,
    hosts: Hosts,
}

impl ServiceThread {
    fn new(bell: Arc<Bell>) -> Self {
        Self { bell, tasks: Vec::new(), hosts: Hosts::default() }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            self.bell.silence();
            while let Ok(order) = orders.try_recv() {
                carriers::begin(&mut self.hosts, order);
            }
            self.take_in();
            if !self.run_those_that_are_due() {
                self.sleep();
            }
        }
    }

    fn take_in(&mut self) {
        for job in WISHES.with_borrow_mut(|wishes| std::mem::take(&mut wishes.jobs)) {
            let call = Call { is_due: AtomicBool::new(true), bell: Arc::clone(&self.bell) };
            self.tasks.push(Task { job, call: Arc::new(call) });
        }
    }

    /// Whether there were some.
    fn run_those_that_are_due(&mut self) -> bool {
        let mut ran = false;
        self.tasks.retain_mut(|task| {
            if !task.call.is_due.swap(false, Ordering::SeqCst) {
                return true;
            }
            ran = true;
            let waker = Waker::from(Arc::clone(&task.call));
            task.job.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        ran
    }

    fn sleep(&self) {
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut entries = vec![entry(self.bell.counter.fd(), libc::POLLIN)];
        let first = WISHES.with_borrow(|wishes| {
            entries.extend(wishes.ready.keys().map(|&(fd, events)| entry(fd, events)));
            wishes.deadlines.iter().map(|(deadline, _)| *deadline).min()
        });
        let limit = first.map(|first| first.saturating_duration_since(Instant::now()));
        let _ = kernel::poll(&mut entries, limit, std::ptr::null());
        let now = Instant::now();
        let woken = WISHES.with_borrow_mut(|wishes| {
            let ready = entries[1..].iter().filter(|entry| entry.revents != 0);
            let mut woken: Vec<Waker> =
                ready.filter_map(|entry| wishes.ready.remove(&(entry.fd, entry.events))).collect();
            let over = wishes.deadlines.extract_if(.., |(deadline, _)| *deadline <= now);
            woken.extend(over.map(|(_, waker)| waker));
            woken
        });
        woken.into_iter().for_each(Waker::wake);
    }
}
