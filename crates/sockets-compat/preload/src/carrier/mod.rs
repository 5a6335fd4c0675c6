//! The carrier of a host: takes what programs say to other hosts there, and brings what
//! programs there say.
//!
//! It is a process that an operator starts (`landfall carry`), for one user and one network
//! namespace, with this library in it, so that the layout of the memory is one thing. A
//! program that calls another host offers memory as it does within a host, and leaves a
//! note at the [`NoteSocket`]. The carrier takes the other end of that memory, and tells the
//! carrier of the other host, which makes such a memory for the program there. From then on
//! both keep the two alike: what is put into one is put into the other, and so are the words
//! that say who is there, who has changed its way and what has ended.
//!
//! One thread does all of it, and sleeps where nothing is to be done. What all connections
//! to a host have to tell goes in one batch, so under load a batch has many of them, and a
//! program with many connections is woken once.
//!
//! | module | what it is |
//! | --- | --- |
//! | `config` | what the operator has said |
//! | `note_socket` | where programs tell of connections |
//! | `ending` | how the operator ends it |
//! | `waking` | what the thread sleeps on, and how programs are woken |
//! | `link` | the way to another carrier: by STP or by queue pairs |
//! | `handshake` | how two carriers know that they have the same key |
//! | `frame` | what they tell each other |
//! | `host_link` | all connections that share a link |
//! | `carried` | one connection |
//! | `mapping` | its memory |
//!
//! A signal drains it: connections may come to their end for a while, new ones are left to TCP, and
//! other carriers hear that it is gone. Who is killed takes its connections with it: programs see that their carrier is gone,
//! the other carrier that nothing is heard any more ([`crate::between_hosts`]).

use std::fmt;
use std::future::Future;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::pin::Pin;
use std::process::exit;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use landfall_socket_rules::Transport;

use crate::between_hosts::Answer;
use crate::connection::{ELSEWHERE, Offer, make};
use crate::log::Verdict;
use crate::notes::Kind;
use crate::registry::Name;
use crate::segment::{CARRIED_CAPACITY, Role};
use crate::socket_diag::{ANY, Known, SocketDiag, UnprovenReason};
use crate::{between_hosts, kernel, log};

use carried::CarriedConnection;
use config::Config;
use ending::{Ending, Signals};
use host_link::HostLink;
use link::{Link, Network};
use mapping::Mapping;
use note_socket::{NoteSocket, Received};
use waking::{DueBells, LoopWaker, Poller, Programs};

mod carried;
mod config;
mod ending;
mod frame;
mod handshake;
mod host_link;
mod link;
mod mapping;
mod note_socket;
mod seals;
mod waking;

/// Who does not get to the point is nobody.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where nobody answered, nobody is asked for so long.
const SILENT: Duration = Duration::from_secs(5);
/// This many others may be in the middle of a greeting.
const MOST_STRANGERS: usize = 64;
/// The thread sleeps no longer than this, and less while the kernel has to be asked again.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);
const SHORT_SLEEP: Duration = Duration::from_millis(20);
/// How long other carriers are told of the end.
const CLOSING: Duration = Duration::from_secs(1);
/// How often is looked at what nobody tells, while nothing is waited for: it costs several calls,
/// and what is looked at there has waited for longer.
const SELDOM: Duration = Duration::from_millis(100);
/// Who is at work looks at notes, at others that call and at the clock once in this many turns.
const TURNS: u32 = 16;

/// What the operator has said, if this process shall be a carrier.
pub(crate) fn asked_for() -> Option<String> {
    std::env::var("LANDFALL_CARRY").ok().filter(|text| !text.is_empty())
}

/// Carries until the process is ended.
pub(crate) fn run(text: &str) -> ! {
    // The standard library learns of them in a constructor of its own, as ciphers learn of the
    // processor: tests find out here that all have been called.
    debug_assert!(std::env::args_os().len() > 0, "not all constructors have been called");
    let why = match Carrier::begin(text).and_then(Carrier::work) {
        Ok(0) => exit(0),
        Ok(cut_off) => {
            tell(format_args!("the time to drain is over: {cut_off} connections were cut off"));
            exit(0)
        }
        Err(why) => why,
    };
    eprintln!("landfall: cannot carry: {why}");
    exit(1)
}

