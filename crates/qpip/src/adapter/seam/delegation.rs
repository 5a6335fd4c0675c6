//! [`Delegation`]: the tables of the offload seam lie in the memory of a card, and
//! this is what the host knows of them.
//!
//! The host says what comes next (commands), the card says what came (reports), and it
//! is booked as if the receive state machine had placed it. All else comes as frames, to
//! that state machine. Why the two never write to the same memory is told in
//! [`Command`](crate::offload::Command)'s file.
//!
//! What there is to say is found out when it is asked for, so that of many changes of a
//! queue pair the last one is said, and nothing has to be queued.

use alloc::vec::Vec;

use landfall_tables::ChangeQueue;

use crate::adapter::links::Links;
use crate::adapter::queue_pair::{Connection, QueuePair, Role, Stream};
use crate::adapter::queue_pairs::QueuePairs;
use crate::adapter::udp::Datagrams;
use crate::offload::{
    Addresses, Command, Datagram, Ends, Hit, Prediction, Report, Segment, SentNumbers,
};

/// What a report leaves to be done.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapter) enum ReportStep {
    /// Nothing: it is late, or of a card that was restarted.
    Nothing,
    /// A payload came as predicted, and is in its place or failed its check.
    Came { hit: Hit, is_in_place: bool },
    /// The card has answered about the queue pair in this slot.
    Answered { slot: u32 },
}

/// What is known of a card.
#[derive(Debug, Default)]
pub(super) struct Delegation {
    slots: Vec<Slot>,
    /// Slots for which there may be something to say.
    changed: ChangeQueue,
    /// Links whose station is to be said, by their place among all.
    stations: ChangeQueue,
}

/// What is known of an entry of the card.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The name of the last command that is answered, or of the prediction.
    mark: u16,
    state: State,
}

/// How an entry of the card stands, as far as the host knows.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// It has none.
    #[default]
    Free,
    /// It has no room for one.
    Refused,
    /// It was asked to enter one, or to predict nothing, and has not answered.
    Asked,
    /// Nothing was predicted when its count was this.
    Quiet { heard: u64 },
    /// This was predicted, and moved on by all that was reported.
    Armed(Prediction),
    /// What it reported does not follow from what was predicted.
    Astray,
    /// It was asked to forget it.
    Closing,
}

/// What a queue pair would have a card do.
enum NextCommand {
    /// Forget it.
    Nothing,
    /// Predict nothing for the time being.
    Pause,
    /// This comes next.
    Expect(Prediction),
}

impl Delegation {
    fn slot(&self, index: u32) -> Slot {
        self.slots.get(index as usize).copied().unwrap_or_default()
    }

