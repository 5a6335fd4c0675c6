//! [`Reassembler`]: whole messages out of a byte stream.
//!
//! A socket keeps no messages apart, so a queue pair that talks to one finds them
//! by what the two agreed on: a length in front, a delimiter behind, or a rule of
//! the user's. Completions of a byte stream cut it anywhere; what this gives is
//! the same however they did.

/// What a [`Framing`] found at the front of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The first message does not end here. It is known to have at least this many
    /// bytes, with its framing; more than there are.
    Incomplete {
        /// That many.
        at_least: usize,
    },
    /// The first message is whole.
    Message {
        /// Bytes of framing in front of it.
        before: usize,
        /// Bytes of the message.
        len: usize,
        /// Bytes of framing behind it.
        after: usize,
    },
}

/// Why a stream has no messages any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FramingError {
    /// A message is longer than was agreed.
    #[error("a message has at least {len} bytes, and {most} are the most: close the connection")]
    TooLong {
        /// This many it has at least.
        len: usize,
        /// This many it may have.
        most: usize,
    },
    /// The bytes are no message.
    #[error("the stream is not framed as agreed ({0}): close the connection")]
    Malformed(String),
}

/// Where messages end in a stream.
///
/// A closure does as well: `|bytes: &[u8], seen: usize| …`.
pub trait Framing {
    /// Looks for the first message in `bytes`. The first `seen` of them were
    /// looked at before, and did not hold all of it.
    ///
    /// # Errors
    /// The bytes cannot be the beginning of a message.
    fn scan(&mut self, bytes: &[u8], seen: usize) -> Result<Scan, FramingError>;
}

impl<F: FnMut(&[u8], usize) -> Result<Scan, FramingError>> Framing for F {
    fn scan(&mut self, bytes: &[u8], seen: usize) -> Result<Scan, FramingError> {
        self(bytes, seen)
    }
}

/// Messages with their length in front. The length counts what follows it.
#[derive(Clone, Copy, Debug)]
pub struct LengthPrefix(usize);

impl LengthPrefix {
    /// A length in this many bytes, 1 to 8, of which the most significant is first.
    #[must_use]
    pub const fn new(width: usize) -> Self {
        Self(if width == 0 {
            1
        } else if width > 8 {
            8
        } else {
            width
        })
    }
}

impl Framing for LengthPrefix {
    fn scan(&mut self, bytes: &[u8], _seen: usize) -> Result<Scan, FramingError> {
        let Some(prefix) = bytes.get(..self.0) else {
            return Ok(Scan::Incomplete { at_least: self.0 });
        };
        let len = prefix.iter().fold(0u64, |len, byte| len << 8 | u64::from(*byte));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let whole = self.0.saturating_add(len);
        if bytes.len() < whole {
            return Ok(Scan::Incomplete { at_least: whole });
        }
        Ok(Scan::Message { before: self.0, len, after: 0 })
    }
}

/// Messages with the same bytes behind each, such as `b"\n"`.
#[derive(Clone, Debug)]
pub struct Delimiter(Vec<u8>);

impl Delimiter {
    /// These bytes end a message. Without any, each byte is a message.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }
}

impl Framing for Delimiter {
    fn scan(&mut self, bytes: &[u8], seen: usize) -> Result<Scan, FramingError> {
        let width = self.0.len();
        if width == 0 {
            return Ok(Scan::Message { before: 0, len: 1, after: 0 });
        }
        // It may have begun at the end of what was seen.
        let from = seen.saturating_sub(width - 1).min(bytes.len());
        let found = bytes[from..].windows(width).position(|window| window == self.0);
        Ok(match found {
            Some(at) => Scan::Message { before: 0, len: from + at, after: width },
            None => Scan::Incomplete { at_least: bytes.len() + 1 },
        })
    }
}

/// Joins what comes of a byte stream into whole messages.
///
/// A message that lies whole in what came is given as it lies there; only those
/// that are cut are copied, and no more than one is kept.
///
/// ```
/// use landfall::qpip::{Delimiter, Reassembler};
///
/// let mut lines = Vec::new();
/// let mut reassembler = Reassembler::new(Delimiter::new(*b"\r\n"), 1024);
/// for part in [&b"HELO\r"[..], b"\nQU", b"IT\r\n"] {
///     reassembler.push(part, |line| lines.push(line.to_vec()))?;
/// }
/// assert_eq!(lines, [&b"HELO"[..], b"QUIT"]);
/// assert_eq!(reassembler.pending(), 0);
/// # Ok::<(), landfall::qpip::FramingError>(())
/// ```
#[derive(Debug)]
pub struct Reassembler<F> {
    framing: F,
    most: usize,
    /// The beginning of a message whose end has not come. All of it was seen.
    kept: Vec<u8>,
    /// No end before the message has this many bytes.
    at_least: usize,
    /// What ended this stream.
    broken: Option<FramingError>,
}

