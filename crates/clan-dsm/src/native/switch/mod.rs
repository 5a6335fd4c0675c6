//! A worm-hole switch: packets pass through it word by word, and are never
//! stored as a whole (section 2.2 of the paper).
//!
//! Each port has a small FIFO towards the switch and a small one away from it,
//! and a [native link](crate::native) with credit for no more than fits. A
//! packet longer than those stretches over several switches. An output serves
//! one input as long as no other wants it; once another does, it takes turns,
//! and cuts a long packet at the word where the turn ends. The rest gets a
//! header of its own, and is one packet with what was before it again wherever
//! the two meet with nothing between them: here, or at a switch further on.
//!
//! A multicast goes to all members of its group at once: a piece of it moves
//! when each of them has room, and keeps nobody from moving while it waits. So two
//! multicasts never wait for each other; `schedule` says why none starves.
//!
//! Routes are fixed by host. They must be free of cycles, as in a tree: the
//! switch cannot see the others. Where nothing moves for longer than the
//! patience of a link all the same, that link ends with an exception, and what
//! had waited for it is counted and told, never dropped silently.
//!
//! What does not live here: I/O and clocks; and any look into the words.

mod schedule;

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{ConfigError, Duration, Instant, Random, Refusal, Refusals, Timeout};

use crate::address::HostId;
use crate::error::{Ended, Error};
use crate::native::wire::{Trailer, words_of, write_packet};
use crate::native::{Arrival, NativeLink, Settings, State};
use crate::native::{Fifo, HEADER_WORDS};
pub use schedule::{Event, Loss};
use schedule::{Lost, Routes, Schedule};

/// One of the ports of a switch: 0, 1, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u8);

/// The bounds and habits of a switch. It is not made of values that are out of range
/// ([`validate`](Self::validate)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many ports it has, up to 64.
    pub ports: u8,
    /// How many words, headers included, wait at a port to be switched.
    pub input: u32,
    /// How many words, headers included, wait at a port to be sent.
    pub output: u32,
    /// How many words an input may send before another that wants the same
    /// output has its turn.
    pub turn: u32,
    /// How long an output may stand still before its link ends.
    pub patience: Duration,
    /// The most events that wait for the user.
    pub events: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ports: 8,
            input: 512,
            output: 256,
            turn: 64,
            patience: Duration::from_secs(1),
            events: 256,
        }
    }
}

impl Config {
    /// Is every value within its range?
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let least_output = 2 * (Fifo::LEAST + HEADER_WORDS);
        ConfigError::check("ports", self.ports, 1..=64)?;
        ConfigError::check("input", self.input, Fifo::LEAST..=u32::MAX)?;
        ConfigError::check("output", self.output, least_output..=u32::MAX)?;
        // Two turns and their headers fit into an empty output: one may be kept for a
        // multicast.
        ConfigError::check("turn", self.turn, Fifo::LEAST..=self.output / 2 - HEADER_WORDS)
    }
}

/// What is plugged into a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// A native link.
    Up {
        /// The longest unit that it carries, with its trailer.
        unit: u32,
        /// What stands behind its units.
        trailer: Trailer,
    },
    /// Nothing (any more).
    Down,
}

#[derive(Debug)]
struct Port {
    attachment: Attachment,
    link: NativeLink,
    was_up: bool,
    refusals: Refusals,
}

/// A switch as a state machine.
///
/// Whatever comes in is given to it; whenever something was, units are asked
/// for at *every* port until there are no more.
#[derive(Debug)]
pub struct Switch {
    config: Config,
    random: Random,
    ports: Vec<Port>,
    routes: Routes,
    schedule: Schedule,
    events: VecDeque<Event>,
    overflow: u64,
}

impl Switch {
    /// A switch without routes, and nothing plugged in. `random` names the
    /// beginnings of its links.
    ///
    /// # Errors
    /// A value of the configuration is out of its range.
    pub fn new(config: Config, random: Random) -> Result<Self, ConfigError> {
        config.validate()?;
        let settings = Settings { host: None, room: config.input, patience: config.patience };
        let port = || Port {
            attachment: Attachment::Down,
            link: NativeLink::new(settings),
            was_up: false,
            refusals: Refusals::new(),
        };
        Ok(Self {
            config,
            random,
            ports: (0..config.ports).map(|_| port()).collect(),
            routes: Routes::new(),
            schedule: Schedule::new(&config),
            events: VecDeque::new(),
            overflow: 0,
        })
    }

