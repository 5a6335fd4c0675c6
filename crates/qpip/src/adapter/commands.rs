//! What there is to say to a card: found out when it is asked for, so that of many
//! changes of a queue pair the last one is said, and nothing has to be queued.

use super::Adapter;
use super::delegation::{State, is_over};
use super::queue_pair::{Connection, QueuePair, Role, Stream};
use super::udp::Datagrams;
use crate::offload::{Addresses, Command, Ends, Prediction};

/// What a queue pair would have a card do.
enum NextCommand {
    /// Forget it.
    Nothing,
    /// Predict nothing for the time being.
    Pause,
    /// This comes next.
    Expect(Prediction),
}

impl Adapter {
    /// The next thing to say to the card that places what comes as expected. Where
    /// there is none ([`Config::delegates`](super::Config::delegates)), there is
    /// nothing to say.
    ///
    /// A driver asks after everything that it does with the engine, and gives what
    /// it gets to the card before anything that the engine sends later.
    pub fn poll_command(&mut self) -> Option<Command> {
        // A packet that was put together from fragments and waits for its place is
        // one that the engine has not looked at, though the card has seen it.
        if !self.context.config.delegates || self.pieces.has_ready() {
            return None;
        }
        if let Some(link) = self.delegation.stations.pop() {
            return self.say_station(link as usize);
        }
        while let Some(index) = self.delegation.changed.first() {
            let command = self.say_next(index);
            if command.is_some() {
                return command;
            }
            self.delegation.changed.pop();
        }
        None
    }

    fn say_station(&self, link: usize) -> Option<Command> {
        let link = self.links.get(link)?;
        let own = link.interface.as_ref()?;
        let addresses = Addresses::of(&own.addresses).unwrap_or_default();
        Some(Command::Station { path: link.path, station: own.mac, addresses })
    }

    /// The next command for this slot, until there is none.
    fn say_next(&mut self, index: u32) -> Option<Command> {
        let known = self.delegation.slot(index);
        let wish = self.pairs.get(index).map_or(NextCommand::Nothing, |pair| self.wish_of(pair));
        match (known.state, wish) {
            (State::Free, NextCommand::Expect(_)) => self.enter(index),
            (State::Quiet { .. } | State::Armed(_) | State::Astray, NextCommand::Nothing) => {
                let (slot, mark) = self.name_command(index, State::Closing);
                Some(Command::Close { slot, mark })
            }
            (State::Quiet { heard }, NextCommand::Expect(next)) => {
                let (slot, mark) = self.name_command(index, State::Armed(next));
                Some(Command::Arm { slot, mark, heard, next })
            }
            (State::Armed(known), wish) if self.is_on_course(index, &known) => {
                self.carry_on(index, known, &wish)
            }
            (State::Armed(_) | State::Astray, _) => Some(self.disarm(index)),
            _ => None,
        }
    }

    /// Names a command, and notes what it asks for.
    fn name_command(&mut self, index: u32, state: State) -> (u32, u16) {
        let slot = self.delegation.slot_mut(index);
        (slot.state, slot.mark) = (state, slot.mark.wrapping_add(1));
        (index, slot.mark)
    }

    fn disarm(&mut self, index: u32) -> Command {
        let (slot, mark) = self.name_command(index, State::Asked);
        Command::Disarm { slot, mark }
    }

    fn enter(&mut self, index: u32) -> Option<Command> {
        let pair = self.pairs.get(index)?;
        let entered = match &pair.role {
            Role::Stream(_) => {
                let Connection { tcb, link, .. } = pair.connection()?;
                Ok((Ends::new(tcb.local, tcb.remote), self.links.get(*link)?.path))
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
    fn carry_on(&mut self, index: u32, known: Prediction, wish: &NextCommand) -> Option<Command> {
        let NextCommand::Expect(fresh) = wish else {
            // What is out of memory goes on once there is some.
            let is_still_right = known.places.is_empty() && self.is_plainly_ours(index);
            return (!is_still_right).then(|| self.disarm(index));
        };
        let Some(more) = fresh.places.behind(&known.places) else {
            return Some(self.disarm(index));
        };
        let slot = self.delegation.slot_mut(index);
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
        Some(Command::Refresh { slot: index, mark, sent: (acknowledged, sent), recent, edge })
    }

    fn is_on_course(&self, index: u32, known: &Prediction) -> bool {
        self.pairs.get(index).is_some_and(|pair| match &pair.role {
            Role::Stream(_) => {
                pair.connection().is_some_and(|connection| connection.tcb.is_on_course(known))
            }
            Role::Datagrams(datagrams) => datagrams.inbound.course() == known.course,
        })
    }

    fn wish_of(&self, pair: &QueuePair) -> NextCommand {
        if is_over(pair) {
            return NextCommand::Nothing;
        }
        let next = match &pair.role {
            Role::Stream(stream) => match pair.connection() {
                Some(connection) => self.expected_segment(connection, stream),
                None => return NextCommand::Nothing,
            },
            Role::Datagrams(datagrams) if datagrams.local.is_none() => return NextCommand::Nothing,
            Role::Datagrams(datagrams) => self.expected_datagrams(datagrams),
        };
        next.map_or(NextCommand::Pause, NextCommand::Expect)
    }

    fn expected_segment(&self, connection: &Connection, stream: &Stream) -> Option<Prediction> {
        self.is_way_ours(connection).then(|| connection.tcb.predict(&stream.queues)).flatten()
    }

    fn expected_datagrams(&self, datagrams: &Datagrams) -> Option<Prediction> {
        let places = self.are_ports_plain(datagrams).then(|| datagrams.inbound.predict());
        let course = datagrams.inbound.course();
        Some(Prediction { course, places: places.flatten()?, ..Prediction::default() })
    }

    /// Nothing but memory is missing.
    fn is_plainly_ours(&self, index: u32) -> bool {
        self.pairs.get(index).is_some_and(|pair| match &pair.role {
            Role::Stream(_) => {
                pair.connection().is_some_and(|connection| self.is_way_ours(connection))
            }
            Role::Datagrams(datagrams) => self.are_ports_plain(datagrams),
        })
    }

    /// What every packet is asked is asked here once: is it for an address of ours
    /// on its link, and from an address that is not?
    fn is_way_ours(&self, connection: &Connection) -> bool {
        let own = self.links.get(connection.link).and_then(|link| link.station());
        let (local, remote) = (connection.tcb.local.ip(), connection.tcb.remote.ip());
        own.is_some_and(|own| own.has(local) && !own.has(remote))
    }

    /// A card knows all addresses that a datagram may be for, and no other port
    /// that it may rather be for.
    fn are_ports_plain(&self, datagrams: &Datagrams) -> bool {
        let mut known = self.links.iter().filter_map(|link| link.interface.as_ref());
        let is_any = datagrams.local.is_some_and(|local| local.ip().is_unspecified());
        known.all(|own| own.addresses.len() <= Addresses::MOST) && !(is_any && datagrams.has_rival)
    }
}
