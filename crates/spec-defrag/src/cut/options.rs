//! Which options of an IPv4 header every piece repeats (RFC 791, section 3.1).

use landfall_placement::Refusal;

/// Nothing follows.
const END: u8 = 0;
/// One byte of padding.
const NOTHING: u8 = 1;
/// In the kind of an option: every piece repeats it.
const COPIED: u8 = 0x80;

/// The options of a header that every piece repeats, one after another.
pub(super) struct Repeated<'a>(&'a [u8]);

impl<'a> Repeated<'a> {
    /// Of these options.
    pub(super) const fn of(options: &'a [u8]) -> Self {
        Self(options)
    }

    /// How many bytes they take in a header, which is a multiple of 4 long.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if an option is longer than what is left, or shorter
    /// than its own first bytes.
    pub(super) fn len(self) -> Result<usize, Refusal> {
        let mut len = 0;
        for option in self {
            len += option?.len();
        }
        Ok(len.next_multiple_of(4))
    }
}

impl<'a> Iterator for Repeated<'a> {
    type Item = Result<&'a [u8], Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let len = match *self.0 {
                [] | [END, ..] => return None,
                [NOTHING, ..] => 1,
                [_, len, ..] if len >= 2 => usize::from(len),
                _ => 0,
            };
            let (option, rest) = match self.0.split_at_checked(len) {
                Some(split) if len > 0 => split,
                _ => {
                    self.0 = &[];
                    return Some(Err(Refusal::Malformed));
                }
            };
            self.0 = rest;
            if option[0] & COPIED != 0 {
                return Some(Ok(option));
            }
        }
    }
}