/// A link to another carrier that is being made.
type LinkHandshake = Pin<Box<dyn Future<Output = Result<Link, LinkError>>>>;

/// Why there is no link.
enum LinkError {
    /// Nobody is heard.
    Silent(io::Error),
    /// It is not understood, or does not want us.
    Refused(io::Error),
}

struct OutgoingLink {
    host: IpAddr,
    greeting: LinkHandshake,
    until: Instant,
    /// Programs of this host wait for it.
    connections: Vec<CarriedConnection>,
}

struct IncomingLink {
    greeting: LinkHandshake,
    until: Instant,
}

struct Carrier {
    config: Config,
    network: Network,
    notes: NoteSocket,
    poller: Rc<Poller>,
    waker: Arc<LoopWaker>,
    programs: Programs,
    due: DueBells,
    host_links: Vec<HostLink>,
    calling: Vec<OutgoingLink>,
    strangers: Vec<IncomingLink>,
    /// Hosts where nobody answered, and when that was.
    silent: Vec<(IpAddr, Instant)>,
    now: Instant,
    /// When the host_links were looked after last.
    looked_after: Instant,
    ending: Ending,
    /// By when it has ended, once that is wanted.
    ends_by: Option<Instant>,
}

impl Carrier {
    fn begin(text: &str) -> io::Result<Self> {
        let config: Config = text.parse().map_err(io::Error::other)?;
        let notes = NoteSocket::open(config.over)?;
        let signals = Signals::hold_back();
        let poller = Rc::new(Poller::new()?);
        poller.watch(&notes)?;
        let waker = poller.waker()?;
        let ending = signals.watch(Arc::clone(&waker), notes.path().clone())?;
        let network = Network::open(&config)?;
        if let Some(driver) = network.driver() {
            poller.watch(driver)?;
        }
        let (transport, at, most) = (config.over.word(), config.listen, config.most);
        tell(format_args!("carries by {transport} at {at}, at most {most} connections"));
        Ok(Self {
            config,
            network,
            notes,
            poller,
            waker,
            programs: Programs::default(),
            due: DueBells::default(),
            host_links: Vec::new(),
            calling: Vec::new(),
            strangers: Vec::new(),
            silent: Vec::new(),
            now: Instant::now(),
            looked_after: Instant::now(),
            ending,
            ends_by: None,
        })
    }

    /// Carries until the operator wants the end; how many connections were cut off then.
    fn work(mut self) -> io::Result<usize> {
        let waker = Waker::from(Arc::clone(&self.waker));
        let cx = &mut Context::from_waker(&waker);
        let mut turns = 0;
        loop {
            turns += 1;
            let moved = self.turn(cx);
            if !moved || turns % TURNS == 0 {
                self.look_around(cx)?;
                if self.ending.is_wanted() && self.is_drained() {
                    return Ok(self.take_leave(cx));
                }
            }
            if !moved && !self.wants_to_send() {
                self.sleep()?;
            }
        }
    }

    /// The operator wants the end: whether all connections have come to theirs, or the time for
    /// that is over.
    fn is_drained(&mut self) -> bool {
        let ends_by = match self.ends_by {
            Some(ends_by) => ends_by,
            None => {
                tell(format_args!("ends: {} connections are carried", self.count()));
                // Nobody has answered for these.
                for calling in std::mem::take(&mut self.calling) {
                    for connection in calling.connections {
                        self.leave_to_tcp(connection, Answer::Ending);
                    }
                }
                *self.ends_by.insert(self.now + self.config.drain)
            }
        };
        let is_all_told = self.host_links.iter().all(HostLink::has_told_all);
        self.count() == 0 && is_all_told || self.now >= ends_by
    }

