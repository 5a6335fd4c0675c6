//! What may happen to two adapters, decoded from any bytes: the same for
//! property tests and fuzzing.

use landfall_testkit::model::Choices;

/// One thing that happens. `side` is the one that it happens to; `which` picks
/// one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    /// The user makes a queue pair and asks for a connection.
    Connect { side: usize },
    /// The user makes a queue pair and offers it to the listener.
    Offer { side: usize },
    /// The user makes a queue pair for datagrams.
    Bind { side: usize },
    /// The user sends so many bytes, from several places where `pieces` says so.
    Send { side: usize, which: u8, len: u32, pieces: u8 },
    /// The user posts memory for so many bytes.
    Receive { side: usize, which: u8, len: u32, pieces: u8 },
    /// The user says that a queue pair sends no more.
    Shutdown { side: usize, which: u8 },
    /// The user resets a connection.
    Abort { side: usize, which: u8 },
    /// The user destroys a queue pair.
    Destroy { side: usize, which: u8 },
    /// The user polls, where it does not always.
    Poll { side: usize },
    /// The user arms the completion queue.
    Arm { side: usize, solicited: bool },
    /// The user does what it must not.
    Blunder { side: usize, which: u8, how: u8 },
    /// The driver sends up to so many units; it may hold them for a while.
    Transmit { side: usize, count: u8, holds: bool },
    /// The driver is done with what it held, the oldest or the newest first.
    Release { side: usize, newest_first: bool },
    /// A turn: the driver receives so many of the units under way; the placing
    /// of one of them may fail.
    Turn { side: usize, count: u8, stride: u8, fails: bool },
    /// A unit under way is lost.
    Lose { side: usize, which: u8 },
    /// A unit under way is doubled.
    Double { side: usize, which: u8 },
    /// A unit that came long ago comes again.
    Replay { side: usize, which: u8 },
    /// A bit of a unit under way is flipped.
    Flip { side: usize, which: u8, bit: u16 },
    /// A unit under way meets congestion.
    Mark { side: usize, which: u8 },
    /// These bytes arrive, behind an Ethernet header.
    Inject { side: usize, bytes: &'a [u8] },
    /// Junk falls wherever the engine guesses.
    Scatter { side: usize },
    /// Time passes, up to the next timeout or by so many units of 64 µs.
    Wait { some: Option<u8> },
    /// The path goes down, or comes up again.
    Path { side: usize, is_up: bool },
    /// An old ticket comes back.
    Stale { side: usize },
    /// Everything that is under way arrives.
    Settle,
}

/// Decodes operations until the bytes end.
#[derive(Clone, Debug)]
pub(super) struct Operations<'a> {
    choices: Choices<'a>,
}

impl<'a> Operations<'a> {
    /// The operations that these bytes stand for.
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { choices: Choices::new(bytes) }
    }

    fn byte(&mut self) -> u8 {
        self.choices.byte()
    }

    /// Short ones often, none at all sometimes, and up to 8 KiB.
    fn len(&mut self) -> u32 {
        let (shape, fine) = (self.byte(), self.byte());
        match shape >> 6 {
            0 => u32::from(fine % 80),
            1 | 2 => u32::from(shape & 3) << 8 | u32::from(fine),
            _ => u32::from(shape & 31) << 8 | u32::from(fine),
        }
    }

    fn of_user(&mut self, code: u8, side: usize) -> Operation<'a> {
        match code {
            0 => Operation::Connect { side },
            1 => Operation::Offer { side },
            2 => Operation::Bind { side },
            3..=11 => {
                let (which, len) = (self.byte(), self.len());
                Operation::Send { side, which, len, pieces: which >> 6 }
            }
            12..=20 => {
                let (which, len) = (self.byte(), self.len());
                Operation::Receive { side, which, len, pieces: which >> 6 }
            }
            21 => Operation::Poll { side },
            22 => Operation::Arm { side, solicited: self.byte() & 1 == 1 },
            23 => Operation::Blunder { side, which: self.byte(), how: self.byte() },
            // Rare: they end much.
            _ => match (self.byte(), self.byte()) {
                (which, 0..=127) => Operation::Shutdown { side, which },
                (which, 128..=143) => Operation::Abort { side, which },
                (which, 144..=159) => Operation::Destroy { side, which },
                _ => Operation::Poll { side },
            },
        }
    }

    fn of_driver(&mut self, code: u8, side: usize) -> Operation<'a> {
        let which = self.byte();
        match code {
            25..=33 => Operation::Transmit { side, count: which & 15, holds: which & 0x80 != 0 },
            34 => Operation::Release { side, newest_first: which & 1 != 0 },
            35..=46 => {
                let (count, stride) = (which & 15, which >> 4 & 3);
                Operation::Turn { side, count, stride, fails: which >> 3 == 31 }
            }
            47 | 48 => Operation::Lose { side, which },
            49 => Operation::Double { side, which },
            50 => Operation::Replay { side, which },
            51 => {
                let bit = self.choices.word();
                Operation::Flip { side, which, bit }
            }
            52 => Operation::Mark { side, which },
            53 => {
                let bytes = self.choices.raw(usize::from(which & 63));
                Operation::Inject { side, bytes }
            }
            54 => Operation::Scatter { side },
            55..=57 => Operation::Wait { some: (which & 3 != 0).then_some(which) },
            58 => Operation::Path { side, is_up: which & 3 != 0 },
            59 => Operation::Stale { side },
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
        let side = usize::from(code >> 7);
        Some(match code & 63 {
            code @ 0..=24 => self.of_user(code, side),
            code => self.of_driver(code, side),
        })
    }
}
