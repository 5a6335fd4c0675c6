//! What may happen, decoded from any bytes: the same for property tests and fuzzing.

/// One thing that happens. `side` is the end that it happens to: 0 is the host under
/// test, 1 its peer. `which` picks one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The user exposes memory of so many bytes.
    Expose { side: usize, len: u16 },
    /// The user ends the rights to an aperture.
    Revoke { side: usize, which: u8 },
    /// The user watches bytes of an aperture.
    Watch { side: usize, which: u8, at: u16, len: u16, how: u8 },
    /// The user arms, disarms, asks or removes a tripwire.
    Change { side: usize, which: u8, how: u8 },
    /// The user writes bytes to an aperture of the other side.
    Write { side: usize, which: u8, at: u16, len: u16, how: u8 },
    /// The user writes words from memory.
    Move { side: usize, which: u8, at: u16, len: u16 },
    /// The user reads words.
    Read { side: usize, which: u8, at: u16, len: u16 },
    /// The user founds a group, joins one or leaves it.
    Group { side: usize, which: u8, how: u8 },
    /// The user writes to a group.
    Publish { side: usize, which: u8, at: u16, len: u16 },
    /// The link goes down, or comes up again.
    Link { is_up: bool },
    /// A unit that went to the host once comes again, altered.
    Forge { which: u8, how: u8, by: u8 },
    /// These bytes come to the host.
    Junk { seed: u8, len: u8 },
    /// Time passes: so many microseconds.
    Wait { micros: u8 },
    /// Much time passes.
    Settle,
}

/// Decodes steps until the bytes end.
#[derive(Clone, Debug)]
pub(super) struct Steps<'a>(pub(super) &'a [u8]);

impl Steps<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Mostly short, and up to 1 KiB.
    fn len(&mut self) -> u16 {
        let (shape, fine) = (u16::from(self.byte()), u16::from(self.byte()));
        match shape >> 6 {
            0 => fine % 9 + 1,
            1 => fine % 70 + 1,
            _ => ((shape & 3) << 8 | fine) + 1,
        }
    }

    /// A place, often at the beginning of a word.
    fn at(&mut self) -> u16 {
        let at = u16::from(self.byte());
        if at & 1 == 0 { at * 4 } else { at }
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.0.is_empty() {
            return None;
        }
        let code = self.byte();
        // Most happens to the host under test by way of its peer.
        let side = usize::from(code >> 7);
        let other = 1 - side.min(usize::from(code >> 6 & 1));
        let which = self.byte();
        Some(match code & 63 {
            0..=4 => Step::Expose { side: 1 - other, len: self.len() },
            5..=6 => Step::Revoke { side: 1 - other, which },
            7..=13 => Step::Watch {
                side: 1 - other,
                which,
                at: self.at(),
                len: self.len(),
                how: self.byte(),
            },
            14..=16 => Step::Change { side: 1 - other, which, how: self.byte() },
            17..=31 => {
                Step::Write { side: other, which, at: self.at(), len: self.len(), how: self.byte() }
            }
            32..=38 => Step::Move { side: other, which, at: self.at(), len: self.len() },
            39..=41 => Step::Read { side, which, at: self.at(), len: self.len() },
            42..=44 => Step::Group { side: 1 - other, which, how: self.byte() },
            45..=47 => Step::Publish { side: other, which, at: self.at(), len: self.len() },
            48 => Step::Link { is_up: code & 64 != 0 },
            49..=54 => Step::Forge { which, how: self.byte(), by: self.byte() },
            55 => Step::Junk { seed: which, len: self.byte() },
            56..=61 => Step::Wait { micros: which },
            _ => Step::Settle,
        })
    }
}
