//! Who moves next: the words between the inputs and the outputs of a switch, which way each
//! goes, and what is told of it.
//!
//! **Fair.** Each output takes its inputs in turn. As long as one alone wants
//! it, it goes on without being cut; when others do too, it is cut after a turn
//! of this many words, headers included.
//!
//! **Multicasts without deadlock.** A piece of a multicast moves to all members
//! in one step or not at all, and owns no output while it waits. Hence no two
//! multicasts hold what the other needs.
//!
//! **Multicasts without starvation.** Members seldom have room at the same
//! moment while others keep filling them. So one waiting multicast at a time
//! *reserves* room for a piece at each of its members: others take what is left
//! beside that. An output has room for two pieces, so anyone who waits waits for an
//! output with something in it, which leaves: never for the reservation, whose
//! holder may wait for a switch that waits for this one. Anyone who was kept waiting
//! is *owed* a turn before a multicast goes there again.

use alloc::vec;
use alloc::vec::Vec;

use super::{Config, PortId};
use crate::address::{Address, HostId, Kind};
use crate::error::Ended;
use crate::native::{Burst, Fifo, HEADER_WORDS, Word};

/// Whose turn it is at an output, and how much is left of it.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    input: usize,
    left: u32,
    /// How much others may send before a multicast goes here again.
    owed: u32,
}

/// A multicast that its members keep room for.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    input: usize,
    members: Ports,
}

/// A multicast at an input, as far as it has come in.
#[derive(Clone, Copy, Debug)]
struct Group {
    head: Burst,
    /// The members that it can go to.
    members: Ports,
    /// The members that are down.
    absent: Ports,
}

#[derive(Debug)]
pub(super) struct Schedule {
    turn: u32,
    inputs: Vec<Fifo>,
    outputs: Vec<Fifo>,
    turns: Vec<Turn>,
    reservation: Option<Reservation>,
    /// Which input's multicast is looked at first.
    next_group: usize,
    /// A piece of a multicast on its way to all members.
    copies: Vec<Word>,
}

/// What moved.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) input: usize,
    /// How much room it left there.
    pub(super) freed: u32,
    pub(super) lost: Option<Lost>,
}

/// Words that did not reach all they were for.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) words: u64,
    pub(super) why: Loss,
}

/// The inputs whose oldest packet wants one output.
#[derive(Clone, Copy, Default)]
struct Contenders {
    /// For this output alone.
    singles: Ports,
    /// For this output and others: multicasts.
    groups: Ports,
}

impl Schedule {
    pub(super) fn new(config: &Config) -> Self {
        let fifos = |room| (0..config.ports).map(|_| Fifo::new(room)).collect();
        Self {
            turn: config.turn,
            inputs: fifos(config.input),
            outputs: fifos(config.output),
            turns: (0..config.ports).map(|_| Turn::default()).collect(),
            reservation: None,
            next_group: 0,
            copies: Vec::with_capacity(config.turn as usize),
        }
    }

    pub(super) fn input(&mut self, port: usize) -> &mut Fifo {
        &mut self.inputs[port]
    }

    pub(super) fn output(&mut self, port: usize) -> &mut Fifo {
        &mut self.outputs[port]
    }

    /// Moves something, if anything can move. `up`: the ports where packets pass.
    pub(super) fn step(&mut self, routes: &Routes, up: Ports) -> Option<Step> {
        let mut wants = [Contenders::default(); 64];
        let wants = &mut wants[..self.outputs.len()];
        for input in 0..self.inputs.len() {
            let Some(head) = self.inputs[input].first() else { continue };
            let port = PortId(input as u8);
            match routes.route(input, &head.address()) {
                Route::Nowhere => {
                    let loss = Loss::NoRoute { from: port, host: head.address().host };
                    return Some(self.discard(input, loss));
                }
                Route::Port(at) if up & 1 << at.0 == 0 => {
                    return Some(self.discard(input, Loss::PortDown { from: port, at }));
                }
                Route::Port(at) => wants[usize::from(at.0)].singles |= 1 << input,
                Route::Group(members) if members & up == 0 => {
                    let at = PortId(members.trailing_zeros() as u8);
                    return Some(self.discard(input, Loss::PortDown { from: port, at }));
                }
                Route::Group(members) => {
                    for output in bits(members & up) {
                        wants[output].groups |= 1 << input;
                    }
                }
            }
        }
        self.refresh_reservation(routes, up);
        // Multicasts first: what they owe keeps them from having it all.
        self.serve_groups(routes, up, wants)
            .or_else(|| (0..wants.len()).find_map(|output| self.serve(output, wants[output])))
    }

