//! What may happen, decoded from any bytes: the same for property tests and fuzzing.

/// One thing that happens. `side` is the end that it happens to: 0 is the host
/// under test, 1 its peer. `which` picks one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The user asks for a connection.
    Connect { side: usize },
    /// The user sends so many bytes.
    Send { side: usize, which: u8, len: u32 },
    /// The user posts memory, that begins so far into its region.
    Post { side: usize, which: u8, len: u32, lead: u8 },
    /// The user asks for a Transfer.
    Read { side: usize, which: u8, len: u32 },
    /// The user asks for a region.
    Ask { side: usize, which: u8 },
    /// The user reads from a region of the other side, writes to it, or
    /// modifies a word of it.
    Remote { side: usize, which: u8, how: u8, len: u32 },
    /// The user ends what it sends or receives.
    Cancel { side: usize, which: u8, is_send: bool },
    /// The user closes a connection, gracefully or at once.
    Close { side: usize, which: u8, at_once: bool },
    /// The user adds the other path to a connection.
    AddLink { side: usize, which: u8 },
    /// A link goes down, or comes up again.
    Link { which: u8, is_up: bool },
    /// A frame that went to the host once comes again, altered.
    Forge { which: u8, how: u8, by: u8 },
    /// These bytes come to the host.
    Junk { seed: u8, len: u8 },
    /// Time passes: so many units of 50 µs.
    Wait { units: u8 },
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

    /// Short ones sometimes, and up to 8 KiB.
    fn len(&mut self) -> u32 {
        let (shape, fine) = (u32::from(self.byte()), u32::from(self.byte()));
        match shape >> 6 {
            0 => fine % 80,
            1 => fine + 1,
            _ => ((shape & 31) << 8 | fine) + 1,
        }
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.0.is_empty() {
            return None;
        }
        let code = self.byte();
        let side = usize::from(code >> 7);
        let which = self.byte();
        Some(match code & 63 {
            0 | 1 => Step::Connect { side },
            2..=9 => Step::Send { side: 1, which, len: self.len() },
            10 => Step::Send { side: 0, which, len: self.len() },
            11..=18 => Step::Post { side: 0, which, len: self.len(), lead: self.byte() },
            19 => Step::Post { side: 1, which, len: self.len(), lead: self.byte() },
            20..=22 => Step::Read { side, which, len: self.len() },
            23..=24 => Step::Ask { side, which },
            25..=28 => Step::Remote { side, which, how: self.byte(), len: self.len() },
            29..=31 => Step::Cancel { side, which, is_send: code & 64 != 0 },
            32 => Step::Close { side, which, at_once: code & 64 != 0 },
            33..=34 => Step::AddLink { side, which },
            35..=36 => Step::Link { which, is_up: code & 64 != 0 },
            37..=47 => Step::Forge { which, how: self.byte(), by: self.byte() },
            48 => Step::Junk { seed: which, len: self.byte() },
            49..=61 => Step::Wait { units: which },
            _ => Step::Settle,
        })
    }
}
