//! How users answer what they are asked.

use alloc::vec;
use alloc::vec::Vec;

use super::calls::ADMITTED;
use super::ledger::{Connection, Receive, ReceivePurpose, Stage};
use super::world::{FRESH, World};
use crate::error::Error;
use crate::ids::{ConnectionId, ReadId};
use crate::wire::Reason;

/// Something that waits for the user.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    Incoming(Connection),
    Offer(Receive, usize),
    Read(ReadId, ConnectionId, usize),
    Ask(usize),
}

impl World {
    /// What the user of an end was asked and did not answer.
    pub(super) fn questions(&self, side: usize) -> Vec<Question> {
        let user = &self.ends[side].user;
        let mut found = Vec::new();
        let asked = |known: &&Connection| known.stage == Stage::Asked && !known.is_closing;
        found.extend(user.connections.iter().filter(asked).map(|c| Question::Incoming(*c)));
        found.extend(user.receives.iter().filter_map(|receive| {
            match (receive.what, receive.memory) {
                (ReceivePurpose::Offer { transfer }, None) => {
                    Some(Question::Offer(*receive, transfer))
                }
                _ => None,
            }
        }));
        found.extend(user.reads_asked.iter().map(|(id, c, read)| Question::Read(*id, *c, *read)));
        found.extend((0..user.asks.len()).map(Question::Ask));
        found
    }

    /// Answers one question; `how` zero is yes.
    pub(super) fn decide(&mut self, side: usize, which: u8, how: u8) {
        let questions = self.questions(side);
        let at = usize::from(which) % questions.len().max(1);
        match questions.get(at).copied() {
            Some(Question::Incoming(known)) => self.answer_incoming(side, known, how),
            Some(Question::Offer(receive, transfer)) => {
                self.answer_offer(side, receive, transfer, how);
            }
            Some(Question::Read(id, connection, read)) => {
                self.answer_reader(side, (id, connection), read, how);
            }
            Some(Question::Ask(at)) => self.answer_ask(side, at, how),
            None => {}
        }
        self.hear();
    }

    fn answer_incoming(&mut self, side: usize, known: Connection, how: u8) {
        let (now, end) = (self.now, &mut self.ends[side]);
        let turns_away = how & 15 == 15;
        let result = if turns_away {
            end.checked.engine.turn_away(known.id, Reason::Refused)
        } else {
            end.checked.engine.admit(now, known.id, ADMITTED | (known.connect as u64 + 1))
        };
        if turns_away {
            end.user.connections.retain(|other| other.id != known.id);
            self.truth.excuse(known.connect);
        } else if let Some(known) = end.user.connections.iter_mut().find(|c| c.id == known.id) {
            known.stage = Stage::Admitted;
        }
        if let Err(error) = result {
            self.expect_error(side, "admit", error, &[]);
        }
    }

    fn answer_offer(&mut self, side: usize, receive: Receive, transfer: usize, how: u8) {
        let offered = self.truth.transfers[transfer].bytes.len();
        let (len, takes_part) = match how & 7 {
            0..=3 => (offered, false),
            4 => (offered + usize::from(how >> 3), true),
            5 => (offered / 2, true),
            _ => (offered / 2, false),
        };
        let now = self.now;
        let refuses = how & 7 == 7;
        let end = &mut self.ends[side];
        if refuses {
            self.truth.transfers[transfer].is_excused = true;
            if let Err(error) = end.checked.engine.refuse(receive.id, Reason::Refused) {
                self.expect_error(side, "refuse", error, &[Error::NotOpen]);
            }
            return;
        }
        // The same part, which its sender hears of before there is memory.
        let says_limit = how & 15 == 13;
        if says_limit && let Err(error) = end.checked.engine.limit(receive.id, len as u64) {
            return self.expect_error(side, "limit", error, &[Error::NotOpen, Error::TooShort]);
        }
        let takes_part = takes_part && !says_limit;
        let end = &mut self.ends[side];
        let area = end.lend(usize::from(how) * 3 % 130, &vec![FRESH; len]);
        match end.checked.engine.accept(now, receive.id, area, takes_part) {
            Ok(()) => {
                self.truth.transfers[transfer].is_excused |=
                    len < offered && !takes_part && !says_limit;
                let found = end.user.receives.iter_mut().find(|other| other.id == receive.id);
                if let Some(receive) = found {
                    receive.memory = Some(area);
                }
            }
            // It got memory that was posted later, or takes no part of nothing.
            Err(error) => {
                self.expect_error(side, "accept", error, &[Error::NotOpen, Error::TooShort]);
            }
        }
    }

    fn answer_reader(
        &mut self,
        side: usize,
        (id, connection): (ReadId, ConnectionId),
        read: usize,
        how: u8,
    ) {
        let Some(known) = self.ends[side].user.connection(connection).copied() else { return };
        let wanted = self.truth.reads[read].len;
        let now = self.now;
        if how & 7 == 7 {
            self.truth.reads[read].is_excused = true;
            let end = &mut self.ends[side];
            end.user.reads_asked.retain(|(other, ..)| *other != id);
            if let Err(error) = end.checked.engine.refuse_read(now, id, Reason::Refused) {
                self.expect_error(side, "refuse_read", error, &[]);
            }
            return;
        }
        // Sometimes more than is wanted: that is cut.
        let len = match how & 7 {
            0..=2 => wanted,
            3 => wanted + u64::from(how >> 3),
            _ => wanted / 2,
        };
        let (bytes, name) = (self.pattern(len as u32), self.truth.transfers.len());
        let end = &mut self.ends[side];
        let area = end.lend(usize::from(how) % 70, &bytes);
        match end.checked.engine.answer_read(now, id, area, name as u32) {
            Ok(send) => {
                end.user.reads_asked.retain(|(other, ..)| *other != id);
                end.user.sends.push((send, name, area));
                let bytes = bytes[..len.min(wanted) as usize].to_vec();
                self.note_transfer(side, known.connect, bytes, Some(read));
                self.truth.transfers[name].is_excused = self.truth.reads[read].is_excused;
            }
            Err(error) => self.expect_error(side, "answer_read", error, &[Error::Busy]),
        }
    }
}
