//! Messages in chunks: what holds whatever becomes of the chunks.

use alloc::vec;
use alloc::vec::Vec;

use super::Fate;
use crate::HandshakeUnits;
use crate::MOST_MESSAGE;
use crate::layer::chunks::{CHUNK_HEAD, Chunk, ChunkedMessages, Handled, WINDOW};

/// The most messages of an exchange of the model.
const MOST_EXCHANGED: usize = 8;

/// What the fuzz target `seal_chunks` does with its bytes: an exchange over a bad network, or an
/// end that receives forged chunks.
///
/// # Panics
///
/// If what is promised does not hold.
pub fn check_chunks(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let units = if first & 0x40 == 0 { HandshakeUnits::Usual } else { HandshakeUnits::Short };
    if first & 0x80 != 0 {
        return handle_forgeries(units, first & 1 == 1, rest);
    }
    let count = usize::from(*first) % MOST_EXCHANGED;
    let Some((lens, fates)) = rest.split_at_checked(2 * count) else { return };
    let lens: Vec<u16> = lens.as_chunks().0.iter().map(|len| u16::from_be_bytes(*len)).collect();
    exchange_messages(units, &lens, &Fate::from_bytes(fates));
}

/// Two ends exchange messages in chunks, over a network that treats them as the fates say, and
/// delivers everything once there are none left. `lens` are the lengths of the
/// messages, counted round what a message may have; the initiator sends the first one.
///
/// # Panics
///
/// If a message arrives that was not sent, out of its turn or twice, or one does not arrive.
pub fn exchange_messages(units: HandshakeUnits, lens: &[u16], fates: &[Fate]) {
    if lens.is_empty() || lens.len() > MOST_EXCHANGED {
        return;
    }
    let mut exchange = Exchange {
        units,
        ends: [
            ChunkedMessages::initiator(units, 0, message(lens, 0)),
            ChunkedMessages::responder(units, 0),
        ],
        lens,
        received: 0,
        fates: fates.iter(),
    };
    // The timer of the initiator fires, and what is sent then crosses. Each chunk is lost as often
    // as there are fates, and each firing has one cross at least where there are none left.
    let most = fates.len() + 40 * lens.len();
    for _ in 0..most {
        if exchange.received == lens.len() {
            return;
        }
        exchange.ends[0].repeat();
        while exchange.cross() {}
    }
    assert_eq!(exchange.received, lens.len(), "all arrived");
}

/// The message with this number.
fn message(lens: &[u16], nth: usize) -> Vec<u8> {
    let len = 1 + usize::from(lens[nth]) % MOST_MESSAGE;
    (0..len).map(|at| (at * 7 + nth) as u8).collect()
}

/// An exchange under way.
struct Exchange<'a> {
    units: HandshakeUnits,
    ends: [ChunkedMessages; 2],
    lens: &'a [u16],
    /// The number of messages that arrived.
    received: usize,
    fates: core::slice::Iter<'a, Fate>,
}

impl Exchange<'_> {
    /// Carries what both ends send now. True if anything arrived.
    fn cross(&mut self) -> bool {
        let mut has_arrived = false;
        for from in 0..2 {
            for unit in sent_by(&mut self.ends[from], self.units) {
                let times = match self.fates.next() {
                    Some(Fate::Cut(_)) => 0,
                    Some(Fate::Repeat) => 2,
                    Some(Fate::Replace(bytes)) => {
                        // Of a turn that is over, or far away: it changes nothing.
                        if let Some(made_up) = Chunk::read(bytes, self.units) {
                            let far = Chunk { turn: made_up.turn | 0x80, ..made_up };
                            assert!(self.ends[1 - from].handle_chunk(&far).is_err());
                        }
                        1
                    }
                    _ => 1,
                };
                for _ in 0..times {
                    has_arrived = true;
                    self.arrive(from, &unit);
                }
            }
        }
        has_arrived
    }

    fn arrive(&mut self, from: usize, unit: &[u8]) {
        let chunk = Chunk::read(unit, self.units).expect("it was written so");
        let Ok(Handled::Message(whole)) = self.ends[1 - from].handle_chunk(&chunk) else { return };
        assert_eq!(self.received % 2, from, "it is this end's turn");
        assert_eq!(whole, message(self.lens, self.received), "what was sent arrives");
        self.received += 1;
        if self.received < self.lens.len() {
            self.ends[1 - from].send(message(self.lens, self.received));
        }
    }
}

/// All that an end sends now.
fn sent_by(end: &mut ChunkedMessages, units: HandshakeUnits) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    while let Some(chunk) = end.poll_chunk() {
        let mut unit = Vec::new();
        chunk.write(&mut unit);
        assert!(unit.len() <= CHUNK_HEAD + units.chunk());
        sent.push(unit);
        assert!(sent.len() <= WINDOW as usize + 1, "the window bounds what is under way");
    }
    sent
}

/// One end, and forged chunks: five bytes of each head, and any contents.
fn handle_forgeries(units: HandshakeUnits, is_initiator: bool, bytes: &[u8]) {
    let mut end = if is_initiator {
        ChunkedMessages::initiator(units, 0, vec![1; 3_000])
    } else {
        ChunkedMessages::responder(units, 0)
    };
    for [turn, number, high, low, have] in bytes.as_chunks::<5>().0 {
        let mut unit = vec![*have; CHUNK_HEAD + units.chunk()];
        unit[..4].copy_from_slice(&[*turn, *number, *high, *low]);
        let Some(chunk) = Chunk::read(&unit, units) else { continue };
        if let Ok(Handled::Message(whole)) = end.handle_chunk(&chunk) {
            assert!(!whole.is_empty() && whole.len() <= MOST_MESSAGE);
            assert!(end.is_received());
            end.send(whole);
        }
        sent_by(&mut end, units);
    }
}