    /// Packets for this host leave at this port from now on.
    ///
    /// # Errors
    /// There is no such port.
    pub fn route(&mut self, host: HostId, port: PortId) -> Result<(), Error> {
        self.known(port)?;
        self.routes.set(host, Some(port));
        Ok(())
    }

    /// There is no way to this host any more.
    pub fn unroute(&mut self, host: HostId) {
        self.routes.set(host, None);
        self.forward();
    }

    /// What is sent to the group leaves at this port too.
    ///
    /// # Errors
    /// There is no such port.
    pub fn join(&mut self, group: HostId, port: PortId) -> Result<(), Error> {
        self.known(port)?;
        self.routes.join(group, port);
        Ok(())
    }

    /// What is sent to the group leaves at this port no more.
    pub fn leave(&mut self, group: HostId, port: PortId) {
        self.routes.leave(group, port);
        self.forward();
    }

    /// Something was plugged into a port, or taken out.
    ///
    /// # Errors
    /// There is no such port, or the link does not carry the longest packet
    /// that cannot be split.
    pub fn handle_line(
        &mut self,
        now: Instant,
        port: PortId,
        attachment: Attachment,
    ) -> Result<(), Error> {
        self.known(port)?;
        if let Attachment::Up { unit, trailer } = attachment
            && (unit as usize) < Fifo::LEAST as usize * 8 + trailer.len()
        {
            return Err(Error::PathDown);
        }
        let index = usize::from(port.0);
        self.ports[index].attachment = Attachment::Down;
        self.ports[index].link.handle_down();
        self.settle(now, port);
        self.ports[index].attachment = attachment;
        if attachment != Attachment::Down {
            self.begin(now, index);
        }
        Ok(())
    }

    /// A unit came in.
    ///
    /// # Errors
    /// It was damaged, malformed, or sent without leave: the link has ended with
    /// an exception to both sides, and begins anew. Units of ports that do not
    /// exist, or that nothing is plugged into, change nothing.
    pub fn handle_unit(&mut self, now: Instant, port: PortId, unit: &[u8]) -> Result<(), Refusal> {
        let Some(entry) = self.ports.get_mut(usize::from(port.0)) else {
            return Err(Refusal::Unexpected);
        };
        let Attachment::Up { trailer, .. } = entry.attachment else {
            return Err(entry.refusals.count(Refusal::Unexpected));
        };
        let result = match trailer.open(unit) {
            Ok(content) => self.accept(now, port, content),
            Err(refusal) => {
                entry.link.handle_damage();
                Err(refusal)
            }
        };
        self.settle(now, port);
        result.map_err(|refusal| self.ports[usize::from(port.0)].refusals.count(refusal))
    }

    /// The next unit to send at this port, into `unit`, which is emptied first.
    pub fn poll_unit(&mut self, now: Instant, port: PortId, unit: &mut Vec<u8>) -> bool {
        unit.clear();
        let index = usize::from(port.0);
        // There is no such port.
        let Some(entry) = self.ports.get_mut(index) else { return false };
        // Nothing leaves a port that is down.
        let Attachment::Up { unit: most, trailer } = entry.attachment else { return false };
        if let Some(symbol) = entry.link.poll_symbol(now) {
            unit.extend_from_slice(&symbol.to_bytes());
            trailer.seal(unit);
            return true;
        }
        let room = entry.link.room(most - trailer.len() as u32);
        let output = self.schedule.output(index);
        let Some((burst, words)) = output.pop(room) else {
            let waits = !output.is_empty();
            entry.link.handle_waiting(now, waits);
            return false;
        };
        write_packet(unit, &burst, words);
        trailer.seal(unit);
        entry.link.handle_sent(&burst);
        self.forward();
        true
    }