    /// Cuts off what is left, and tells other carriers of the end; how many connections that were.
    fn take_leave(mut self, cx: &mut Context<'_>) -> usize {
        let (left, mut unanswered) = (self.count(), Vec::new());
        let why = io::Error::other("the time to drain is over");
        for host_link in &mut self.host_links {
            host_link.is_lost(&why, &mut self.due, &mut unanswered);
        }
        for connection in unanswered {
            self.leave_to_tcp(connection, Answer::Ending);
        }
        self.due.ring();
        let links = std::mem::take(&mut self.host_links);
        let mut closing: Vec<_> = links.into_iter().map(|link| Box::pin(link.close())).collect();
        let until = Instant::now() + CLOSING;
        while !closing.is_empty() && Instant::now() < until {
            closing.retain_mut(|link| link.as_mut().poll(cx).is_pending());
            let moved = self.network.driver().is_some_and(|driver| driver.turn().moved);
            if !moved && self.poller.sleep(SHORT_SLEEP).is_err() {
                break;
            }
        }
        left
    }

    /// Carries what there is to carry; whether there was something.
    fn turn(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = self.waker.take();
        if let Some(driver) = self.network.driver() {
            moved |= driver.turn().moved;
        }
        let (due, now, mut unanswered) = (&mut self.due, self.now, Vec::new());
        self.host_links.retain_mut(|host_link| {
            let received = host_link.receive(cx, due, now);
            let sent = received.and_then(|received| Ok(host_link.send(cx, due, now)? | received));
            moved |= *sent.as_ref().unwrap_or(&true);
            sent.inspect_err(|why| host_link.is_lost(why, due, &mut unanswered)).is_ok()
        });
        unanswered.into_iter().for_each(|connection| self.call(connection));
        self.due.ring();
        moved
    }

    /// Looks at what does not come with each turn.
    fn look_around(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.now = Instant::now();
        while let Some(received) = self.notes.next()? {
            self.take_note(received);
        }
        self.accept(cx);
        self.greet(cx);
        let is_due = self.now.duration_since(self.looked_after) >= SELDOM;
        if is_due || self.host_links.iter().any(HostLink::is_expecting) {
            self.looked_after = self.now;
            self.look_after_host_links();
        }
        self.due.ring();
        Ok(())
    }

    fn look_after_host_links(&mut self) {
        // Without descriptors nobody can be asked now.
        let Ok(diag) = SocketDiag::open() else { return };
        let (due, now, mut unanswered) = (&mut self.due, self.now, Vec::new());
        let (over, most) = (self.config.over, self.config.most);
        let mut count: usize = self.host_links.iter().map(HostLink::len).sum();
        let is_ending = self.ending.is_wanted();
        self.host_links.retain_mut(|host_link| {
            host_link.meet_expected(now, |name| {
                let no = match is_ending {
                    true => Some(Answer::Ending),
                    false => (count > most).then_some(Answer::Full),
                };
                let made = offer(&diag, name, over, no, now);
                count -= usize::from(matches!(made, Some(Err(_))));
                made
            });
            let looked = host_link.look_after(now, &diag);
            looked.inspect_err(|why| host_link.is_lost(why, due, &mut unanswered)).is_ok()
        });
        unanswered.into_iter().for_each(|connection| self.call(connection));
    }

    fn wants_to_send(&self) -> bool {
        self.host_links.iter().any(HostLink::wants_to_send)
    }

    /// Sleeps until a program, another carrier or a note comes.
    fn sleep(&self) -> io::Result<()> {
        let mut note_change = self.waker.is_woken();
        for host_link in &self.host_links {
            note_change |= host_link.wants_to_be_woken();
        }
        let slept = match note_change {
            true => Ok(()),
            false => self.poller.sleep(match self.host_links.iter().any(HostLink::is_expecting) {
                true => SHORT_SLEEP,
                false => LONGEST_SLEEP,
            }),
        };
        self.host_links.iter().for_each(HostLink::is_looked_after);
        slept
    }

    /// A program of this host has left a note.
    fn take_note(&mut self, received: Received) {
        let Received { note, identity, descriptors } = received;
        let bell = self.programs.bell(&self.poller, identity, descriptors);
        if note.kind == Kind::Joins {
            let Some(bell) = bell else { return };
            let _ = self
                .host_links
                .iter_mut()
                .any(|host_link| host_link.join(note.role, &note.name, &bell));
            return;
        }
        let name = note.name.for_the_carrier();
        let memory = match self.take(&name) {
            Ok(memory) => memory,
            Err(why) => return log_of(&name, format_args!("is not taken: {why}")),
        };
        let mut connection = CarriedConnection::new(memory, Role::Connector, name, self.now);
        if let Some(bell) = bell {
            connection.join(bell);
        }
        if self.ending.is_wanted() {
            return self.leave_to_tcp(connection, Answer::Ending);
        }
        if self.count() >= self.config.most {
            return self.leave_to_tcp(connection, Answer::Full);
        }
        self.call(connection);
    }