    /// Throws the oldest packet of an input away, as far as it has come in.
    fn discard(&mut self, input: usize, loss: Loss) -> Step {
        let fifo = &mut self.inputs[input];
        let before = fifo.free();
        let words = fifo.pop(u32::MAX).map_or(0, |(burst, _)| u64::from(burst.words()));
        Step { input, freed: fifo.free() - before, lost: Some(Lost { words, why: loss }) }
    }

    /// One piece for one output, from the input whose turn it is.
    fn serve(&mut self, output: usize, contenders: Contenders) -> Option<Step> {
        let Contenders { singles, groups } = contenders;
        let turn = &mut self.turns[output];
        if singles == 0 {
            turn.owed = 0;
            return None;
        }
        let kept = kept(self.reservation, self.turn, output);
        let is_contended = (singles | groups).count_ones() > 1;
        let goes_on = singles & 1 << turn.input != 0 && (turn.left > 0 || !is_contended);
        if !goes_on {
            turn.input = next_after(singles, turn.input);
            turn.left = self.turn;
        }
        if !is_contended {
            turn.left = self.turn;
        }
        let (from, to) = (&mut self.inputs[turn.input], &mut self.outputs[output]);
        let head = from.first()?;
        let room = to.room_for(&head.address()).saturating_sub(kept);
        let most = if is_contended { room.min(turn.left.max(head.least())) } else { room };
        let (before, room_before) = (from.free(), to.free());
        let (burst, words) = from.pop(most)?;
        let moved = to.push(burst, words);
        debug_assert!(moved, "no more was taken than there is room for");
        let cost = room_before - to.free();
        turn.left = turn.left.saturating_sub(cost);
        turn.owed = turn.owed.saturating_sub(cost);
        Some(Step { input: turn.input, freed: from.free() - before, lost: None })
    }

    /// Members may have gone, and so may the multicast.
    fn refresh_reservation(&mut self, routes: &Routes, up: Ports) {
        self.reservation = self.reservation.and_then(|Reservation { input, .. }| {
            let group = self.group(input, routes, up)?;
            Some(Reservation { input, members: group.members })
        });
    }

    /// One piece of one multicast, to all members; or a reservation for the first
    /// that has to wait.
    fn serve_groups(&mut self, routes: &Routes, up: Ports, wants: &[Contenders]) -> Option<Step> {
        let ports = self.inputs.len();
        for input in (0..ports).map(|n| (self.next_group + n) % ports) {
            let Some(group) = self.group(input, routes, up) else { continue };
            let Group { head, members, .. } = group;
            let is_holder = self.reservation.is_some_and(|held| held.input == input);
            if !is_holder && bits(members).any(|output| self.turns[output].owed > 0) {
                continue;
            }
            let others = self.reservation.filter(|_| !is_holder);
            let piece = head.words().min(self.turn).max(head.least());
            let fits = |output: usize| {
                let room = self.outputs[output].room_for(&head.address());
                room.saturating_sub(kept(others, self.turn, output)) >= piece
            };
            if bits(members).all(fits) {
                return self.multiply(input, piece, group, wants);
            }
            if self.reservation.is_none() {
                self.reservation = Some(Reservation { input, members });
            }
        }
        None
    }

    /// The multicast that an input waits with, and where it goes.
    fn group(&self, input: usize, routes: &Routes, up: Ports) -> Option<Group> {
        let head = self.inputs[input].first()?;
        match routes.route(input, &head.address()) {
            Route::Group(all) if all & up != 0 => {
                Some(Group { head, members: all & up, absent: all & !up })
            }
            _ => None,
        }
    }

