//! Messages that are longer than a packet, cut into chunks. Lost chunks are sent again.
//!
//! The two ends send in turns: the initiator message 1, the responder message 2, and so on. A chunk
//! of the next message acknowledges the whole of the one before; until then each unit carries which
//! chunks of the other's message came. Only the initiator has timers: its unit with
//! [`again`](Chunk::again) makes the responder send again what is missing.
//!
//! Before there are keys, anybody can forge chunks. The first one is kept. One that contradicts it
//! is noted, and the initiator begins another attempt, whose messages have other numbers.

use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::Refusal;

use super::HandshakeUnits;
use crate::handshake::MOST_MESSAGE;

/// What is in front of a chunk, behind the head that all messages of handshakes have.
pub(crate) const CHUNK_HEAD: usize = 20;
/// The most chunks that are sent and not acknowledged.
pub(crate) const WINDOW: u32 = 16;
/// The number of chunks that are acknowledged at once.
const ANSWERED: u32 = 4;
/// The numbers of the messages of one attempt: those of the next begin behind them.
const ATTEMPT: u8 = 64;
/// The most attempts of one handshake.
pub(crate) const MOST_ATTEMPTS: u8 = 4;
/// All chunks of any message.
const ALL: u128 = u128::MAX;
/// Set in the number of a chunk: the receiver sends again what is missing.
const AGAIN: u8 = 0x80;
/// The number of a chunk where there is none.
const NO_CHUNK: u8 = 0x7f;

const _: () = assert!(MOST_MESSAGE.div_ceil(HandshakeUnits::Short.chunk()) < NO_CHUNK as usize);

/// A chunk as it lies in a unit, with the acknowledgement of the other direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    /// The number of the sender's message; 0 where it has sent none.
    pub(crate) turn: u8,
    /// The receiver sends again what is missing here.
    pub(crate) again: bool,
    /// The number of the chunk, and its bytes.
    pub(crate) part: Option<(u8, &'a [u8])>,
    /// The length of the message.
    pub(crate) len: u16,
    /// Which chunks of the receiver's next message came. In a first message: the cookie.
    pub(crate) have: u128,
}

/// The attempt that a first message begins with this number, if it is one.
#[cfg_attr(not(feature = "rustls"), allow(dead_code, reason = "nobody answers by TLS"))]
pub(crate) const fn begun_attempt(turn: u8) -> Option<u8> {
    let (attempt, nth) = (turn / ATTEMPT, turn % ATTEMPT);
    if nth == 1 && attempt < MOST_ATTEMPTS { Some(attempt) } else { None }
}

impl<'a> Chunk<'a> {
    /// Reads what is behind the head of a message.
    pub(crate) fn read(bytes: &'a [u8], units: HandshakeUnits) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<CHUNK_HEAD>()?;
        let [turn, number, high, low, have @ ..] = *head;
        let (len, have) = (u16::from_be_bytes([high, low]), u128::from_be_bytes(have));
        let index = number & !AGAIN;
        let part = if index == NO_CHUNK {
            None
        } else {
            let part = chunk_of(units, usize::from(len), usize::from(index))?;
            Some((index, rest.get(..part.len())?))
        };
        Some(Self { turn, again: number & AGAIN != 0, part, len, have })
    }

    /// Appends it.
    pub(crate) fn write(&self, unit: &mut Vec<u8>) {
        let (index, bytes) = self.part.unwrap_or((NO_CHUNK, &[]));
        unit.extend_from_slice(&[self.turn, index | if self.again { AGAIN } else { 0 }]);
        unit.extend_from_slice(&self.len.to_be_bytes());
        unit.extend_from_slice(&self.have.to_be_bytes());
        unit.extend_from_slice(bytes);
    }
}

/// Where a chunk lies in a message of this length, if the message may be that long.
fn chunk_of(units: HandshakeUnits, len: usize, index: usize) -> Option<core::ops::Range<usize>> {
    let start = index * units.chunk();
    (start < len && len <= MOST_MESSAGE).then(|| start..len.min(start + units.chunk()))
}

/// What became of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// Nothing more yet.
    Nothing,
    /// There is more of a message, or of what is known to have come.
    Progress,
    /// A message is whole.
    Message(Vec<u8>),
}

/// The messages of one end, and those that it receives.
#[derive(Debug, Default)]
pub(crate) struct ChunkedMessages {
    units: HandshakeUnits,
    /// The number of this end's message, the message, and which chunks of it came.
    turn: u8,
    message: Vec<u8>,
    acked: u128,
    /// The chunk that is to be sent next.
    next: usize,
    /// The other's message, of which these chunks came, or all that will.
    incoming: Vec<u8>,
    have: u128,
    is_received: bool,
    /// Chunks that came since the last unit of this end, and whether one is owed.
    unanswered: u32,
    owes: bool,
    /// The next unit asks for what is missing.
    again: bool,
    /// Something came that contradicts what came before: one of both is forged.
    is_disputed: bool,
}

impl ChunkedMessages {
    /// The end that begins, with its first message.
    pub(crate) fn initiator(units: HandshakeUnits, attempt: u8, message: Vec<u8>) -> Self {
        Self { units, turn: attempt * ATTEMPT + 1, message, ..Self::default() }
    }

    /// The end that answers.
    pub(crate) fn responder(units: HandshakeUnits, attempt: u8) -> Self {
        Self { units, turn: attempt * ATTEMPT, ..Self::default() }
    }

