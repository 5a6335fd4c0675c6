//! Messages in turns, cut into chunks: what holds whatever becomes of the chunks.

use alloc::vec;
use alloc::vec::Vec;

use super::Fate;
use crate::MOST_MESSAGE;
use crate::layer::turns::{CHUNK, CHUNK_HEAD, Chunk, Taken, Turns, WINDOW};

/// No conversation of the model has more messages.
const MOST_TURNS: usize = 8;

/// What the fuzz target `seal_turns` does with its bytes: a conversation over a bad network, or an
/// end that hears what a stranger makes up.
///
/// # Panics
///
/// If what is promised does not hold.
pub fn check_turns(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    if first & 0x80 != 0 {
        return hear_stranger(first & 1 == 1, rest);
    }
    let count = usize::from(*first) % MOST_TURNS;
    let Some((lens, fates)) = rest.split_at_checked(2 * count) else { return };
    let lens: Vec<u16> = lens.as_chunks().0.iter().map(|len| u16::from_be_bytes(*len)).collect();
    take_turns(&lens, &Fate::from_bytes(fates));
}

/// What two ends say to each other in turns, carried by chunks over a network that does with them
/// what the fates say, and everything once there are none left. `lens` are the lengths of the
/// messages, counted round what a message may have; the initiator says the first one.
///
/// # Panics
///
/// If a message was heard that was not said, out of its turn or twice, or one was not heard.
pub fn take_turns(lens: &[u16], fates: &[Fate]) {
    if lens.is_empty() || lens.len() > MOST_TURNS {
        return;
    }
    let mut talk = Talk {
        ends: [Turns::initiator(0, message(lens, 0)), Turns::responder(0)],
        lens,
        heard: 0,
        fates: fates.iter(),
    };
    // The timer of the initiator fires, and what is said then crosses. Each chunk is lost as often
    // as there are fates, and each firing has one cross at least where there are none left.
    let most = fates.len() + 40 * lens.len();
    for _ in 0..most {
        if talk.heard == lens.len() {
            return;
        }
        talk.ends[0].repeat();
        while talk.cross() {}
    }
    assert_eq!(talk.heard, lens.len(), "all was heard");
}

/// The message with this number.
fn message(lens: &[u16], nth: usize) -> Vec<u8> {
    let len = 1 + usize::from(lens[nth]) % MOST_MESSAGE;
    (0..len).map(|at| (at * 7 + nth) as u8).collect()
}

/// A conversation under way.
struct Talk<'a> {
    ends: [Turns; 2],
    lens: &'a [u16],
    /// So many messages were heard.
    heard: usize,
    fates: core::slice::Iter<'a, Fate>,
}

impl Talk<'_> {
    /// Carries what both ends say now. True if anything arrived.
    fn cross(&mut self) -> bool {
        let mut has_arrived = false;
        for from in 0..2 {
            for unit in said(&mut self.ends[from]) {
                let times = match self.fates.next() {
                    Some(Fate::Cut(_)) => 0,
                    Some(Fate::Repeat) => 2,
                    Some(Fate::Replace(bytes)) => {
                        // Of a turn that is over, or far away: it changes nothing.
                        if let Some(made_up) = Chunk::read(bytes) {
                            let far = Chunk { turn: made_up.turn | 0x80, ..made_up };
                            assert!(self.ends[1 - from].take(&far).is_err());
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
        let chunk = Chunk::read(unit).expect("it was written so");
        let Ok(Taken::Message(whole)) = self.ends[1 - from].take(&chunk) else { return };
        assert_eq!(self.heard % 2, from, "it is this end's turn");
        assert_eq!(whole, message(self.lens, self.heard), "what was said is heard");
        self.heard += 1;
        if self.heard < self.lens.len() {
            self.ends[1 - from].say(message(self.lens, self.heard));
        }
    }
}

/// All that an end says now.
fn said(end: &mut Turns) -> Vec<Vec<u8>> {
    let mut said = Vec::new();
    while let Some(chunk) = end.poll() {
        let mut unit = Vec::new();
        chunk.write(&mut unit);
        assert!(unit.len() <= CHUNK_HEAD + CHUNK);
        said.push(unit);
        assert!(said.len() <= WINDOW as usize + 1, "the window bounds what is under way");
    }
    said
}

/// One end, and chunks that a stranger makes up: five bytes of each head, and any contents.
fn hear_stranger(is_initiator: bool, bytes: &[u8]) {
    let mut end =
        if is_initiator { Turns::initiator(0, vec![1; 3_000]) } else { Turns::responder(0) };
    for [turn, number, high, low, have] in bytes.as_chunks::<5>().0 {
        let mut unit = vec![*have; CHUNK_HEAD + CHUNK];
        unit[..4].copy_from_slice(&[*turn, *number, *high, *low]);
        let Some(chunk) = Chunk::read(&unit) else { continue };
        if let Ok(Taken::Message(whole)) = end.take(&chunk) {
            assert!(!whole.is_empty() && whole.len() <= MOST_MESSAGE);
            assert!(end.is_heard());
            end.say(whole);
        }
        said(&mut end);
    }
}
