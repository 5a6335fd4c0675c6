//! All connections between this host and another that the other carrier, or this one, has
//! called for: they share one link.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use landfall::stp::Part;

use super::carried::CarriedConnection;
use super::frame::{Batch, Frame, Frames};
use super::link::{CONNECTIONS, Link, Receiver};
use super::mapping::Broken;
use super::waking::{DueBells, ProgramBell};
use super::{log_of, words};
use crate::between_hosts::Answer;
use crate::log;
use crate::registry::Name;
use crate::segment::Role;
use crate::socket_diag::SocketDiag;

/// Who has nothing to say says so, so that the other knows that all is well.
const SILENCE: Duration = Duration::from_secs(2);
/// Who is not heard from for so long is lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the kernel may take to know a connection that the other host knows.
const UNKNOWN: Duration = Duration::from_secs(3);
/// This many batches are taken before others have their turn.
const AT_ONCE: usize = 16;

/// The link to one other host, and the connections that it carries.
pub(super) struct HostLink {
    link: Link,
    /// The host that was called; nothing where the other carrier has called.
    called: Option<IpAddr>,
    connections: BTreeMap<u32, CarriedConnection>,
    /// Connections that the other carrier has opened, until the kernel here knows them.
    expected: Vec<Expected>,
    batch: Batch,
    next: u32,
    /// Who is asked first for what its program has done.
    first: u32,
    heard: Instant,
    spoke: Instant,
    /// The link has no room for a batch, and wakes the carrier once it has.
    is_full: bool,
}

/// A connection that memory is to be made for.
pub(super) struct Expected {
    id: u32,
    pub(super) name: Name,
    since: Instant,
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other carrier talks nonsense")
}

impl HostLink {
    pub(super) fn new(link: Link, called: Option<IpAddr>, now: Instant) -> Self {
        Self {
            link,
            called,
            connections: BTreeMap::new(),
            expected: Vec::new(),
            batch: Batch::default(),
            next: 1,
            first: 0,
            heard: now,
            spoke: now,
            is_full: false,
        }
    }

    pub(super) const fn called(&self) -> Option<IpAddr> {
        self.called
    }

    /// Whether something is left to tell, and can be.
    pub(super) fn wants_to_send(&self) -> bool {
        !self.batch.is_empty() && !self.is_full
    }

    /// Whether the other carrier has got all that it was told.
    pub(super) fn has_told_all(&self) -> bool {
        self.batch.is_empty() && self.link.has_sent_all()
    }

    /// Ends the link; connections that are still there are over before.
    pub(super) fn close(self) -> impl Future<Output = ()> {
        self.link.close()
    }

    /// From here on programs wake the carrier when they do something; whether one has already,
    /// and it can be told.
    pub(super) fn wants_to_be_woken(&self) -> bool {
        let mut note_change = false;
        for connection in self.connections.values() {
            note_change |= connection.wants_to_be_woken();
        }
        note_change && !self.is_full
    }

    /// The carrier is awake.
    pub(super) fn is_looked_after(&self) {
        self.connections.values().for_each(CarriedConnection::is_looked_after);
    }

    /// How many it has, or is about to have.
    pub(super) fn len(&self) -> usize {
        self.connections.len() + self.expected.len()
    }

    pub(super) fn is_expecting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Asks the other carrier to make memory for a connection.
    pub(super) fn open(&mut self, mut connection: CarriedConnection) {
        connection.register(&self.link);
        let id = self.free_number();
        self.batch.push_with(id, Frame::Open, &connection.name.to_bytes());
        self.connections.insert(id, connection);
    }