    /// How many connections are carried, or are about to be.
    fn count(&self) -> usize {
        let calling = self.calling.iter().map(|calling| calling.connections.len());
        self.host_links.iter().map(HostLink::len).chain(calling).sum()
    }

    fn leave_to_tcp(&mut self, mut connection: CarriedConnection, answer: Answer) {
        log_of(&connection.name, format_args!("is left to TCP"));
        connection.refuse(answer, &mut self.due);
    }

    /// The memory that a program offers, if it is for this carrier, and of the socket that
    /// the kernel knows at that end of the connection: a note may name any.
    fn take(&self, name: &Name) -> Result<Arc<Mapping>, Verdict> {
        let offer = Offer::find(name, Role::Acceptor)?;
        let between = offer.between();
        if between.transport() != Some(self.config.over) || offer.capacity() != CARRIED_CAPACITY {
            return Err(Verdict::NoOffer);
        }
        let diag =
            SocketDiag::open().map_err(|why| Verdict::Unproven(UnprovenReason::Silent(why)))?;
        let connector = offer.end(Role::Connector);
        diag.vouches(name, Role::Connector, connector).map_err(Verdict::Unproven)?;
        // Each looks whether the process of the other still runs.
        if !diag.is_beside(connector) {
            return Err(Verdict::Unproven(UnprovenReason::Apart));
        }
        let acceptor = offer.end(Role::Acceptor);
        let own = kernel::process();
        between
            .carrier
            .compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| Verdict::NoOffer)?;
        diag.introduces(acceptor);
        acceptor.cookie.store(ELSEWHERE, Ordering::Release);
        Ok(Mapping::of(offer.keep()))
    }

    /// Brings a connection to the other host: by the link that there is, or a new one.
    fn call(&mut self, connection: CarriedConnection) {
        let host = connection.name.acceptor.socket_address().ip();
        if let Some(host_link) =
            self.host_links.iter_mut().find(|host_link| host_link.called() == Some(host))
        {
            host_link.open(connection);
            return;
        }
        if let Some(calling) = self.calling.iter_mut().find(|calling| calling.host == host) {
            return calling.connections.push(connection);
        }
        self.silent.retain(|(_, since)| since.elapsed() < SILENT);
        if self.silent.iter().any(|(known, _)| *known == host) {
            return self.leave_to_tcp(connection, Answer::Unreached);
        }
        let (opening, key) = (self.network.connect(host), self.config.key);
        let greeting = Box::pin(async move {
            let link = opening.await.map_err(LinkError::Silent)?;
            handshake::call(link, key).await.map_err(LinkError::Refused)
        });
        let (until, connections) = (self.now + PATIENCE, vec![connection]);
        self.calling.push(OutgoingLink { host, greeting, until, connections });
        // It begins when it is polled.
        self.waker.wake_up();
    }

    /// Others that call.
    fn accept(&mut self, cx: &mut Context<'_>) {
        while self.strangers.len() < MOST_STRANGERS
            && let Poll::Ready(called) = self.network.poll_accept(cx)
        {
            let link = match called {
                Ok(link) => link,
                Err(why) => return log::say(format_args!("nobody can be accepted: {why}")),
            };
            let key = self.config.key;
            let greeting =
                Box::pin(
                    async move { handshake::answer(link, key).await.map_err(LinkError::Refused) },
                );
            self.strangers.push(IncomingLink { greeting, until: self.now + PATIENCE });
        }
    }

    /// Goes on with what was begun with other carriers.
    fn greet(&mut self, cx: &mut Context<'_>) {
        let (now, host_links) = (self.now, &mut self.host_links);
        self.strangers.retain_mut(|stranger| {
            match poll_within(&mut stranger.greeting, stranger.until, now, cx) {
                None => return true,
                Some(Ok(link)) => {
                    host_links.push(HostLink::new(link, None, now));
                    self.waker.wake_up();
                }
                Some(Err(LinkError::Silent(why) | LinkError::Refused(why))) => {
                    log::say(format_args!("a stranger is turned away: {why}"));
                }
            }
            false
        });
        let mut at = 0;
        while let Some(calling) = self.calling.get_mut(at) {
            let Some(met) = poll_within(&mut calling.greeting, calling.until, now, cx) else {
                at += 1;
                continue;
            };
            let OutgoingLink { host, connections, .. } = self.calling.swap_remove(at);
            self.met(host, connections, met);
        }
    }

    fn met(
        &mut self,
        host: IpAddr,
        connections: Vec<CarriedConnection>,
        met: Result<Link, LinkError>,
    ) {
        let answer = match met {
            Ok(link) => {
                let mut host_link = HostLink::new(link, Some(host), self.now);
                connections.into_iter().for_each(|connection| host_link.open(connection));
                self.host_links.push(host_link);
                return self.waker.wake_up();
            }
            Err(LinkError::Silent(why)) => {
                log::say(format_args!("no carrier at {host}: {why}"));
                self.silent.push((host, self.now));
                Answer::Unreached
            }
            Err(LinkError::Refused(why)) => {
                log::say(format_args!("the carrier at {host} is not understood: {why}"));
                Answer::Refused
            }
        };
        for connection in connections {
            self.leave_to_tcp(connection, answer);
        }
    }
}

