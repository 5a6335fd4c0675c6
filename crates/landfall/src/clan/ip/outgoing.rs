//! Away from the kernel: a packet goes into a buffer of the other side, and a message
//! says so.

use std::time::{Duration, Instant};

use clan_dsm::Cookie;

use super::station::HEADER;
use super::stats::Counts;
use super::terms::{Completion, Offer, Terms};
use crate::clan::layer::queue::{Receiver, Sender};
use crate::clan::network::{Aperture, Node, Window};
use crate::clan::{Dma, Error, Fabric, Misbehaviour, Remote, Stage, WORD};

/// For so long a packet waits for a cookie, or for room on the way. Longer, and it is
/// dropped: IP expects no more.
const PATIENCE: Duration = Duration::from_millis(20);
/// The most apertures that a receiver has its buffers in.
const APERTURES: usize = 8;

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) node: Node,
    pub(super) terms: Terms,
    pub(super) cookies: Receiver<Node>,
    pub(super) completions: Sender<Node>,
    /// The apertures that cookies have named so far.
    pub(super) windows: Vec<(Cookie, Window)>,
}

/// A packet on its way: until it has left, its memory must not change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    window: usize,
    dma: Dma,
}

impl Outgoing {
    /// Sends a packet that lies in registered memory. None: it was dropped.
    pub(super) fn send_from(
        &mut self,
        header: [u8; HEADER],
        (memory, at, len): (&Aperture, u64, usize),
        counts: &Counts,
    ) -> Result<Option<Leaving>, Error> {
        let Some((offer, window)) = self.place(counts)? else { return Ok(None) };
        let range = at..at + (len as u64).next_multiple_of(WORD);
        let dma = within_patience(&mut self.windows[window].1, |to| {
            to.write_from(offer.at, memory, range.clone())
        })?;
        self.complete(offer, header, len, counts)?;
        Ok(Some(Leaving { window, dma }))
    }

    /// Sends a packet that goes to others as well. False: it was dropped.
    pub(super) fn send(
        &mut self,
        header: [u8; HEADER],
        packet: &[u8],
        counts: &Counts,
    ) -> Result<bool, Error> {
        let Some((offer, window)) = self.place(counts)? else { return Ok(false) };
        within_patience(&mut self.windows[window].1, |to| to.write(offer.at, packet))?;
        self.complete(offer, header, packet.len(), counts)?;
        Ok(true)
    }

    /// The other side hears of all that was sent.
    pub(super) fn publish(&mut self) -> Result<(), Error> {
        self.completions.publish()
    }

    /// May the memory of this packet be used again?
    pub(super) fn has_left(&self, leaving: Leaving) -> bool {
        // Where the link is gone nobody sends from it any more.
        let (_, window) = &self.windows[leaving.window];
        window.is_reached(Stage::Sent(leaving.dma)).unwrap_or(true)
    }

    /// A buffer for the next packet, and the window that it is in.
    fn place(&mut self, counts: &Counts) -> Result<Option<(Offer, usize)>, Error> {
        let mut element = [0; Offer::LEN];
        if !self.cookies.try_get(&mut element)? {
            counts.waited();
            // The other side can only give back what it has been told of.
            self.completions.publish()?;
            match self.cookies.get(&mut element, Some(Instant::now() + PATIENCE)) {
                Err(Error::TimedOut) => {
                    counts.dropped();
                    return Ok(None);
                }
                got => got?,
            }
        }
        let offer = Offer::from_bytes(&element)?;
        let window = self.window_of(&offer.cookie)?;
        let room = self.windows[window].1.len();
        match offer.at.checked_add(self.terms.buffer()) {
            Some(end) if end <= room && offer.at.is_multiple_of(WORD) => Ok(Some((offer, window))),
            _ => Err(misplaced(offer.at, room)),
        }
    }

    fn window_of(&mut self, cookie: &Cookie) -> Result<usize, Error> {
        if let Some(known) = self.windows.iter().position(|(known, _)| known == cookie) {
            return Ok(known);
        }
        if self.windows.len() == APERTURES {
            let (len, most) = (APERTURES as u64 + 1, APERTURES as u64);
            return Err(Error::PeerMisbehaved(Misbehaviour::Length { len, most }));
        }
        self.windows.push((*cookie, self.node.map(cookie)?));
        Ok(self.windows.len() - 1)
    }

    fn complete(
        &mut self,
        offer: Offer,
        header: [u8; HEADER],
        len: usize,
        counts: &Counts,
    ) -> Result<(), Error> {
        let completion = Completion { at: offer.at, len: len as u16, header };
        // There is room for a completion of each buffer that was offered.
        self.completions.put(&completion.to_bytes(), Some(Instant::now() + PATIENCE))?;
        counts.sent(len);
        Ok(())
    }
}

/// Writes, and publishes it before anything that another handle writes.
fn within_patience<T>(
    window: &mut Window,
    mut write: impl FnMut(&mut Window) -> Result<T, Error>,
) -> Result<T, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match write(window) {
            Err(Error::Busy) => window.wait_for(Stage::Room, Some(deadline))?,
            Err(error) => return Err(error),
            Ok(done) => {
                window.commit()?;
                return Ok(done);
            }
        }
    }
}

fn misplaced(at: u64, room: u64) -> Error {
    Error::PeerMisbehaved(Misbehaviour::Counter { from: 0, to: at, room })
}