    /// A number that no connection has, and that none has had for long: what is still on its way
    /// to an earlier one must not be taken for this one's.
    fn free_number(&mut self) -> u32 {
        loop {
            let id = self.next;
            let is_wide = self.connections.len() >= CONNECTIONS as usize / 2;
            let most = if is_wide { u32::MAX } else { CONNECTIONS };
            self.next = if id + 1 < most { id + 1 } else { 1 };
            if !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    /// One more process has that end of a connection; whether there is such a one.
    pub(super) fn join(&mut self, role: Role, name: &Name, bell: &Rc<ProgramBell>) -> bool {
        let same =
            |known: &Name| (known.connector, known.acceptor) == (name.connector, name.acceptor);
        let mut all = self.connections.values_mut();
        let found = all.find(|known| known.role == role && same(&known.name));
        found.map(|connection| connection.join(Rc::clone(bell))).is_some()
    }

    /// Does what the other carrier tells; whether it has told something.
    pub(super) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        due: &mut DueBells,
        now: Instant,
    ) -> io::Result<bool> {
        let Self { link, called, connections, expected, batch, heard, .. } = self;
        let is_called = called.is_none();
        let mut receiver =
            Arrivals { connections, expected, batch, due, is_called, now, has_landed: false };
        let mut moved = false;
        for _ in 0..AT_ONCE {
            match link.poll_receive(cx, &mut receiver) {
                Poll::Pending => break,
                Poll::Ready(Ok(true)) => (moved, *heard) = (true, now),
                Poll::Ready(Ok(false)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(Err(why)) => return Err(why),
            }
        }
        if receiver.has_landed {
            (moved, *heard) = (true, now);
        }
        Ok(moved)
    }

    /// Makes memory for those that the kernel knows by now, as `make` does it.
    pub(super) fn meet_expected(
        &mut self,
        now: Instant,
        mut make: impl FnMut(&Name) -> Option<Result<CarriedConnection, log::Verdict>>,
    ) {
        let Self { link, expected, connections, batch, .. } = self;
        expected.retain(|Expected { id, name, since }| {
            let made = match make(name) {
                Some(made) => made.map_err(|why| why.to_string()),
                None if now.duration_since(*since) < UNKNOWN => return true,
                None => Err("nobody here has it".to_owned()),
            };
            batch.push(*id, Frame::Opened(made.is_ok()));
            match made {
                Ok(mut connection) => {
                    log_of(name, format_args!("is carried"));
                    connection.register(link);
                    connections.insert(*id, connection);
                }
                Err(why) => log_of(name, format_args!("is not offered here: {why}")),
            }
            false
        });
    }

    /// Tells the other carrier what programs have done; whether there was something.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        due: &mut DueBells,
        now: Instant,
    ) -> io::Result<bool> {
        let mut moved = false;
        loop {
            self.is_full = !self.link.has_room(cx)?;
            if self.is_full {
                break;
            }
            moved |= self.fill(due, cx);
            if self.batch.is_empty() {
                break;
            }
            self.link.send(cx, self.batch.take())?;
            (moved, self.spoke) = (true, now);
        }
        self.remove_those_that_are_over();
        Ok(moved)
    }

    /// Fills the batch with what programs have done; whether there was something.
    fn fill(&mut self, due: &mut DueBells, cx: &mut Context<'_>) -> bool {
        let Self { link, connections, batch, first, .. } = self;
        let mut moved = false;
        let start = *first;
        let ids: Vec<u32> = connections
            .range(start..)
            .chain(connections.range(..start))
            .filter(|(_, connection)| connection.note_change())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(connection) = connections.get_mut(&id) else { continue };
            match connection.tell(id, link, (batch, due), cx) {
                Ok(is_new) => moved |= is_new,
                Err(why) => breaks(connection, id, why, batch, due),
            }
            if batch.room() == 0 {
                *first = id.wrapping_add(1);
                break;
            }
        }
        moved
    }

    fn remove_those_that_are_over(&mut self) {
        self.connections.retain(|_, connection| {
            let is_over = connection.is_over();
            if is_over {
                log_of(&connection.name, format_args!("has ended"));
            }
            !is_over
        });
    }

