//! Towards the kernel: buffers are put there, and come back filled.

use std::time::{Duration, Instant};

use clan_dsm::Cookie;

use super::outgoing::ROOM;
use super::terms::{BUFFER, Completion, Offer, Terms};
use super::workers::wait_aside;
use crate::clan::layer::queue::{Receiver, Sender};
use crate::clan::network::{Aperture, Node};
use crate::clan::{Error, Local, Misbehaviour};

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