/// What has come of a greeting by now; nothing if it still goes on.
fn poll_within(
    greeting: &mut LinkHandshake,
    until: Instant,
    now: Instant,
    cx: &mut Context<'_>,
) -> Option<Result<Link, LinkError>> {
    match greeting.as_mut().poll(cx) {
        Poll::Ready(met) => Some(met),
        Poll::Pending if now < until => None,
        Poll::Pending => Some(Err(LinkError::Refused(io::ErrorKind::TimedOut.into()))),
    }
}

/// Makes memory for a program of this host, if the kernel knows such a connection by now and
/// it is this user's. An answer says why nothing new is taken.
fn offer(
    diag: &SocketDiag,
    name: &Name,
    over: Transport,
    no: Option<Answer>,
    now: Instant,
) -> Option<Result<CarriedConnection, Verdict>> {
    let known = diag.end_of(name, Role::Acceptor, ANY, 0).ok().flatten();
    let end = known.filter(Known::is_connected)?;
    if end.user != kernel::user() {
        return Some(Err(Verdict::Unproven(UnprovenReason::OfUser(end.user))));
    }
    if let Some(answer) = no {
        return Some(Err(Verdict::NotCarried(over, answer)));
    }
    let made = make_memory(diag, name, over, end.cookie);
    Some(made.map(|memory| CarriedConnection::new(memory, Role::Acceptor, *name, now)))
}

/// Memory for the socket with this number, which the kernel knows as that end.
fn make_memory(
    diag: &SocketDiag,
    name: &Name,
    over: Transport,
    addressee: u64,
) -> Result<Arc<Mapping>, Verdict> {
    let memory = Mapping::of(make(name, Role::Connector, CARRIED_CAPACITY)?);
    let connector = memory.end(Role::Connector);
    diag.introduces(connector);
    memory.identity().addressee.store(addressee, Ordering::Relaxed);
    connector.cookie.store(ELSEWHERE, Ordering::Relaxed);
    let between = memory.between();
    between.carrier.store(kernel::process(), Ordering::Relaxed);
    between.note_change();
    // From here on the program takes it.
    between.transport.store(between_hosts::number_of(over), Ordering::Release);
    Ok(memory)
}

/// A line for the operator, who may be gone.
fn tell(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{what}");
}

/// A line about a connection.
fn log_of(name: &Name, what: fmt::Arguments<'_>) {
    log::say(format_args!("{}: {what}", words(name)));
}

fn words(name: &Name) -> String {
    format!("{} to {}", name.connector.socket_address(), name.acceptor.socket_address())
}
