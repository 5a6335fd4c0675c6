//! What may happen to connected endpoints, decoded from any bytes: the same
//! for property tests and fuzzing.

use landfall_testkit::model::Choices;

use crate::region::PutOptions;

/// One thing that happens. `side` is the end that it happens to; `which` picks
/// one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    /// The user asks for a connection; `meets`: from a port at which the other
    /// side may be asking at the same time.
    Connect { side: usize, to: u8, meets: bool },
    /// The user answers one of the questions that it was asked.
    Decide { side: usize, which: u8, how: u8 },
    /// The user sends this many bytes.
    Send { side: usize, which: u8, len: u32 },
    /// The user posts memory for this many bytes.
    Post { side: usize, which: u8, len: u32, takes_part: bool },
    /// The user asks for a Transfer.
    Read { side: usize, which: u8, len: u32 },
    /// The user asks for a region.
    Ask { side: usize, which: u8, len: u32, rights: u8 },
    /// The user writes to a region of the other side.
    Put { side: usize, which: u8, at: u8, len: u32, options: PutOptions },
    /// The user reads from it.
    Get { side: usize, which: u8, at: u8, len: u32 },
    /// The user modifies a word of it.
    Fetch { side: usize, which: u8, at: u8, function: u8 },
    /// The user ends what it sends or receives.
    Cancel { side: usize, which: u8, is_send: bool },
    /// The user takes a region back.
    Revoke { side: usize, which: u8 },
    /// The user prefers a connection and what it sends and receives, or does not.
    Prefer { side: usize, which: u8 },
    /// The user closes a connection, gracefully or at once.
    Close { side: usize, which: u8, at_once: bool },
    /// The user adds the other path to a connection.
    AddLink { side: usize, which: u8 },
    /// The driver sends up to this many units on a path; it may hold them for a while.
    Transmit { side: usize, path: u16, count: u8, holds: bool },
    /// The driver is done with what it held, the oldest or the newest first.
    Release { side: usize, newest_first: bool },
    /// The driver receives one of the units under way, and asks for its place.
    Place { side: usize, which: u8 },
    /// The driver tells of this many landings, the first of them failed or not.
    Land { side: usize, count: u8, fails: bool },
    /// A unit under way is lost.
    Lose { side: usize, which: u8 },
    /// A unit under way is doubled.
    Double { side: usize, which: u8 },
    /// A unit that came long ago comes again.
    Replay { side: usize, which: u8 },
    /// A bit of a unit under way is flipped.
    Flip { side: usize, which: u8, bit: u16 },
    /// These bytes arrive.
    Inject { side: usize, bytes: &'a [u8] },
    /// Junk falls wherever the engine guesses.
    Scatter { side: usize, path: u16 },
    /// Time passes, up to the next timeout or by this many units of 8 µs.
    Wait { some: Option<u8> },
    /// A path goes down, or comes up again.
    Path { side: usize, path: u16, is_up: bool },
    /// An old ticket comes back.
    Stale { side: usize },
    /// Everything that is under way arrives.
    Settle,
}

/// Decodes operations until the bytes end.
#[derive(Clone, Debug)]
pub(super) struct Operations<'a> {
    choices: Choices<'a>,
    sides: usize,
}

impl<'a> Operations<'a> {
    /// The operations at this many ends that these bytes stand for.
    pub(super) const fn new(bytes: &'a [u8], sides: usize) -> Self {
        Self { choices: Choices::new(bytes), sides }
    }

    fn byte(&mut self) -> u8 {
        self.choices.byte()
    }

    /// Short ones often, none at all sometimes, and up to 2 KiB.
    fn len(&mut self) -> u32 {
        let (shape, fine) = (self.byte(), self.byte());
        match shape >> 6 {
            0 => u32::from(fine % 80),
            1 | 2 => u32::from(fine) + 1,
            _ => (u32::from(shape & 7) << 8 | u32::from(fine)) + 1,
        }
    }

    fn of_user(&mut self, code: u8, side: usize) -> Operation<'a> {
        let which = self.byte();
        match code {
            0 | 1 => Operation::Connect { side, to: which, meets: code == 1 && which & 0x80 != 0 },
            2..=9 => Operation::Decide { side, which, how: self.byte() },
            10..=13 => Operation::Send { side, which, len: self.len() },
            14..=16 => {
                let len = self.len();
                Operation::Post { side, which, len, takes_part: which & 0x80 != 0 }
            }
            17 | 18 => Operation::Read { side, which, len: self.len() },
            19 => Operation::Ask { side, which, len: self.len(), rights: which >> 4 },
            20 | 21 => {
                let (at, len) = (self.byte(), self.len());
                let (notice, answered_later) = (which & 0x80 != 0, at & 1 != 0);
                let options = PutOptions { notice, answered_later };
                Operation::Put { side, which, at, len, options }
            }
            22 => Operation::Get { side, which, at: self.byte(), len: self.len() },
            23 => Operation::Fetch { side, which, at: self.byte(), function: self.byte() },
            24 => Operation::Cancel { side, which, is_send: which & 0x80 != 0 },
            25 => Operation::AddLink { side, which },
            // Rare: they end much.
            _ => match self.byte() % 4 {
                0 => Operation::Close { side, which, at_once: which & 0x80 != 0 },
                1 => Operation::Revoke { side, which },
                2 => Operation::Prefer { side, which },
                _ => Operation::Cancel { side, which, is_send: which & 0x80 == 0 },
            },
        }
    }

    fn of_driver(&mut self, code: u8, side: usize) -> Operation<'a> {
        let which = self.byte();
        let path = u16::from(which >> 6 & 1);
        match code {
            27..=33 => {
                Operation::Transmit { side, path, count: which & 15, holds: which & 0x80 != 0 }
            }
            34 => Operation::Release { side, newest_first: which & 1 != 0 },
            35..=43 => Operation::Place { side, which },
            44..=49 => Operation::Land { side, count: (which & 15) + 1, fails: which >> 3 == 31 },
            50 => Operation::Lose { side, which },
            51 => Operation::Double { side, which },
            52 => Operation::Replay { side, which },
            53 => {
                let bit = self.choices.word();
                Operation::Flip { side, which, bit }
            }
            54 => {
                let bytes = self.choices.raw(usize::from(which & 63));
                Operation::Inject { side, bytes }
            }
            55 => Operation::Scatter { side, path },
            56..=58 => Operation::Wait { some: (which & 1 == 0).then_some(which) },
            59 => Operation::Path { side, path, is_up: which & 3 != 0 },
            60 => Operation::Stale { side },
            _ => Operation::Settle,
        }
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Operation<'a>;

    fn next(&mut self) -> Option<Operation<'a>> {
        if self.choices.is_over() {
            return None;
        }
        let code = self.byte();
        let side = usize::from(code >> 6) % self.sides;
        Some(match code & 63 {
            code @ 0..=26 => self.of_user(code, side),
            code => self.of_driver(code, side),
        })
    }
}