    /// The number of the attempt.
    pub(crate) const fn attempt(&self) -> u8 {
        self.turn / ATTEMPT
    }

    /// Is this chunk of the same attempt?
    pub(crate) const fn is_of_attempt(&self, chunk: &Chunk<'_>) -> bool {
        chunk.turn / ATTEMPT == self.attempt()
    }

    /// Notes that something contradicts what came before.
    pub(crate) const fn dispute(&mut self) {
        self.is_disputed = true;
    }

    /// Did something contradict what came before?
    pub(crate) const fn is_disputed(&self) -> bool {
        self.is_disputed
    }

    /// Throws away what came of the other's message, for a chunk of it is forged, and asks for all
    /// of it.
    pub(crate) fn discard(&mut self) {
        (self.incoming, self.have, self.is_received) = (Vec::new(), 0, false);
        (self.owes, self.again, self.is_disputed) = (true, true, false);
    }

    /// The number of this end's message in its attempt.
    pub(crate) const fn number(&self) -> u8 {
        self.turn % ATTEMPT
    }

    /// Sends the next message, once the other's was received.
    pub(crate) fn send(&mut self, message: Vec<u8>) {
        debug_assert!(self.is_received, "it is the other's turn");
        self.turn = self.turn.saturating_add(2);
        (self.message, self.acked, self.next) = (message, 0, 0);
        (self.is_received, self.have) = (false, 0);
    }

    /// Was the other's message received whole, and not answered yet?
    pub(crate) const fn is_received(&self) -> bool {
        self.is_received
    }

    /// Were all chunks of this end's message acknowledged?
    pub(crate) fn is_acked(&self) -> bool {
        let chunks = self.message.len().div_ceil(self.units.chunk());
        (0..chunks).all(|at| self.acked >> at & 1 == 1)
    }

    /// Sends again what was not acknowledged, and asks for what is missing here.
    pub(crate) fn repeat(&mut self) {
        (self.next, self.again, self.owes) = (0, true, true);
    }

    /// Sends again what was not acknowledged.
    pub(crate) const fn resend(&mut self) {
        self.next = 0;
    }

    /// A unit of the other end came.
    pub(crate) fn handle_chunk(&mut self, chunk: &Chunk<'_>) -> Result<Handled, Refusal> {
        let next = self.turn.saturating_add(1);
        if chunk.turn == next {
            return self.handle_next(chunk);
        }
        if chunk.turn.saturating_add(1) != self.turn {
            return Err(Refusal::Duplicate);
        }
        // The other end has not received all of this end's message.
        // One that has all of it answers with its next message, unless it has failed over it.
        self.is_disputed |= chunk.have == ALL && chunk.part.is_none();
        let known = self.acked;
        self.acked |= chunk.have;
        if chunk.again {
            // It may have had to throw away what it had.
            (self.acked, self.next) = (chunk.have, 0);
        }
        Ok(if self.acked == known { Handled::Nothing } else { Handled::Progress })
    }

    fn handle_next(&mut self, chunk: &Chunk<'_>) -> Result<Handled, Refusal> {
        self.acked = ALL;
        self.owes |= chunk.again;
        // A responder that is asked answers with all that it has, so that the initiator forgets
        // forged acknowledgements.
        self.again |= chunk.again && self.turn.is_multiple_of(2);
        let Some((index, bytes)) = chunk.part else { return Ok(Handled::Nothing) };
        if self.is_received {
            return Ok(Handled::Nothing);
        }
        let len = usize::from(chunk.len);
        let range = chunk_of(self.units, len, index.into()).ok_or(Refusal::Malformed)?;
        if self.incoming.is_empty() {
            self.incoming = vec![0; len];
        }
        if self.incoming.len() != len || range.len() != bytes.len() {
            self.is_disputed = true;
            return Err(Refusal::Malformed);
        }
        let bit = 1 << index;
        if self.have & bit != 0 {
            self.is_disputed |= self.incoming[range] != *bytes;
            return Ok(Handled::Nothing);
        }
        self.incoming[range].copy_from_slice(bytes);
        self.have |= bit;
        self.unanswered += 1;
        if (self.have.count_ones() as usize) < len.div_ceil(self.units.chunk()) {
            self.owes |= self.unanswered >= ANSWERED;
            return Ok(Handled::Progress);
        }
        (self.is_received, self.have, self.owes) = (true, ALL, true);
        Ok(Handled::Message(core::mem::take(&mut self.incoming)))
    }

    /// The next unit to be sent: a chunk, or an acknowledgement.
    pub(crate) fn poll_chunk(&mut self) -> Option<Chunk<'_>> {
        let chunks = self.message.len().div_ceil(self.units.chunk());
        while self.next < chunks && self.acked >> self.next & 1 == 1 {
            self.next += 1;
        }
        let sent = ALL.checked_shr(ALL.count_ones() - self.next as u32).unwrap_or_default();
        let under_way = (sent & !self.acked).count_ones();
        let len = self.message.len() as u16;
        let index = self.next;
        let part = match chunk_of(self.units, self.message.len(), index) {
            Some(range) if under_way < WINDOW => {
                self.next += 1;
                Some((index as u8, &self.message[range]))
            }
            _ if self.owes => None,
            _ => return None,
        };
        (self.owes, self.unanswered) = (false, 0);
        let again = core::mem::take(&mut self.again);
        Some(Chunk { turn: self.turn, again, part, len, have: self.have })
    }
}
