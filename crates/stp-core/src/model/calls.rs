//! What users do: connections and Transfers.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{PathId, Peer};

use super::ledger::{Connecting, Connection, Reading, Receive, ReceivePurpose, Stage, Transfer};
use super::world::{FRESH, PORT, World};
use crate::connection::Connect;
use crate::error::Error;
use crate::preference::{MOST_WEIGHT, Priority};
use crate::wire::Reason;

/// Users under test do not begin more than this: a run stays short.
const MOST_CONNECTS: usize = 24;

/// The port that a user of an end asks from where the other may ask at the same time.
const fn meeting_port(side: usize) -> u16 {
    100 + side as u16
}

/// What admitting a connection says; the rest is its name.
pub(super) const ADMITTED: u64 = 1 << 63;

impl World {
    /// One of the connections on which something may be begun.
    pub(super) fn pick_open(&self, side: usize, which: u8) -> Option<Connection> {
        let open = |known: &&Connection| known.stage == Stage::Open && !known.is_closing;
        let known: Vec<_> = self.ends[side].user.connections.iter().filter(open).collect();
        known.get(usize::from(which & 63) % known.len().max(1)).copied().copied()
    }

    /// A call was refused: that is as it may be, or not.
    pub(super) fn expect_error(
        &mut self,
        side: usize,
        call: &str,
        error: Error,
        allowed: &[Error],
    ) {
        if !allowed.contains(&error) {
            self.fail(side, &format!("{call} says: {error}"));
        }
    }

    pub(super) fn connect(&mut self, side: usize, to: u8, meets: bool) {
        if self.truth.connects.len() >= MOST_CONNECTS {
            return;
        }
        let (others, name) = (self.sides() - 1, self.truth.connects.len());
        let other = (side + 1 + usize::from(to) % others) % self.sides();
        let path = PathId(if meets { 0 } else { u16::from(to >> 2 & 1) });
        let hello = name as u64 + 1;
        let connect = if meets {
            Connect { port: meeting_port(other), local_port: Some(meeting_port(side)), hello }
        } else {
            Connect { port: PORT, local_port: None, hello }
        };
        let (now, end) = (self.now, &mut self.ends[side]);
        match end.checked.engine.connect(now, path, Peer::Node(other as u32), connect) {
            Ok(id) => {
                let stage = Stage::Opening;
                let known = Connection { id, connect: name, stage, is_closing: false };
                end.user.connections.push(known);
                self.truth.connects.push(Connecting {
                    from: side,
                    to: other,
                    // Where nobody asks at the same time, nobody listens.
                    is_excused: meets,
                    meets,
                    is_accepted: false,
                    was_too_long: false,
                });
            }
            Err(error) => {
                let allowed = [Error::Busy, Error::PathDown, Error::Taken];
                self.expect_error(side, "connect", error, &allowed);
            }
        }
    }

    /// Bytes that no other Transfer or operation has.
    pub(super) fn pattern(&self, len: u32) -> Vec<u8> {
        let salt = self.truth.transfers.len() as u64 * 2 + self.findings.digest() % 0x1_0000 + 1;
        let salt = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut bytes = vec![0; (len as usize).next_multiple_of(8)];
        for (n, word) in (1u64..).zip(bytes.chunks_exact_mut(8)) {
            let mixed = (salt ^ salt >> 29).wrapping_add(n.wrapping_mul(0xd6e8_feb8_6659_fd93));
            let mixed = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
        }
        bytes.truncate(len as usize);
        bytes
    }

    pub(super) fn send(&mut self, side: usize, which: u8, len: u32) {
        let Some(connection) = self.pick_open(side, which) else { return };
        let (bytes, name) = (self.pattern(len), self.truth.transfers.len());
        let (now, end) = (self.now, &mut self.ends[side]);
        let area = end.lend(usize::from(which) * 7 % 90, &bytes);
        match end.checked.engine.send(now, connection.id, area, name as u32) {
            Ok(send) => {
                end.user.sends.push((send, name, area));
                self.note_transfer(side, connection.connect, bytes, None);
            }
            Err(error) => self.expect_error(side, "send", error, &[Error::Busy]),
        }
    }

    pub(super) fn note_transfer(
        &mut self,
        side: usize,
        connect: usize,
        bytes: Vec<u8>,
        answers: Option<usize>,
    ) {
        let (delivered, is_excused, is_offered) = (None, false, false);
        let to = self.truth.other(connect, side);
        self.truth.transfers.push(Transfer {
            connect,
            to,
            bytes,
            answers,
            is_offered,
            delivered,
            is_excused,
        });
    }

    pub(super) fn post(&mut self, side: usize, which: u8, len: u32, takes_part: bool) {
        let Some(connection) = self.pick_open(side, which) else { return };
        let (now, end) = (self.now, &mut self.ends[side]);
        let area = end.lend(usize::from(which) * 11 % 150, &vec![FRESH; len as usize]);
        // It may come back at once: where an offer waits for which it is too short.
        end.user.posts.push((connection.id, area));
        if let Err(error) = end.checked.engine.post(now, connection.id, area, takes_part) {
            end.user.posts.pop();
            self.expect_error(side, "post", error, &[Error::Busy, Error::TooShort]);
        }
    }

