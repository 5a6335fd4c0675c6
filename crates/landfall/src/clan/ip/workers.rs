//! The threads: one takes packets from the kernel, one opens the door to those who
//! ask, and one for each connection hands packets to the kernel.
//!
//! A thread that waits in a blocking call of the node makes its turns meanwhile, and one
//! of them sleeps at its descriptors. One such thread is enough: more would take turns
//! from each other, and look for work ten thousand times a second. So one of the threads
//! of connections does that, and all others wait aside, without driving the node.
//!
//! Towards the kernel: buffers are put there, and come back filled.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::IoSlice;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use clan_dsm::{ConnectRequest, Cookie, HostId, Notice, Reason};
use landfall_placement::Peer;
use landfall_transport::tap::{FrameReader, FrameWriter};

use super::builder::{ClanIpStats, Counts};
use super::kernel::FromKernel;
use super::outgoing::{ROOM, in_other_order};
use super::switchboard::{ConnectDecision, Held, Route, Switchboard, Way};
use super::terms::{BUFFER, Completion, Connection, Offer, Terms};
use super::{ClanIpError, terms};
use crate::clan::layer::queue::{Receiver, Sender};
use crate::clan::network::{Aperture, Endpoint, Node};
use crate::clan::{Error, Local, Misbehaviour};
use crate::runtime::{ThreadWaker, locked};

/// Nobody waits longer until he looks whether it is over.
pub(super) const LOOK_UP: Duration = Duration::from_millis(50);
/// For so long a connection is tried to be made.
const MEETING: Duration = Duration::from_secs(3);
/// Packets from a connection between two looks at whether it is still the one.
const STRIDE: u32 = 256;
/// Connections that are made or end at the same time, beyond one for each neighbour.
const SPARE_THREADS: usize = 16;

/// What the threads share with each other and with the owner.
#[derive(Debug)]
pub(super) struct Shared {
    node: Node,
    terms: Terms,
    tap: FrameWriter,
    neighbours: BTreeMap<HostId, Peer>,
    board: Switchboard,
    pub(super) counts: Counts,
    over: AtomicBool,
    error: Mutex<Option<ClanIpError>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Threads of connections.
    busy: AtomicUsize,
    /// Which of them drives the node.
    wheel: Wheel,
}

