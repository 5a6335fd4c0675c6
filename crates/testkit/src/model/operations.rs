//! What may happen to two engines, decoded from any bytes: the same for
//! property tests and fuzzing.

use super::choices::Choices;

/// One thing that happens. `side` is the end that it happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    /// The user sends so many bytes.
    Send { side: usize, len: u32 },
    /// The user posts memory for so many bytes.
    Post { side: usize, len: u32 },
    /// The driver sends up to so many units; it may hold them for a while.
    Transmit { side: usize, count: u8, holds: bool },
    /// The driver is done with what it held.
    Release { side: usize },
    /// The driver receives one of the units under way, and asks for its place.
    Place { side: usize, which: u8 },
    /// The driver tells of so many landings, the first of them failed or not.
    Land { side: usize, count: u8, fails: bool },
    /// A unit under way is lost.
    Lose { side: usize, which: u8 },
    /// A unit under way is doubled.
    Double { side: usize, which: u8 },
    /// A bit of a unit under way is flipped.
    Flip { side: usize, which: u8, bit: u16 },
    /// These bytes arrive.
    Inject { side: usize, bytes: &'a [u8] },
    /// Junk falls wherever the engine guesses.
    Scatter { side: usize },
    /// Time passes, up to the next timeout or by so many microseconds.
    Wait { micros: Option<u8> },
    /// The path goes down, or comes up again.
    Path { side: usize, is_up: bool },
    /// An old ticket comes back.
    Stale { side: usize },
    /// The user asks for something of its own: a word operation, the end of the stream.
    Special { side: usize, value: u8 },
}

/// Decodes operations until the bytes end.
#[derive(Clone, Debug)]
pub(super) struct Operations<'a> {
    choices: Choices<'a>,
}

impl<'a> Operations<'a> {
    /// The operations that these bytes stand for.
    #[must_use]
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { choices: Choices::new(bytes) }
    }

    fn byte(&mut self) -> u8 {
        self.choices.byte()
    }

    fn len(&mut self) -> u32 {
        // Small ones often, and up to 4 KiB.
        let (shape, fine) = (self.byte(), self.byte());
        let wide = u32::from(shape & 15) << 8 | u32::from(fine);
        if shape & 0x40 == 0 { u32::from(fine % 64) + 1 } else { wide + 1 }
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
        Some(match code & 0x7f {
            0..=9 => Operation::Send { side, len: self.len() },
            10..=19 => Operation::Post { side, len: self.len() },
            20..=44 => {
                let count = self.byte();
                Operation::Transmit { side, count: count & 31, holds: count & 0x80 != 0 }
            }
            45..=49 => Operation::Release { side },
            50..=74 => Operation::Place { side, which: self.byte() },
            75..=94 => {
                let count = self.byte();
                Operation::Land { side, count: (count & 31) + 1, fails: count & 0xe0 == 0xe0 }
            }
            95..=97 => Operation::Lose { side, which: self.byte() },
            98..=100 => Operation::Double { side, which: self.byte() },
            101..=103 => {
                let which = self.byte();
                let bit = self.choices.word();
                Operation::Flip { side, which, bit }
            }
            104..=106 => {
                let len = self.byte().into();
                Operation::Inject { side, bytes: self.choices.raw(len) }
            }
            107..=110 => Operation::Scatter { side },
            111..=117 => {
                let micros = self.byte();
                Operation::Wait { micros: (micros & 1 == 0).then_some(micros) }
            }
            118 => Operation::Path { side, is_up: self.byte() & 3 != 0 },
            119..=122 => Operation::Stale { side },
            _ => Operation::Special { side, value: self.byte() },
        })
    }
}