impl<F: Framing> Reassembler<F> {
    /// For messages of at most this many bytes, with their framing.
    pub const fn new(framing: F, most: usize) -> Self {
        Self { framing, most, kept: Vec::new(), at_least: 0, broken: None }
    }

    /// Takes the next bytes of the stream, and gives `each` message that they
    /// end, in order.
    ///
    /// # Errors
    /// The stream is not framed as agreed; it never is again.
    pub fn push(&mut self, bytes: &[u8], each: impl FnMut(&[u8])) -> Result<(), FramingError> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let result = self.take(bytes, each);
        if let Err(error) = &result {
            self.broken = Some(error.clone());
            self.kept = Vec::new();
        }
        result
    }

    /// This many bytes of a message have come whose end has not. Where the stream
    /// ends now, they are lost.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.kept.len()
    }

    fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), FramingError> {
        let Some(mut rest) = self.finish_kept(bytes, &mut each)? else { return Ok(()) };
        while !rest.is_empty() {
            match scan(&mut self.framing, rest, 0, self.most)? {
                Found::Message { from, to, end } => {
                    each(&rest[from..to]);
                    rest = &rest[end..];
                }
                Found::Incomplete { at_least } => {
                    self.kept.extend_from_slice(rest);
                    self.at_least = at_least;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Goes on with the message whose beginning was kept. Returns what is behind
    /// it, or nothing while it goes on.
    fn finish_kept<'a>(
        &mut self,
        bytes: &'a [u8],
        each: &mut impl FnMut(&[u8]),
    ) -> Result<Option<&'a [u8]>, FramingError> {
        /// This many bytes are copied at least at a time, where the framing knows
        /// of no end: few looks, and few bytes too many.
        const STEP: usize = 256;
        if self.kept.is_empty() {
            return Ok(Some(bytes));
        }
        let before = self.kept.len();
        let mut taken = 0;
        while taken < bytes.len() {
            let seen = self.kept.len();
            let wanted = self.at_least.saturating_sub(seen).max(STEP);
            let step = wanted.min(bytes.len() - taken);
            self.kept.extend_from_slice(&bytes[taken..taken + step]);
            taken += step;
            if self.kept.len() < self.at_least {
                continue;
            }
            match scan(&mut self.framing, &self.kept, seen, self.most)? {
                Found::Incomplete { at_least } => self.at_least = at_least,
                Found::Message { from, to, end } => {
                    let Some(used) = end.checked_sub(before).filter(|used| *used > 0) else {
                        return Err(contradiction());
                    };
                    each(&self.kept[from..to]);
                    self.kept.clear();
                    return Ok(bytes.get(used..));
                }
            }
        }
        Ok(None)
    }
}

enum Found {
    Incomplete { at_least: usize },
    Message { from: usize, to: usize, end: usize },
}

/// Asks a framing, and does not believe everything.
fn scan(
    framing: &mut impl Framing,
    bytes: &[u8],
    seen: usize,
    most: usize,
) -> Result<Found, FramingError> {
    let too_long = |len| Err(FramingError::TooLong { len, most });
    match framing.scan(bytes, seen)? {
        Scan::Incomplete { at_least } => {
            let at_least = at_least.max(bytes.len().saturating_add(1));
            if at_least > most { too_long(at_least) } else { Ok(Found::Incomplete { at_least }) }
        }
        Scan::Message { before, len, after } => {
            let to = before.saturating_add(len);
            let end = to.saturating_add(after);
            match end {
                end if end == 0 || end > bytes.len() => Err(contradiction()),
                end if end > most => too_long(end),
                end => Ok(Found::Message { from: before, to, end }),
            }
        }
    }
}

fn contradiction() -> FramingError {
    FramingError::Malformed("the framing contradicts itself".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::Random;

    /// The messages of a stream that is cut at random.
    fn cut(
        framing: impl Framing,
        stream: &[u8],
        random: &mut Random,
    ) -> Result<Vec<Vec<u8>>, FramingError> {
        let mut messages = Vec::new();
        let mut reassembler = Reassembler::new(framing, 10_000);
        let mut rest = stream;
        while !rest.is_empty() {
            let longest = [1, 3, 40, 2_000][random.below(4) as usize];
            let (part, behind) =
                rest.split_at((1 + random.below(longest) as usize).min(rest.len()));
            reassembler.push(part, |message| messages.push(message.to_vec()))?;
            rest = behind;
        }
        assert_eq!(reassembler.pending(), 0);
        Ok(messages)
    }

    fn messages(random: &mut Random) -> Vec<Vec<u8>> {
        let bytes = |random: &mut Random| {
            let len = [0, 1, 7, 300, 5_000][random.below(5) as usize];
            (0..len).map(|_| random.next_u64() as u8 | 1).collect()
        };
        (0..30).map(|_| bytes(random)).collect()
    }

    #[test]
    fn however_a_stream_is_cut_its_messages_are_the_same() {
        for seed in 0..50 {
            let mut random = Random::from_number(seed);
            let wanted = messages(&mut random);
            for width in [2, 3, 8] {
                let prefixed = |message: &Vec<u8>| {
                    let len = (message.len() as u64).to_be_bytes();
                    [&len[8 - width..], message].concat()
                };
                let stream: Vec<u8> = wanted.iter().flat_map(prefixed).collect();
                let got = cut(LengthPrefix::new(width), &stream, &mut random);
                assert_eq!(got.unwrap(), wanted, "{seed} {width}");
            }
            // Messages have odd bytes only, delimiters even ones.
            for end in [&b"\n"[..], &[2, 2], &[2, 4, 2, 4, 6]] {
                let stream: Vec<u8> =
                    wanted.iter().flat_map(|message| [message, end].concat()).collect();
                let got = cut(Delimiter::new(end), &stream, &mut random);
                assert_eq!(got.unwrap(), wanted, "{seed}");
            }
        }
    }

    #[test]
    fn a_rule_of_the_users_will_do() {
        // A message ends behind its first zero; the zero belongs to it.
        let rule = |bytes: &[u8], seen: usize| {
            Ok(match bytes[seen..].iter().position(|byte| *byte == 0) {
                Some(at) => Scan::Message { before: 0, len: seen + at + 1, after: 0 },
                None => Scan::Incomplete { at_least: 0 },
            })
        };
        let mut random = Random::from_number(1);
        let wanted: Vec<Vec<u8>> = messages(&mut random)
            .into_iter()
            .map(|mut message| {
                message.push(0);
                message
            })
            .collect();
        assert_eq!(cut(rule, &wanted.concat(), &mut random).unwrap(), wanted);
    }

    #[test]
    fn messages_that_are_too_long_end_the_stream_before_they_are_kept() {
        let mut reassembler = Reassembler::new(LengthPrefix::new(4), 100);
        let too_long = reassembler.push(&[0, 0, 1, 0, 9], |_| {}).unwrap_err();
        assert_eq!(too_long, FramingError::TooLong { len: 260, most: 100 });
        assert_eq!(reassembler.pending(), 0);
        assert_eq!(reassembler.push(&[0, 0, 0, 1, 9], |_| {}), Err(too_long));

        let mut lines = Reassembler::new(Delimiter::new(*b"\n"), 100);
        for _ in 0..99 {
            lines.push(b"a", |_| {}).unwrap();
        }
        assert!(lines.push(b"a", |_| {}).is_err());
        let mut widest = Reassembler::new(LengthPrefix::new(8), 100);
        assert!(widest.push(&[0xff; 9], |_| {}).is_err());
    }

    #[test]
    fn a_framing_that_lies_harms_nobody() {
        let lies = [
            Scan::Message { before: 0, len: 0, after: 0 },
            Scan::Message { before: 1, len: usize::MAX, after: 9 },
            Scan::Message { before: 0, len: 4, after: 0 },
        ];
        for lie in lies {
            let mut liar = Reassembler::new(move |_: &[u8], _: usize| Ok(lie), 100);
            assert!(
                matches!(liar.push(b"abc", |_| {}), Err(FramingError::Malformed(_))),
                "{lie:?}"
            );
        }
        // It changes its mind about what it has seen.
        let mut calls = 0;
        let fickle = move |bytes: &[u8], _: usize| {
            calls += 1;
            Ok(match calls {
                1 => Scan::Incomplete { at_least: bytes.len() + 1 },
                _ => Scan::Message { before: 0, len: 1, after: 0 },
            })
        };
        let mut fickle = Reassembler::new(fickle, 100);
        fickle.push(b"abc", |_| {}).unwrap();
        assert!(fickle.push(b"d", |_| {}).is_err());
    }
}