impl Shared {
    pub(super) fn new(
        node: Node,
        terms: Terms,
        tap: FrameWriter,
        neighbours: BTreeMap<HostId, Peer>,
    ) -> Self {
        let board = Switchboard::new(node.host());
        Self {
            node,
            terms,
            tap,
            neighbours,
            board,
            counts: Counts::default(),
            over: AtomicBool::new(false),
            error: Mutex::new(None),
            threads: Mutex::new(Vec::new()),
            busy: AtomicUsize::new(0),
            wheel: Wheel::default(),
        }
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    pub(super) fn stats(&self) -> ClanIpStats {
        self.counts.read()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// All threads end, and are waited for.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        // Those that are joined start no others: it is over.
        while let Some(thread) = { locked(&self.threads).pop() } {
            if thread.thread().id() != thread::current().id() {
                // One that panicked has ended as well.
                let _ = thread.join();
            }
        }
    }

    pub(super) fn take_error(&self) -> Option<ClanIpError> {
        locked(&self.error).take()
    }

    /// Something broke that nothing here can mend.
    pub(super) fn fail(&self, error: ClanIpError) {
        locked(&self.error).get_or_insert(error);
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn neighbours(&self) -> impl Iterator<Item = HostId> + '_ {
        self.neighbours.keys().copied()
    }

    pub(super) fn is_neighbour(&self, host: HostId) -> bool {
        self.neighbours.contains_key(&host)
    }

    /// The way to a host, or the packet is held until there is one.
    pub(super) fn way_or_hold(
        self: &Arc<Self>,
        host: HostId,
        held: impl FnOnce() -> Held,
    ) -> Option<Way> {
        match self.board.route(host) {
            Route::Open(way) => return Some(way),
            Route::Asking { begins } => {
                if !self.board.hold(host, held()) {
                    self.counts.dropped();
                }
                if begins && !self.spawn(host, move |shared| shared.ask(host)) {
                    self.give_up(host);
                }
            }
        }
        None
    }

    /// A connection does not work any more.
    pub(super) fn broken(&self, host: HostId, way: &Way, error: &Error) {
        if matches!(error, Error::PeerMisbehaved(_)) {
            self.counts.misbehaved();
        }
        self.counts.dropped();
        self.board.close(host, way);
    }

    /// Asks for a connection, and serves it.
    fn ask(self: &Arc<Self>, host: HostId) {
        let deadline = Instant::now() + MEETING;
        let asked = self.reach(host, deadline);
        match asked.and_then(|()| terms::ask(&self.node, self.terms, host, deadline)) {
            Ok(connection) => self.serve(host, connection),
            Err(Error::Refused(Reason::Refused)) if host < self.node.host() => {
                // The other side asks as well, and has the right of way.
                while self.board.is_asking(host) && !self.is_over() && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(5));
                }
                self.give_up(host);
            }
            Err(_) => self.give_up(host),
        }
    }

    fn give_up(&self, host: HostId) {
        self.board.give_up(host).iter().for_each(|_| self.counts.dropped());
    }

    /// Until there is a link to that host.
    fn reach(&self, host: HostId, deadline: Instant) -> Result<(), Error> {
        let peer = self.neighbours.get(&host).ok_or(Error::NoRoute)?;
        if self.node.link_to(host).is_some() {
            return Ok(());
        }
        let found = match self.node.link(*peer) {
            Ok(link) => link.wait_up(Some(deadline))?,
            // It is being opened already, by the other side for one.
            Err(_) => {
                let link = self.node.wait_reached(host, Some(deadline))?;
                link.host().ok_or(Error::NoRoute)?
            }
        };
        if found == host { Ok(()) } else { Err(Error::NoRoute) }
    }

    /// Makes the connection that was asked for, and serves it.
    fn answer(self: &Arc<Self>, request: &ConnectRequest) {
        let deadline = Instant::now() + MEETING;
        // Where it fails, who asked finds out by the deadline at the latest.
        if let Ok(connection) = terms::answer(&self.node, self.terms, request, deadline) {
            self.serve(request.from.host, connection);
        }
    }

    /// Hands what comes over a connection to the kernel, for as long as it is the one.
    fn serve(&self, host: HostId, connection: Connection) {
        let Connection { endpoint, outgoing, mut incoming, _greeting } = connection;
        let way: Way = Arc::new(Mutex::new(outgoing));
        let held = self.board.open(host, &way);
        self.counts.connected();
        let sent = {
            let mut outgoing = locked(&way);
            let all = held.iter().try_for_each(|Held { header, packet }| {
                outgoing.send(*header, packet, &self.counts).map(drop)
            });
            all.and_then(|()| outgoing.publish())
        };
        let mut result = sent;
        while !self.is_over() && self.board.is_current(host, &way) {
            result = match result {
                Ok(true) => self.deliver(&mut incoming).map(|()| true),
                // The way is full: what was held is told of some time.
                Ok(false) => self.deliver(&mut incoming).and_then(|()| locked(&way).publish()),
                Err(_) => break,
            };
        }
        if let Err(Error::PeerMisbehaved(_)) = result {
            self.counts.misbehaved();
        }
        self.board.close(host, &way);
        // The other side hears of it, unless it is gone: then there is nobody to tell.
        let _ = endpoint.abort();
    }

    /// Some packets, or none for a while.
    fn deliver(&self, incoming: &mut Incoming) -> Result<(), Error> {
        let driver = self.wheel.take();
        for _ in 0..STRIDE {
            let until = Instant::now() + LOOK_UP;
            let Some(completion) = incoming.next(until, driver.is_some())? else { break };
            let packet = incoming.packet(&completion);
            let header = in_other_order(completion.header);
            match self.tap.write(&[IoSlice::new(&header), IoSlice::new(packet)]) {
                Ok(true) => self.counts.received(packet.len()),
                Ok(false) => self.counts.not_taken(),
                Err(error) => {
                    self.fail(ClanIpError::io("the interface is gone")(error));
                    break;
                }
            }
            incoming.give_back(&completion)?;
        }
        Ok(())
    }

    /// Opens to those who ask.
    fn keep_the_door(self: &Arc<Self>, listener: &Endpoint) {
        while !self.is_over() {
            match wait_aside(listener.next(), Instant::now() + LOOK_UP) {
                Some(Ok(Notice::Request(request))) => self.let_in(listener, request),
                Some(Err(error)) => return self.fail(error.into()),
                Some(Ok(_)) | None => {}
            }
        }
    }

    fn let_in(self: &Arc<Self>, listener: &Endpoint, request: ConnectRequest) {
        let host = request.from.host;
        let reason =
            if !self.is_neighbour(host) || self.board.visit(host) == ConnectDecision::TheyWait {
                Reason::Refused
            } else if self.spawn(host, move |shared| shared.answer(&request)) {
                return;
            } else {
                Reason::NoRoom
            };
        // Who is not even reached any more needs no answer.
        let _ = listener.refuse(&request, reason, [0; 40]);
    }

    /// Starts a thread for a connection; false: there are too many.
    fn spawn(
        self: &Arc<Self>,
        host: HostId,
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> bool {
        let most = self.neighbours.len() + SPARE_THREADS;
        if self.is_over() || self.busy.fetch_add(1, Ordering::Relaxed) >= most {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("clan-ip-{}", host.number()));
        let thread = thread.spawn(move || {
            work(&shared);
            shared.busy.fetch_sub(1, Ordering::Relaxed);
        });
        match thread {
            Ok(thread) => {
                let mut threads = locked(&self.threads);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
                true
            }
            Err(_) => {
                self.busy.fetch_sub(1, Ordering::Relaxed);
                false
            }
        }
    }
}