    fn slot_mut(&mut self, index: u32) -> &mut Slot {
        let index = index as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Slot::default());
        }
        &mut self.slots[index]
    }

    /// There may be something to say of this slot.
    #[inline]
    pub(super) fn touch(&mut self, index: u32) {
        self.slot_mut(index);
        self.changed.push(index);
    }

    /// The station of a link has to be said; all that was found out with it may
    /// be wrong.
    pub(super) fn touch_station(&mut self, link: usize) {
        self.stations.push(link as u32);
        for index in 0..self.slots.len() as u32 {
            self.touch(index);
        }
    }

    /// The prediction of this name, if it is still in force as far as is known.
    fn armed(&mut self, index: u32, mark: u16) -> Option<&mut Prediction> {
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.mark == mark)?;
        match &mut slot.state {
            State::Armed(next) => Some(next),
            _ => None,
        }
    }

    fn handle_mismatch(&mut self, index: u32) -> ReportStep {
        self.slot_mut(index).state = State::Astray;
        self.touch(index);
        ReportStep::Nothing
    }

    /// A card reported something. Reports that are late, of an earlier command or
    /// of a card that was restarted, do nothing.
    pub(super) fn handle_report(&mut self, report: &Report, pairs: &QueuePairs) -> ReportStep {
        match *report {
            Report::Segment { hit, mark, is_in_place } => {
                self.book_segment(pairs, &hit, mark, is_in_place)
            }
            Report::Datagram { hit, mark, is_in_place } => {
                self.book_datagram(pairs, &hit, mark, is_in_place)
            }
            Report::Quiet { slot, mark, heard } => {
                self.handle_answer(slot, mark, State::Quiet { heard })
            }
            Report::Closed { slot, mark } => self.handle_answer(slot, mark, State::Free),
            Report::Refused { slot, mark } => self.handle_answer(slot, mark, State::Refused),
        }
    }

    fn book_segment(
        &mut self,
        pairs: &QueuePairs,
        hit: &Segment,
        mark: u16,
        is_in_place: bool,
    ) -> ReportStep {
        let Some(next) = self.armed(hit.slot, mark) else { return ReportStep::Nothing };
        let Some(connection) = pairs.get(hit.slot).and_then(QueuePair::connection) else {
            return ReportStep::Nothing;
        };
        let ends_message = hit.is_pushed && next.has_messages;
        let is_it = hit.seq == next.expected && connection.tcb.is_on_course(next);
        if !is_it || !next.places.pass(hit.len, ends_message) {
            return self.handle_mismatch(hit.slot);
        }
        next.expected = hit.seq.wrapping_add(hit.len);
        ReportStep::Came { hit: Hit::Segment(*hit), is_in_place }
    }

    fn book_datagram(
        &mut self,
        pairs: &QueuePairs,
        hit: &Datagram,
        mark: u16,
        is_in_place: bool,
    ) -> ReportStep {
        let Some(next) = self.armed(hit.slot, mark) else { return ReportStep::Nothing };
        let Some(Role::Datagrams(datagrams)) = pairs.get(hit.slot).map(|pair| &pair.role) else {
            return ReportStep::Nothing;
        };
        let is_it = next.course == datagrams.inbound.course();
        if !is_it || !next.places.pass(hit.len, true) {
            return self.handle_mismatch(hit.slot);
        }
        ReportStep::Came { hit: Hit::Datagram(*hit), is_in_place }
    }

    /// A card answered.
    fn handle_answer(&mut self, index: u32, mark: u16, answer: State) -> ReportStep {
        let slot = self.slot(index);
        let is_awaited = match answer {
            State::Quiet { .. } => matches!(slot.state, State::Asked | State::Armed(_)),
            State::Refused => matches!(slot.state, State::Asked | State::Armed(_)),
            _ => matches!(slot.state, State::Closing),
        };
        if !is_awaited || slot.mark != mark {
            return ReportStep::Nothing;
        }
        self.slot_mut(index).state = answer;
        self.touch(index);
        ReportStep::Answered { slot: index }
    }

    /// The card was restarted and has forgotten everything. Returns how many slots it may
    /// have known.
    pub(super) fn forget_card(&mut self, links: usize) -> u32 {
        let slots = self.slots.len() as u32;
        for index in 0..slots {
            let slot = self.slot_mut(index);
            (slot.state, slot.mark) = (State::Free, slot.mark.wrapping_add(1));
            self.touch(index);
        }
        for link in 0..links {
            self.touch_station(link);
        }
        slots
    }

    /// Is this queue pair over, while the card may still write to its memory? Then
    /// nothing of it is told before the card has let go.
    pub(super) fn holds_memory_of(&mut self, pair: &QueuePair) -> bool {
        if !is_over(pair) {
            return false;
        }
        let slot = pair.id.index;
        match self.slot(slot).state {
            State::Free => false,
            State::Refused => {
                self.slot_mut(slot).state = State::Free;
                false
            }
            _ => {
                self.touch(slot);
                true
            }
        }
    }

    /// The next thing to say to the card, if there is any.
    pub(super) fn poll_command(&mut self, pairs: &QueuePairs, links: &Links) -> Option<Command> {
        if let Some(link) = self.stations.pop() {
            return station_command(links, link as usize);
        }
        while let Some(index) = self.changed.first() {
            let command = self.next_prediction(index, pairs.get(index), links);
            if command.is_some() {
                return command;
            }
            self.changed.pop();
        }
        None
    }

    /// The next command for this slot, until there is none.
    fn next_prediction(
        &mut self,
        index: u32,
        pair: Option<&QueuePair>,
        links: &Links,
    ) -> Option<Command> {
        let known = self.slot(index);
        let wish = pair.map_or(NextCommand::Nothing, |pair| wanted_prediction(pair, links));
        match (known.state, wish) {
            (State::Free, NextCommand::Expect(_)) => self.enter(index, pair?, links),
            (State::Quiet { .. } | State::Armed(_) | State::Astray, NextCommand::Nothing) => {
                let (slot, mark) = self.name_command(index, State::Closing);
                Some(Command::Close { slot, mark })
            }
            (State::Quiet { heard }, NextCommand::Expect(next)) => {
                let (slot, mark) = self.name_command(index, State::Armed(next));
                Some(Command::Arm { slot, mark, heard, next })
            }
            (State::Armed(known), wish) if pair.is_some_and(|pair| is_on_course(pair, &known)) => {
                self.update_armed(pair?, links, known, &wish)
            }
            (State::Armed(_) | State::Astray, _) => Some(self.disarm(index)),
            _ => None,
        }
    }

    /// Names a command, and notes what it asks for.
    fn name_command(&mut self, index: u32, state: State) -> (u32, u16) {
        let slot = self.slot_mut(index);
        (slot.state, slot.mark) = (state, slot.mark.wrapping_add(1));
        (index, slot.mark)
    }

    fn disarm(&mut self, index: u32) -> Command {
        let (slot, mark) = self.name_command(index, State::Asked);
        Command::Disarm { slot, mark }
    }

    fn enter(&mut self, index: u32, pair: &QueuePair, links: &Links) -> Option<Command> {
        let entered = match &pair.role {
            Role::Stream(_) => {
                let connection = pair.connection()?;
                Ok((connection.tcb.ends, links.get(connection.link())?.path))
            }
            Role::Datagrams(datagrams) => Err(Ends::bound(datagrams.local?)),
        };
        let (slot, mark) = self.name_command(index, State::Asked);
        Some(match entered {
            Ok((ends, path)) => Command::Open { slot, mark, ends, path },
            Err(ends) => Command::Bind { slot, mark, ends },
        })
    }

    /// All goes as predicted: what is said then is what has moved.
    fn update_armed(
        &mut self,
        pair: &QueuePair,
        links: &Links,
        known: Prediction,
        wish: &NextCommand,
    ) -> Option<Command> {
        let index = pair.id.index;
        let NextCommand::Expect(fresh) = wish else {
            // What is out of memory goes on once there is some.
            let is_still_right = known.places.is_empty() && is_plainly_ours(pair, links);
            return (!is_still_right).then(|| self.disarm(index));
        };
        let Some(more) = fresh.places.behind(&known.places) else {
            return Some(self.disarm(index));
        };
        let slot = self.slot_mut(index);
        let mark = slot.mark;
        if !more.is_empty() {
            let mut next = known;
            if !next.places.append(&more) {
                return Some(self.disarm(index));
            }
            slot.state = State::Armed(next);
            return Some(Command::Extend { slot: index, mark, more });
        }
        let next = Prediction { places: known.places, ..*fresh };
        if next == known {
            return None;
        }
        slot.state = State::Armed(next);
        let Prediction { acknowledged, sent, recent, edge, .. } = next;
        Some(Command::Refresh {
            slot: index,
            mark,
            sent: SentNumbers { acknowledged, next: sent },
            recent,
            edge,
        })
    }
}