    /// Looks at what nobody tells, and whether the other carrier is there.
    pub(super) fn look_after(&mut self, now: Instant, diag: &SocketDiag) -> io::Result<()> {
        for (id, connection) in &mut self.connections {
            if let Some(frame) = connection.look_after(now, diag) {
                self.batch.push(*id, frame);
            }
        }
        if now.duration_since(self.spoke) >= SILENCE {
            self.batch.push(0, Frame::Alive);
            self.spoke = now;
        }
        if now.duration_since(self.heard) >= PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// The link is no more: nor are its connections, but for those that the other carrier has
    /// not answered yet. Another one may have taken its place.
    pub(super) fn is_lost(
        &mut self,
        why: &io::Error,
        due: &mut DueBells,
        unanswered: &mut Vec<CarriedConnection>,
    ) {
        for (_, mut connection) in std::mem::take(&mut self.connections) {
            if connection.is_opening() && connection.may_be_called_again() {
                unanswered.push(connection);
            } else if connection.is_opening() {
                connection.refuse(Answer::Unreached, due);
            } else if connection.breaks(due) {
                log::say(format_args!("{}: is broken: {why}", words(&connection.name)));
            }
        }
    }
}

/// Takes what comes over the link.
struct Arrivals<'a> {
    connections: &'a mut BTreeMap<u32, CarriedConnection>,
    expected: &'a mut Vec<Expected>,
    batch: &'a mut Batch,
    due: &'a mut DueBells,
    /// The other carrier has called, and may open connections.
    is_called: bool,
    now: Instant,
    has_landed: bool,
}

impl Receiver for Arrivals<'_> {
    fn batch(&mut self, bytes: &[u8]) -> io::Result<()> {
        for frame in Frames(bytes) {
            let (id, frame, tail) = frame.map_err(|_| nonsense())?;
            match frame {
                Frame::Alive => {}
                Frame::Open => self.open(id, tail)?,
                _ => self.handle(id, frame, tail),
            }
        }
        Ok(())
    }

    fn place(&mut self, id: u32, place: u64, len: u64) -> Option<(u64, Part)> {
        self.connections.get_mut(&id)?.place(place, len)
    }

    fn landed(&mut self, id: u32, at: u64, len: u64) {
        self.has_landed = true;
        if let Some(connection) = self.connections.get_mut(&id)
            && let Err(why) = connection.landed(at, len, self.due)
        {
            breaks(connection, id, why, self.batch, self.due);
        }
    }
}

impl Arrivals<'_> {
    /// The other carrier opens a connection.
    fn open(&mut self, id: u32, name: &[u8]) -> io::Result<()> {
        let name = name.try_into().map_err(|_| nonsense())?;
        let is_known =
            self.connections.contains_key(&id) || self.expected.iter().any(|known| known.id == id);
        if !self.is_called || is_known {
            return Err(nonsense());
        }
        let name = Name::from_bytes(name);
        self.expected.push(Expected { id, name, since: self.now });
        Ok(())
    }

    /// What the other carrier tells of a connection; of one that is over already it may not
    /// have heard.
    fn handle(&mut self, id: u32, frame: Frame, tail: &[u8]) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match frame {
            Frame::Opened(true) if connection.is_opening() => {
                log_of(&connection.name, format_args!("is carried"));
                connection.opened();
            }
            Frame::Opened(false) if connection.is_opening() => {
                log_of(&connection.name, format_args!("is left to TCP"));
                connection.refuse(Answer::Refused, self.due);
            }
            _ => {
                if let Err(why) = connection.handle(frame, tail, self.due) {
                    breaks(connection, id, why, self.batch, self.due);
                }
            }
        }
    }
}

fn breaks(
    connection: &mut CarriedConnection,
    id: u32,
    why: Broken,
    batch: &mut Batch,
    due: &mut DueBells,
) {
    if connection.breaks(due) {
        log::say(format_args!("{}: is broken: {why}", words(&connection.name)));
    }
    if why != Broken::There {
        batch.push(id, Frame::Broken);
    }
}