/// Starts the two threads that are always there.
pub(super) fn start(
    shared: &Arc<Shared>,
    reader: FrameReader,
    listener: Endpoint,
) -> Result<(), ClanIpError> {
    let (taking, opening) = (Arc::clone(shared), Arc::clone(shared));
    let from_kernel = FromKernel::new(shared, reader)?;
    let started = |name: &str, work: Box<dyn FnOnce() + Send>| -> io::Result<()> {
        let thread = thread::Builder::new().name(name.into()).spawn(work)?;
        locked(&shared.threads).push(thread);
        Ok(())
    };
    let take = Box::new(move || {
        if let Err(error) = from_kernel.run(&taking) {
            taking.fail(error);
        }
    });
    let open = Box::new(move || opening.keep_the_door(&listener));
    started("clan-ip-tap", take)
        .and_then(|()| started("clan-ip-door", open))
        .map_err(ClanIpError::io("a thread could not be started"))
}

/// Waits for a future that others wake; nothing if it is not done by the deadline.
pub(super) fn wait_aside<F: Future>(future: F, deadline: Instant) -> Option<F::Output> {
    let thread_waker = ThreadWaker::of_this_thread();
    let waker = Waker::from(Arc::clone(&thread_waker));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if thread_waker.take_wake()
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        if !thread_waker.is_woken() {
            thread::park_timeout(left);
        }
    }
}

/// The one place of those who drive.
#[derive(Debug, Default)]
pub(super) struct Wheel(AtomicBool);

/// Who holds it drives, until this is dropped.
#[derive(Debug)]
pub(super) struct AtTheWheel<'a>(&'a Wheel);

impl Wheel {
    /// Takes it, if nobody has it.
    pub(super) fn take(&self) -> Option<AtTheWheel<'_>> {
        (!self.0.swap(true, Ordering::Acquire)).then_some(AtTheWheel(self))
    }
}

impl Drop for AtTheWheel<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// So many buffers are given back before the other side hears of them, unless there is
/// nothing else to do.
const TOGETHER: u32 = 16;
/// For so long a way may be full. Longer, and it is as good as none.
const PATIENCE: Duration = Duration::from_secs(3);

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) terms: Terms,
    /// Where packets are put.
    pub(super) buffers: Aperture,
    pub(super) cookie: Cookie,
    pub(super) cookies: Sender<Node>,
    pub(super) completions: Receiver<Node>,
    /// Which buffers the other side may fill.
    is_out: Vec<bool>,
    /// Given back, and not published.
    returned: u32,
    /// The last packet, out of reach of the other side.
    packet: Vec<u8>,
}