fn station_command(links: &Links, link: usize) -> Option<Command> {
    let link = links.get(link)?;
    let own = link.interface.as_ref()?;
    let addresses = Addresses::of(&own.addresses).unwrap_or_default();
    Some(Command::Station { path: link.path, station: own.mac, addresses })
}

fn is_on_course(pair: &QueuePair, known: &Prediction) -> bool {
    match &pair.role {
        Role::Stream(_) => {
            pair.connection().is_some_and(|connection| connection.tcb.is_on_course(known))
        }
        Role::Datagrams(datagrams) => datagrams.inbound.course() == known.course,
    }
}

fn wanted_prediction(pair: &QueuePair, links: &Links) -> NextCommand {
    if is_over(pair) {
        return NextCommand::Nothing;
    }
    let next = match &pair.role {
        Role::Stream(stream) => match pair.connection() {
            Some(connection) => expected_segment(connection, stream, links),
            None => return NextCommand::Nothing,
        },
        Role::Datagrams(datagrams) if datagrams.local.is_none() => return NextCommand::Nothing,
        Role::Datagrams(datagrams) => expected_datagrams(datagrams, links),
    };
    next.map_or(NextCommand::Pause, NextCommand::Expect)
}

fn expected_segment(connection: &Connection, stream: &Stream, links: &Links) -> Option<Prediction> {
    is_way_ours(connection, links).then(|| connection.tcb.predict(&stream.queues)).flatten()
}

fn expected_datagrams(datagrams: &Datagrams, links: &Links) -> Option<Prediction> {
    let places = are_ports_plain(datagrams, links).then(|| datagrams.inbound.predict());
    let course = datagrams.inbound.course();
    Some(Prediction { course, places: places.flatten()?, ..Prediction::default() })
}

/// Nothing but memory is missing.
fn is_plainly_ours(pair: &QueuePair, links: &Links) -> bool {
    match &pair.role {
        Role::Stream(_) => {
            pair.connection().is_some_and(|connection| is_way_ours(connection, links))
        }
        Role::Datagrams(datagrams) => are_ports_plain(datagrams, links),
    }
}

/// What every packet is asked is asked here once: is it for an address of ours
/// on its link, and from an address that is not?
fn is_way_ours(connection: &Connection, links: &Links) -> bool {
    let own = links.get(connection.link()).and_then(|link| link.station());
    let (local, remote) = (connection.tcb.ends().local.ip(), connection.tcb.ends().remote.ip());
    own.is_some_and(|own| own.has(local) && !own.has(remote))
}

/// A card knows all addresses that a datagram may be for, and no other port
/// that it may rather be for.
fn are_ports_plain(datagrams: &Datagrams, links: &Links) -> bool {
    let mut known = links.iter().filter_map(|link| link.interface.as_ref());
    let is_any = datagrams.local.is_some_and(|local| local.ip().is_unspecified());
    known.all(|own| own.addresses.len() <= Addresses::MOST) && !(is_any && datagrams.has_rival)
}

/// Nothing more is received: what is posted goes back to its owner.
fn is_over(pair: &QueuePair) -> bool {
    match &pair.role {
        Role::Stream(_) => pair.connection().is_some_and(|known| known.tcb.is_closed()),
        Role::Datagrams(datagrams) => datagrams.inbound.is_flushed(),
    }
}
