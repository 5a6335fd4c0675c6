//! What may happen on the wire and at the receiver, decoded from any bytes: the
//! same for property tests and fuzzing.

use landfall_testkit::model::Choices;

/// One thing that happens. `which` picks one of the frames under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    /// Packets of a flow are cut and sent.
    Send(Sending),
    /// The driver receives so many of the frames under way.
    Receive { count: u8, lies: bool },
    /// A frame is lost.
    Lose { which: u8 },
    /// A frame is doubled; the copy comes `later` frames later.
    Double { which: u8, later: u8 },
    /// Two frames change places.
    Swap { which: u8, other: u8 },
    /// A bit of a frame is flipped; of a header, mostly.
    Flip { which: u8, bit: u16 },
    /// A byte of a header is another one, and the checksum is made right.
    Change { which: u8, at: u8, value: u8 },
    /// A frame that is cut off, or padded.
    Resize { which: u8, len: u8 },
    /// A piece with other bytes that overlaps one that is under way.
    Overlap { which: u8, shift: u8, before: bool },
    /// A piece with the name of a packet under way, anywhere in it.
    Spoof { which: u8, place: u8 },
    /// A piece is congested, or does not understand congestion.
    Mark { which: u8, ecn: u8 },
    /// A frame that has nothing to do with pieces.
    Foreign { kind: u8, place: u8 },
    /// A packet made to break somebody.
    Attack { kind: u8, flow: u8 },
    /// A frame that came long ago comes again.
    Replay { which: u8 },
    /// These bytes come, behind the headers of a flow or alone.
    Inject { flow: u8, bytes: &'a [u8] },
    /// Time passes: up to the next timeout, or by so many quarters of a second.
    Wait { quarters: Option<u8> },
    /// The user is done with some of its packets.
    Release { count: u8, newest_first: bool },
    /// Everything that is under way arrives.
    Settle,
}

/// What is sent, and how it meets what is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sending {
    pub(super) flow: u8,
    /// So many packets.
    pub(super) count: u8,
    /// How long they are, and what is special about them.
    pub(super) shape: u8,
    pub(super) fine: u8,
    /// How they are cut.
    pub(super) mtu: u8,
    /// In which order the pieces come, and among which others.
    pub(super) pattern: u8,
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

    fn sending(&mut self) -> Sending {
        let (flow, shape) = (self.byte(), self.byte());
        let (fine, rest) = (self.byte(), self.byte());
        // Streams of page after page are what the engine is for, and learns from.
        let count = if shape < 0x80 { [2, 5, 10, 25][usize::from(rest >> 6)] } else { 1 };
        Sending { flow, count, shape, fine, mtu: rest & 7, pattern: rest >> 3 & 7 }
    }

    fn of_frames(&mut self, code: u8) -> Operation<'a> {
        let which = self.byte();
        match code {
            32..=33 => Operation::Lose { which },
            34 => Operation::Double { which, later: self.byte() },
            35..=36 => Operation::Swap { which, other: self.byte() },
            37 => Operation::Flip { which, bit: self.choices.word() },
            38..=39 => Operation::Change { which, at: self.byte(), value: self.byte() },
            40 => Operation::Resize { which, len: self.byte() },
            41..=42 => {
                let shift = self.byte();
                Operation::Overlap { which, shift: shift & 0x7f, before: shift > 0x7f }
            }
            43 => Operation::Spoof { which, place: self.byte() },
            44 => Operation::Mark { which, ecn: self.byte() & 3 },
            45 => Operation::Replay { which },
            46..=47 => Operation::Foreign { kind: which, place: self.byte() },
            48 => Operation::Attack { kind: which, flow: self.byte() },
            _ => {
                let len = usize::from(self.byte() & 63);
                Operation::Inject { flow: which, bytes: self.choices.raw(len) }
            }
        }
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Operation<'a>;

    fn next(&mut self) -> Option<Operation<'a>> {
        if self.choices.is_over() {
            return None;
        }
        Some(match self.byte() & 63 {
            0..=15 => Operation::Send(self.sending()),
            16..=31 => {
                let how = self.byte();
                Operation::Receive { count: how & 0x3f, lies: how & 0x40 != 0 }
            }
            code @ 32..=50 => self.of_frames(code),
            51..=54 => {
                let time = self.byte();
                Operation::Wait { quarters: (time & 7 != 7).then_some(time >> 3) }
            }
            55..=59 => {
                let how = self.byte();
                Operation::Release { count: how & 0x1f, newest_first: how & 0x80 != 0 }
            }
            _ => Operation::Settle,
        })
    }
}