    /// Tells the other end of a port to send nothing for the time being, or to
    /// go on; no longer than its patience.
    pub fn hold(&mut self, port: PortId, hold: bool) {
        if let Some(entry) = self.ports.get_mut(usize::from(port.0)) {
            entry.link.hold(hold);
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        for index in 0..self.ports.len() {
            self.ports[index].link.handle_timeout(now);
            self.settle(now, PortId(index as u8));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and then units are
    /// to be asked for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timeout> {
        let timeouts = self.ports.iter().filter_map(|port| port.link.poll_timeout());
        timeouts.min_by_key(|timeout| timeout.at)
    }

    /// The next thing that the user should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let lost = core::mem::take(&mut self.overflow);
        (lost > 0).then_some(Event::Overflow { lost })
    }

    /// Whether packets pass at this port, and if not, why.
    #[must_use]
    pub fn state(&self, port: PortId) -> Option<State> {
        self.ports.get(usize::from(port.0)).map(|port| port.link.state())
    }

    /// How often which check refused a unit that came in at this port.
    #[must_use]
    pub fn refusals(&self, port: PortId) -> Option<&Refusals> {
        self.ports.get(usize::from(port.0)).map(|port| &port.refusals)
    }

    fn known(&self, port: PortId) -> Result<(), Error> {
        if usize::from(port.0) < self.ports.len() { Ok(()) } else { Err(Error::Unknown) }
    }

    /// A unit without its trailer.
    fn accept(&mut self, now: Instant, port: PortId, content: &[u8]) -> Result<(), Refusal> {
        let index = usize::from(port.0);
        let link = &mut self.ports[index].link;
        let arrival = link.handle_unit(now, content, content.len() as u32)?;
        if let Arrival::Packet(burst) = arrival {
            let input = self.schedule.input(index);
            let before = input.free();
            if !input.push(burst, words_of(content).iter().copied()) {
                // Credit is counted so that this cannot be; the link would be wrong for good.
                link.handle_damage();
                return Err(Refusal::NoRoom);
            }
            // What joined the packet before it needs no header here.
            link.handle_freed(burst.cost().saturating_sub(before - input.free()));
        }
        Ok(())
    }

    /// Looks what became of a link, and moves on what can.
    fn settle(&mut self, now: Instant, port: PortId) {
        let index = usize::from(port.0);
        let entry = &mut self.ports[index];
        let mut ended = entry.link.take_restarted().then_some(Ended::Restarted);
        if let State::Down(why) = entry.link.state() {
            ended = Some(why);
            if entry.attachment != Attachment::Down {
                self.begin(now, index);
            }
        } else if ended.is_some() {
            self.keep_room(index);
        }
        let entry = &mut self.ports[index];
        let is_up = entry.link.state() == State::Up;
        let was_up = core::mem::replace(&mut entry.was_up, is_up);
        if let Some(why) = ended {
            let words = self.schedule.output(index).clear();
            if was_up {
                self.emit(Event::Down { port, why });
            }
            if words > 0 {
                self.report_lost(words, Loss::Waiting { at: port });
            }
        }
        if is_up && (!was_up || ended.is_some()) {
            let peer = self.ports[index].link.peer().flatten();
            self.emit(Event::Up { port, peer });
        }
        self.forward();
    }

    /// Begins the link of a port (anew).
    fn begin(&mut self, now: Instant, index: usize) {
        let session = self.random.next_u32();
        self.ports[index].link.handle_up(now, session);
        self.keep_room(index);
    }

    /// What came before a link began anew is still good, and takes its room.
    fn keep_room(&mut self, index: usize) {
        let input = self.schedule.input(index);
        let taken = input.capacity() - input.free();
        self.ports[index].link.handle_occupied(taken);
    }

    /// Moves words from inputs to outputs as far as there is room.
    fn forward(&mut self) {
        let is_up = |port: &Port| port.link.state() == State::Up;
        let up = self.ports.iter().rev().fold(0, |up, port| up << 1 | u64::from(is_up(port)));
        while let Some(step) = self.schedule.step(&self.routes, up) {
            self.ports[step.input].link.handle_freed(step.freed);
            if let Some(Lost { words, why: loss }) = step.lost {
                self.report_lost(words, loss);
            }
        }
    }

    /// What was lost for the same reason as what was lost just before is one event with it.
    fn report_lost(&mut self, lost: u64, why: Loss) {
        match self.events.back_mut() {
            Some(Event::Lost { words, loss }) if *loss == why => *words += lost,
            _ => self.emit(Event::Lost { words: lost, loss: why }),
        }
    }

    fn emit(&mut self, event: Event) {
        if self.events.len() < self.config.events && self.overflow == 0 {
            self.events.push_back(event);
        } else {
            self.overflow += 1;
        }
    }
}