impl Incoming {
    /// With all buffers offered.
    pub(super) fn new(
        terms: Terms,
        (buffers, cookie): (Aperture, Cookie),
        (cookies, completions): (Sender<Node>, Receiver<Node>),
    ) -> Result<Self, Error> {
        let is_out = vec![false; terms.buffers as usize];
        let packet = vec![0; ROOM as usize];
        let mut incoming =
            Self { terms, buffers, cookie, cookies, completions, is_out, returned: 0, packet };
        for nth in 0..terms.buffers as usize {
            incoming.offer(nth)?;
        }
        incoming.cookies.publish()?;
        Ok(incoming)
    }

    /// The next packet, and its buffer; nothing if none came before the deadline. Who
    /// waits drives the node meanwhile, or leaves that to others.
    pub(super) fn next(
        &mut self,
        deadline: Instant,
        drives: bool,
    ) -> Result<Option<Completion>, Error> {
        let mut element = [0; Completion::LEN];
        if !self.completions.try_get(&mut element)? {
            // Nothing to do: what was given back is published.
            self.publish()?;
            let got = if drives {
                self.completions.get(&mut element, Some(deadline))
            } else {
                let got = wait_aside(self.completions.get_async(&mut element), deadline);
                got.unwrap_or(Err(Error::TimedOut))
            };
            match got {
                Err(Error::TimedOut) => return Ok(None),
                got => got?,
            }
        }
        let completion = Completion::from_bytes(&element);
        let nth = self.buffer_at(completion.at)?;
        self.is_out[nth] = false;
        let packet = &mut self.packet[..completion.len.into()];
        self.buffers.copy_out(completion.at, packet)?;
        Ok(Some(completion))
    }

    /// The packet that [`next`](Self::next) told of.
    pub(super) fn packet(&self, completion: &Completion) -> &[u8] {
        &self.packet[..completion.len.into()]
    }

    /// Its buffer may be filled again.
    pub(super) fn give_back(&mut self, completion: &Completion) -> Result<(), Error> {
        self.offer((completion.at / BUFFER) as usize)?;
        self.returned += 1;
        if self.returned >= TOGETHER { self.publish() } else { Ok(()) }
    }

    fn publish(&mut self) -> Result<(), Error> {
        if self.returned == 0 {
            return Ok(());
        }
        match self.cookies.publish() {
            // The way is full: the next time.
            Err(Error::Busy) => {}
            published => {
                published?;
                self.returned = 0;
            }
        }
        Ok(())
    }

    fn offer(&mut self, nth: usize) -> Result<(), Error> {
        let offer = Offer { cookie: self.cookie, at: nth as u64 * BUFFER };
        let put = match self.cookies.try_put(&offer.to_bytes()) {
            // A way that is full has room some time.
            Err(Error::Busy) => {
                let deadline = Some(Instant::now() + PATIENCE);
                self.cookies.put(&offer.to_bytes(), deadline).map(|()| true)
            }
            put => put,
        };
        // There is room for every buffer twice: only a peer that never tells says no.
        if !put? {
            let most = u64::from(self.terms.buffers);
            return Err(Error::PeerMisbehaved(Misbehaviour::Length { len: most + 1, most }));
        }
        self.is_out[nth] = true;
        Ok(())
    }

    /// Only a buffer that the other side has can come back filled.
    fn buffer_at(&self, at: u64) -> Result<usize, Error> {
        let nth = usize::try_from(at / BUFFER).unwrap_or(usize::MAX);
        if at.is_multiple_of(BUFFER) && self.is_out.get(nth) == Some(&true) {
            return Ok(nth);
        }
        let room = self.terms.memory();
        Err(Error::PeerMisbehaved(Misbehaviour::Counter { from: 0, to: at, room }))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_drives_at_a_time() {
        let wheel = Wheel::default();
        let driver = wheel.take().unwrap();
        assert!(wheel.take().is_none());
        drop(driver);
        assert!(wheel.take().is_some());
    }

    #[test]
    fn a_wait_ends_by_a_wake_or_by_its_deadline() {
        let mut is_asked_again = false;
        let woken_by_another = poll_fn(|context| {
            if is_asked_again {
                return Poll::Ready(7);
            }
            is_asked_again = true;
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        });
        let patience = Duration::from_secs(600);
        assert_eq!(wait_aside(woken_by_another, Instant::now() + patience), Some(7));
        assert_eq!(wait_aside(pending::<()>(), Instant::now()), None);
    }
}
