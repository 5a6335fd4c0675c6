//! Towards the kernel: offers buffers to the other side, which come back filled.

use std::collections::VecDeque;

use clan_dsm::Cookie;

use super::outgoing::ROOM;
use super::terms::{BUFFER, Completion, Offer, Terms};
use crate::clan::layer::queue::{Receiver, Sender};
use crate::clan::network::{Aperture, Node};
use crate::clan::{Error, Local, Misbehaviour};

/// Buffers that are used up before they are offered anew, or fewer where there are few: the
/// other side has most of them at any time, and needs no word for each. A word of its own
/// wakes that side, and costs what a packet costs.
const BATCH: u32 = 16;

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
    /// Buffers to be offered.
    unoffered: VecDeque<usize>,
    /// Some were to be published, and the way had no room.
    is_blocked: bool,
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
        let buffers_there = terms.buffers as usize;
        let (is_out, unoffered) = (vec![false; buffers_there], (0..buffers_there).collect());
        let packet = vec![0; ROOM as usize];
        let mut incoming = Self {
            terms,
            buffers,
            cookie,
            cookies,
            completions,
            is_out,
            unoffered,
            is_blocked: false,
            packet,
        };
        incoming.publish()?;
        Ok(incoming)
    }

    /// The next packet, and its buffer; nothing if none is there.
    pub(super) fn next(&mut self) -> Result<Option<Completion>, Error> {
        let mut element = [0; Completion::LEN];
        // What was taken out needs no word: the cookies say it.
        if !self.completions.try_get_quietly(&mut element)? {
            if self.is_blocked {
                self.publish()?;
            }
            return Ok(None);
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
        self.unoffered.push_back((completion.at / BUFFER) as usize);
        let batch = BATCH.min(self.terms.buffers / 4).max(1) as usize;
        if self.unoffered.len() >= batch { self.publish() } else { Ok(()) }
    }

    /// Offers all that are free.
    fn publish(&mut self) -> Result<(), Error> {
        self.offer()?;
        self.is_blocked = match self.cookies.publish() {
            // The send buffer is full: the next time.
            Err(Error::Busy) => true,
            published => published.map(|()| !self.unoffered.is_empty())?,
        };
        Ok(())
    }

    /// Is there something to publish that found no room?
    pub(super) const fn has_unpublished(&self) -> bool {
        self.is_blocked
    }

    fn offer(&mut self) -> Result<(), Error> {
        while let Some(nth) = self.unoffered.front().copied() {
            let offer = Offer { cookie: self.cookie, at: nth as u64 * BUFFER };
            match self.cookies.try_put(&offer.to_bytes()) {
                // A full send buffer has room some time.
                Err(Error::Busy) => return Ok(()),
                // There is room for every buffer twice: only a peer that never publishes causes
                // this.
                Ok(false) => {
                    let most = u64::from(self.terms.buffers);
                    let length = Misbehaviour::Length { len: most + 1, most };
                    return Err(Error::PeerMisbehaved(length));
                }
                put => put?,
            };
            self.unoffered.pop_front();
            self.is_out[nth] = true;
        }
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