    pub(super) fn read(&mut self, side: usize, which: u8, len: u32) {
        let Some(connection) = self.pick_open(side, which) else { return };
        let name = self.truth.reads.len();
        let (now, end) = (self.now, &mut self.ends[side]);
        let area = end.lend(usize::from(which) * 5 % 140, &vec![FRESH; len as usize]);
        match end.checked.engine.read(now, connection.id, area, name as u32) {
            Ok(id) => {
                let connect = connection.connect;
                let (memory, what) = (Some(area), ReceivePurpose::Read { read: name });
                end.user.receives.push(Receive { id, connect, memory, what });
                let to = self.truth.other(connect, side);
                let (len, is_asked, is_excused) = (u64::from(len), false, false);
                self.truth.reads.push(Reading { connect, to, len, is_asked, is_excused });
            }
            Err(error) => self.expect_error(side, "read", error, &[Error::Busy]),
        }
    }

    pub(super) fn cancel(&mut self, side: usize, which: u8, is_send: bool) {
        let (now, at) = (self.now, usize::from(which & 63));
        let end = &mut self.ends[side];
        let result = if is_send {
            let sends = &end.user.sends;
            let Some((send, name, _)) = sends.get(at % sends.len().max(1)).copied() else { return };
            self.truth.transfers[name].is_excused = true;
            end.checked.engine.cancel_send(now, send)
        } else {
            let receives = &end.user.receives;
            let Some(known) = receives.get(at % receives.len().max(1)).copied() else { return };
            self.excuse_receive(known);
            self.ends[side].checked.engine.cancel_receive(now, known.id)
        };
        if let Err(error) = result {
            self.expect_error(side, "cancel", error, &[]);
        }
    }

    /// A user ends what is received.
    fn excuse_receive(&mut self, known: Receive) {
        match known.what {
            ReceivePurpose::Offer { transfer } => self.truth.transfers[transfer].is_excused = true,
            ReceivePurpose::Read { read } => {
                self.truth.reads[read].is_excused = true;
                for transfer in &mut self.truth.transfers {
                    transfer.is_excused |= transfer.answers == Some(read);
                }
            }
            ReceivePurpose::Get { .. } => {
                for end in &mut self.ends {
                    for other in end.user.receives.iter_mut().filter(|other| other.id == known.id) {
                        if let ReceivePurpose::Get { may_fail, .. } = &mut other.what {
                            *may_fail = true;
                        }
                    }
                }
            }
        }
    }

    pub(super) fn close(&mut self, side: usize, which: u8, at_once: bool) {
        let known = &mut self.ends[side].user.connections;
        let at = usize::from(which & 63) % known.len().max(1);
        let Some(known) = known.get_mut(at) else { return };
        known.is_closing = true;
        let Connection { id, connect, .. } = *known;
        self.truth.excuse(connect);
        let (now, endpoint) = (self.now, &mut self.ends[side].checked.engine);
        let result = if at_once {
            endpoint.abort(now, id, Reason::Cancelled)
        } else {
            endpoint.close(now, id)
        };
        if let Err(error) = result {
            self.expect_error(side, "close", error, &[]);
        }
    }

    pub(super) fn prefer(&mut self, side: usize, which: u8) {
        let priority = Priority::ALL[usize::from(which >> 4) % Priority::ALL.len()];
        let at = usize::from(which & 15);
        let Some(connection) = self.pick_open(side, which) else { return };
        let end = &mut self.ends[side];
        let (sends, receives) = (&end.user.sends, &end.user.receives);
        let send = sends.get(at % sends.len().max(1)).map(|known| known.0);
        let receive = receives.get(at % receives.len().max(1)).map(|known| known.id);
        let engine = &mut end.checked.engine;
        let weight = u16::from(which) * 8;
        let in_range = weight.clamp(1, MOST_WEIGHT);
        let is_refused = engine.set_weight(connection.id, weight).is_err();
        let mut results = vec![
            engine.set_priority(connection.id, priority),
            engine.set_weight(connection.id, in_range),
        ];
        results.extend(send.map(|send| engine.set_send_priority(send, priority)));
        results.extend(receive.map(|receive| engine.set_receive_priority(receive, priority)));
        for error in results.into_iter().filter_map(Result::err) {
            self.expect_error(side, "prefer", error, &[]);
        }
        if is_refused != (weight != in_range) {
            self.fail(side, &format!("a weight of {weight}: refused is {is_refused}"));
        }
    }

    pub(super) fn add_link(&mut self, side: usize, which: u8) {
        let Some(connection) = self.pick_open(side, which) else { return };
        let other = self.truth.other(connection.connect, side);
        let path = PathId(u16::from(which >> 6 & 1));
        let (now, end) = (self.now, &mut self.ends[side]);
        let peer = Peer::Node(other as u32);
        if let Err(error) = end.checked.engine.add_link(now, connection.id, path, peer) {
            let allowed = [Error::Busy, Error::PathDown, Error::Taken];
            self.expect_error(side, "add_link", error, &allowed);
        }
    }
}