    fn multiply(
        &mut self,
        input: usize,
        piece: u32,
        group: Group,
        wants: &[Contenders],
    ) -> Option<Step> {
        let from = &mut self.inputs[input];
        let before = from.free();
        let (burst, words) = from.pop(piece)?;
        self.copies.clear();
        self.copies.extend(words);
        for output in bits(group.members) {
            let moved = self.outputs[output].push(burst, self.copies.iter().copied());
            debug_assert!(moved, "every member has room");
            let waiting = wants[output].singles.count_ones();
            self.turns[output].owed = self.turn.saturating_mul(waiting);
        }
        if self.reservation.is_some_and(|held| held.input == input) {
            self.reservation = None;
        }
        self.next_group = input + 1;
        let lost = bits(group.absent).next().map(|at| {
            let (from, at) = (PortId(input as u8), PortId(at as u8));
            Lost { words: burst.words().into(), why: Loss::PortDown { from, at } }
        });
        Some(Step { input, freed: self.inputs[input].free() - before, lost })
    }
}

/// The words that an output keeps for a multicast: room for a turn, and its header.
fn kept(reservation: Option<Reservation>, turn: u32, output: usize) -> u32 {
    let is_member = |held: Reservation| held.members & 1 << output != 0;
    if reservation.is_some_and(is_member) { turn + HEADER_WORDS } else { 0 }
}

/// The ports of a set.
fn bits(mut set: Ports) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let first = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(first)
    })
}

/// The first of a set behind `port`, going round. The set is not empty.
fn next_after(set: Ports, port: usize) -> usize {
    let behind = set & (u64::MAX << port << 1);
    (if behind == 0 { set } else { behind }).trailing_zeros() as usize
}

/// Nobody's port.
const NONE: u8 = u8::MAX;
const HOSTS: usize = HostId::MAX as usize + 1;

/// A set of ports: one bit for each.
pub(super) type Ports = u64;

#[derive(Debug)]
pub(super) struct Routes {
    hosts: Vec<u8>,
    groups: Vec<Ports>,
}

/// Where a packet is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Port(PortId),
    /// To all of these.
    Group(Ports),
    Nowhere,
}

impl Routes {
    pub(super) fn new() -> Self {
        Self { hosts: vec![NONE; HOSTS], groups: vec![0; HOSTS] }
    }

    pub(super) fn set(&mut self, host: HostId, port: Option<PortId>) {
        self.hosts[usize::from(host.number())] = port.map_or(NONE, |port| port.0);
    }

    pub(super) fn join(&mut self, group: HostId, port: PortId) {
        self.groups[usize::from(group.number())] |= 1 << port.0;
    }

    pub(super) fn leave(&mut self, group: HostId, port: PortId) {
        if port.0 < 64 {
            self.groups[usize::from(group.number())] &= !(1 << port.0);
        }
    }

    /// The way of a packet that came in at port `from`: a multicast does not go
    /// back to where it came from.
    pub(super) fn route(&self, from: usize, address: &Address) -> Route {
        let host = usize::from(address.host.number());
        if address.kind == Kind::Multicast {
            let members = self.groups[host] & !(1 << from);
            return if members == 0 { Route::Nowhere } else { Route::Group(members) };
        }
        match self.hosts[host] {
            NONE => Route::Nowhere,
            port => Route::Port(PortId(port)),
        }
    }
}

/// What happened at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Packets pass at a port.
    Up {
        /// Which.
        port: PortId,
        /// The host there; `None` for another switch.
        peer: Option<HostId>,
    },
    /// No packets pass at a port any more. If something is plugged in, the link
    /// begins anew.
    Down {
        /// Which.
        port: PortId,
        /// Why.
        why: Ended,
    },
    /// Words had to be thrown away.
    Lost {
        /// How many.
        words: u64,
        /// What had become of them.
        loss: Loss,
    },
    /// Events that found no room.
    Overflow {
        /// How many.
        lost: u64,
    },
}

/// Why words were thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// There is no way to that host, or the group has no members.
    NoRoute {
        /// Where they came from.
        from: PortId,
        /// Whom they were for.
        host: HostId,
    },
    /// The port that they were to leave at is down.
    PortDown {
        /// Where they came from.
        from: PortId,
        /// Where they were to leave.
        at: PortId,
    },
    /// They waited at a port whose link ended.
    Waiting {
        /// Where they were to leave.
        at: PortId,
    },
}
