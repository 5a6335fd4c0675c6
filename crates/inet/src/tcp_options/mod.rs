//! The TCP options that are spoken here: RFC 9293 (MSS), RFC 7323 (window scale,
//! timestamps), RFC 2018 and 2883 (selective acknowledgement), RFC 7413 (Fast Open), RFC
//! 9768 (Accurate ECN), and one of our own by RFC 6994: [`ImmediateOption`].

mod accurate;
mod immediate;

use core::fmt;
use core::ops::Deref;

use landfall_placement::Refusal;

pub use accurate::AccurateOption;
pub use immediate::ImmediateOption;

/// The longest options: a header has 60 bytes at most.
pub const LEN_MAX: usize = 40;
/// The largest shift of a window (RFC 7323, section 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;
const FAST_OPEN: u8 = 34;
/// Accurate ECN in its two orders.
const ACCURATE_ZERO: u8 = 172;
const ACCURATE_ONE: u8 = 174;
/// Options that are tried out (RFC 6994): behind it stands who tries what.
const EXPERIMENT: u8 = 253;
/// Words that arrive with messages: two letters of the project.
const IMMEDIATE: [u8; 2] = *b"LF";

/// What a header says beside its fixed fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The largest segment that the sender of this wants to get.
    pub mss: Option<u16>,
    /// By how much its windows are shifted: at most [`WINDOW_SCALE_MAX`].
    pub window_scale: Option<u8>,
    /// It understands selective acknowledgements.
    pub sack_permitted: bool,
    /// Its clock, and the last that it heard of ours.
    pub timestamp: Option<(u32, u32)>,
    /// What it has behind holes.
    pub sack: Blocks,
    /// It wants to be known when it opens again, or is known (RFC 7413).
    pub fast_open: Option<FastOpenCookie>,
    /// What it says of words that arrive with messages.
    pub immediate: Option<ImmediateOption>,
    /// What it has received, by the code points of ECN.
    pub accurate: Option<AccurateOption>,
}

/// By what a server knows a client again that it has talked to (RFC 7413, section 4.1.1); an
/// empty one asks for one. Reads like a slice.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FastOpenCookie {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl FastOpenCookie {
    /// The longest.
    pub const MAX: usize = 16;
    /// Asks for one.
    pub const REQUEST: Self = Self { bytes: [0; Self::MAX], len: 0 };

    /// A cookie of these bytes: none, or 4 to 16 of them, an even number.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_cookie = matches!(bytes.len(), 0 | 4..=Self::MAX) && bytes.len().is_multiple_of(2);
        let mut cookie = Self::REQUEST;
        cookie.bytes.get_mut(..bytes.len()).filter(|_| is_cookie)?.copy_from_slice(bytes);
        cookie.len = bytes.len() as u8;
        Some(cookie)
    }
}

impl Deref for FastOpenCookie {
    type Target = [u8];

    fn deref(&self) -> &Self::Target {
        &self.bytes[..usize::from(self.len).min(Self::MAX)]
    }
}

impl fmt::Debug for FastOpenCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The blocks of a selective acknowledgement: first number, and the one behind
/// the last. Reads like a slice.
#[derive(Clone, Copy, Default)]
pub struct Blocks {
    blocks: [(u32, u32); Self::MAX],
    len: u8,
}

impl Blocks {
    /// As many as options have room for. Beside a timestamp it is one less.
    pub const MAX: usize = 4;
    /// None.
    pub const NONE: Self = Self { blocks: [(0, 0); Self::MAX], len: 0 };

    /// Adds a block; false if there is no room.
    pub const fn push(&mut self, start: u32, end: u32) -> bool {
        let at = self.len as usize;
        if at >= Self::MAX {
            return false;
        }
        self.blocks[at] = (start, end);
        self.len += 1;
        true
    }
}

impl Deref for Blocks {
    type Target = [(u32, u32)];

    fn deref(&self) -> &Self::Target {
        &self.blocks[..usize::from(self.len).min(Self::MAX)]
    }
}

impl PartialEq for Blocks {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Blocks {}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl FromIterator<(u32, u32)> for Blocks {
    /// The first [`Blocks::MAX`] of them.
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(blocks: I) -> Self {
        let mut all = Self::NONE;
        for (start, end) in blocks.into_iter().take(Self::MAX) {
            all.push(start, end);
        }
        all
    }
}

impl Options {
    /// Reads what stands between the fixed fields and the payload. Unknown
    /// options are passed over, of repeated ones the last counts.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if the length of an option makes no sense (RFC 9293,
    /// MUST-7).
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        // Nearly every segment of an open connection has exactly this.
        if let [NO_OPERATION, NO_OPERATION, TIMESTAMP, 10, rest @ ..] = bytes
            && let ([value, echo], []) = rest.as_chunks::<4>()
        {
            let timestamp = Some((u32::from_be_bytes(*value), u32::from_be_bytes(*echo)));
            return Ok(Self { timestamp, ..Self::default() });
        }
        Self::read_any(bytes)
    }

    fn read_any(mut bytes: &[u8]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while let [kind, rest @ ..] = bytes {
            match *kind {
                END => break,
                NO_OPERATION => bytes = rest,
                kind => {
                    let len = usize::from(*rest.first().ok_or(Refusal::Malformed)?);
                    let body = bytes.get(2..len).ok_or(Refusal::Malformed)?;
                    options.read_one(kind, body)?;
                    bytes = &bytes[len..];
                }
            }
        }
        Ok(options)
    }

    fn read_one(&mut self, kind: u8, body: &[u8]) -> Result<(), Refusal> {
        match (kind, body) {
            (MSS, [high, low]) => self.mss = Some(u16::from_be_bytes([*high, *low])),
            (WINDOW_SCALE, [scale]) => self.window_scale = Some((*scale).min(WINDOW_SCALE_MAX)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMP, _) => {
                let ([value, echo], []) = body.as_chunks::<4>() else {
                    return Err(Refusal::Malformed);
                };
                self.timestamp = Some((u32::from_be_bytes(*value), u32::from_be_bytes(*echo)));
            }
            (SACK, [_, ..]) => {
                let (blocks, []) = body.as_chunks::<8>() else { return Err(Refusal::Malformed) };
                self.sack = blocks
                    .iter()
                    .map(|[a, b, c, d, e, f, g, h]| {
                        (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]))
                    })
                    .collect();
            }
            // RFC 7413, 4.1.1: of another length it is as if it were not there.
            (FAST_OPEN, _) => self.fast_open = FastOpenCookie::new(body).or(self.fast_open),
            (ACCURATE_ZERO | ACCURATE_ONE, body) => {
                self.accurate = Some(AccurateOption::read(body, kind == ACCURATE_ONE));
            }
            // RFC 6994, 3.3: what others try out is passed over.
            (EXPERIMENT, [first, second, said @ ..]) if [*first, *second] == IMMEDIATE => {
                self.immediate = ImmediateOption::read(said).or(self.immediate);
            }
            (MSS | WINDOW_SCALE | SACK_PERMITTED | SACK, _) => return Err(Refusal::Malformed),
            _ => {}
        }
        Ok(())
    }

    /// How long the options are on the wire: whole words.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        let fixed = self.fixed_len();
        match self.blocks_within(LEN_MAX - fixed) {
            0 => fixed,
            blocks => fixed + 4 + 8 * blocks,
        }
    }

    /// Nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn fixed_len(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        let cookie = self.fast_open.map_or(0, |cookie| (2 + cookie.len()).next_multiple_of(4));
        let immediate = self.immediate.map_or(0, ImmediateOption::len);
        let accurate = self.accurate.as_ref().map_or(0, AccurateOption::len);
        mss + scale
            + cookie
            + immediate
            + accurate
            + match (self.timestamp, self.sack_permitted) {
                (Some(_), _) => 12,
                (None, true) => 4,
                (None, false) => 0,
            }
    }

    /// How many blocks find room in this many bytes.
    fn blocks_within(&self, room: usize) -> usize {
        self.sack.len().min(room.saturating_sub(4) / 8)
    }

    /// Writes the options, padded to whole words, in the order and alignment that
    /// Linux has. Gives their length.
    ///
    /// What finds no room is left out, as a whole: blocks of a selective
    /// acknowledgement first. [`LEN_MAX`] bytes have room for all that a header
    /// can carry.
    pub fn write(&self, into: &mut [u8]) -> usize {
        let room = into.len().min(LEN_MAX);
        let mut out = Writer { into: &mut into[..room], len: 0 };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            out.put(&[MSS, 4, high, low]);
        }
        if let Some((value, echo)) = self.timestamp {
            let mut option = [NO_OPERATION; 12];
            if self.sack_permitted {
                option[..2].copy_from_slice(&[SACK_PERMITTED, 2]);
            }
            option[2..4].copy_from_slice(&[TIMESTAMP, 10]);
            option[4..8].copy_from_slice(&value.to_be_bytes());
            option[8..].copy_from_slice(&echo.to_be_bytes());
            out.put(&option);
        } else if self.sack_permitted {
            out.put(&[NO_OPERATION, NO_OPERATION, SACK_PERMITTED, 2]);
        }
        if let Some(scale) = self.window_scale {
            out.put(&[NO_OPERATION, WINDOW_SCALE, 3, scale]);
        }
        if let Some(cookie) = self.fast_open {
            let len = 2 + cookie.len();
            let mut option = [NO_OPERATION; 2 + FastOpenCookie::MAX + 2];
            let start = len.next_multiple_of(4) - len;
            option[start..start + 2].copy_from_slice(&[FAST_OPEN, len as u8]);
            option[start + 2..start + len].copy_from_slice(&cookie);
            out.put(&option[..start + len]);
        }
        if let Some(immediate) = self.immediate {
            let [first, second] = IMMEDIATE;
            match immediate {
                ImmediateOption::Plain => out.put(&[EXPERIMENT, 4, first, second]),
                ImmediateOption::Declined => {
                    let fill = NO_OPERATION;
                    out.put(&[fill, fill, fill, EXPERIMENT, 5, first, second, 0]);
                }
                ImmediateOption::Word([a, b, c, d]) => {
                    out.put(&[EXPERIMENT, 8, first, second, a, b, c, d]);
                }
            }
        }
        if let Some(accurate) = &self.accurate {
            let kind = if accurate.is_reverse { ACCURATE_ONE } else { ACCURATE_ZERO };
            let fields = usize::from(accurate.count);
            let mut option = [NO_OPERATION; 12];
            option[..2].copy_from_slice(&[kind, 2 + 3 * accurate.count]);
            option[2..11].copy_from_slice(accurate.fields.as_flattened());
            option[2 + 3 * fields..].fill(NO_OPERATION);
            out.put(&option[..accurate.len()]);
        }
        let blocks = self.blocks_within(room - out.len);
        if blocks > 0 {
            out.put(&[NO_OPERATION, NO_OPERATION, SACK, 2 + 8 * blocks as u8]);
            for (start, end) in &self.sack[..blocks] {
                out.put(&start.to_be_bytes());
                out.put(&end.to_be_bytes());
            }
        }
        out.len
    }
}

struct Writer<'a> {
    into: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let to = self.len + bytes.len();
        if let Some(into) = self.into.get_mut(self.len..to) {
            into.copy_from_slice(bytes);
            self.len = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_syn_looks_like_that_of_a_kernel() {
        let options = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamp: Some((1, 0)),
            ..Options::default()
        };
        let mut bytes = [0; LEN_MAX];
        let len = options.write(&mut bytes);
        let linux = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
        assert_eq!(bytes[..len], linux);
        assert_eq!(Options::read(&linux), Ok(options));
        let options = Options { timestamp: None, ..options };
        let len = options.write(&mut bytes);
        assert_eq!(bytes[..len], [2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7], "without timestamps");
    }

    #[test]
    fn each_known_option_is_refused_at_every_other_length() {
        for (kind, good) in
            [(2, &[4][..]), (3, &[3]), (4, &[2]), (5, &[10, 18, 26, 34]), (8, &[10])]
        {
            for len in 0..=40 {
                let mut bytes = [1; LEN_MAX];
                bytes[..2].copy_from_slice(&[kind, len]);
                let is_good = good.contains(&len);
                assert_eq!(Options::read(&bytes).is_ok(), is_good, "option {kind} of {len}");
                if len > 2 {
                    let cut = &bytes[..usize::from(len) - 1];
                    assert_eq!(Options::read(cut), Err(Refusal::Malformed), "cut {kind} of {len}");
                }
            }
            assert_eq!(Options::read(&[kind]), Err(Refusal::Malformed), "no length for {kind}");
        }
    }

    #[test]
    fn unknown_options_are_passed_over_and_the_end_ends() {
        assert_eq!(Options::read(&[1, 1, 0, 2, 0]), Ok(Options::default()), "ends at 0");
        let options = Options { mss: Some(536), ..Options::default() };
        assert_eq!(Options::read(&[99, 4, 1, 2, 2, 4, 2, 24]), Ok(options), "unknown");
        for len in [0, 1, 5] {
            assert_eq!(Options::read(&[99, len, 1, 2]), Err(Refusal::Malformed), "of {len}");
        }
    }

    #[test]
    fn a_window_is_shifted_by_no_more_than_fourteen() {
        assert_eq!(Options::read(&[3, 3, 15]).unwrap().window_scale, Some(14));
        assert_eq!(Options::read(&[3, 3, 255]).unwrap().window_scale, Some(14));
    }

    #[test]
    fn beside_a_timestamp_there_is_room_for_three_blocks() {
        let sack: Blocks = (0..9).map(|n| (n * 10, n * 10 + 5)).collect();
        assert_eq!(sack.len(), 4);
        for (timestamp, expected) in [(None, 4), (Some((7, 8)), 3)] {
            let options = Options { timestamp, sack, ..Options::default() };
            let mut bytes = [0; 60];
            let len = options.write(&mut bytes);
            assert!(len <= LEN_MAX && len == options.len());
            assert_eq!(Options::read(&bytes[..len]).unwrap().sack[..], sack[..expected]);
        }
    }

    #[test]
    fn a_cookie_of_no_good_length_is_as_if_it_were_not_there() {
        // RFC 7413, section 4.1.1.
        for len in 0..=18_u8 {
            let mut bytes = std::vec![34, 2 + len];
            bytes.extend((0..len).map(|n| n + 1));
            let read = Options::read(&bytes).unwrap().fast_open;
            let is_good = matches!(len, 0 | 4 | 6 | 8 | 10 | 12 | 14 | 16);
            assert_eq!(read.map(|cookie| cookie.len()), is_good.then_some(usize::from(len)));
            if let Some(cookie) = read {
                assert_eq!(cookie[..], bytes[2..]);
            }
        }
    }

    #[test]
    fn counters_of_accurate_ecn_come_in_two_orders_and_four_lengths() {
        // RFC 9768, table 5.
        let said = |bytes: &[u8]| Options::read(bytes).unwrap().accurate.unwrap().counters();
        let whole = [172, 11, 0, 0, 1, 0, 0, 2, 0, 0, 3];
        assert_eq!(said(&whole), [Some(1), Some(2), Some(3)]);
        let reverse = [174, 11, 0, 0, 1, 0, 0, 2, 0, 0, 3];
        assert_eq!(said(&reverse), [Some(3), Some(2), Some(1)]);
        assert_eq!(said(&[172, 8, 0, 0, 1, 0, 0, 2]), [Some(1), Some(2), None]);
        assert_eq!(said(&[174, 5, 1, 0, 0]), [None, None, Some(1 << 16)]);
        assert_eq!(said(&[172, 2]), [None; 3]);
        // Of any other length whole fields count.
        assert_eq!(said(&[172, 7, 0, 0, 1, 9, 9]), [Some(1), None, None]);
        let mut long = [9; 20];
        long[..11].copy_from_slice(&whole);
        long[1] = 20;
        assert_eq!(said(&long), [Some(1), Some(2), Some(3)]);
        let mut bytes = [0; LEN_MAX];
        let accurate = Some(AccurateOption::new([0xff00_0001, 2, 3], 2, false));
        let len = Options { accurate, ..Options::default() }.write(&mut bytes);
        assert_eq!(bytes[..len], [172, 8, 0, 0, 1, 0, 0, 2], "24 bits of each");
    }

    #[test]
    fn an_experiment_of_others_is_passed_over_and_ours_has_three_lengths() {
        let said = |bytes: &[u8]| Options::read(bytes).unwrap().immediate;
        for len in 4..=40_u8 {
            let mut bytes = [0; LEN_MAX];
            bytes[..4].copy_from_slice(&[253, len, b'L', b'F']);
            let expected = match len {
                4 => Some(ImmediateOption::Plain),
                5 => Some(ImmediateOption::Declined),
                8 => Some(ImmediateOption::Word([0; 4])),
                _ => None,
            };
            assert_eq!(said(&bytes), expected, "{len}");
        }
        assert_eq!(
            said(&[253, 8, b'L', b'F', 1, 2, 3, 4]),
            Some(ImmediateOption::Word([1, 2, 3, 4]))
        );
        assert_eq!(said(&[254, 4, b'L', b'F']), None, "another kind");
        assert_eq!(said(&[253, 4, b'L', b'G']), None, "another experiment");
        assert_eq!(said(&[253, 5, b'L', b'F', 1, 0]), None, "what nobody says");
        assert_eq!(said(&[253, 2, 253, 3, 1]), None, "without an identifier");
    }

    prop_compose! {
        fn options()(
            mss: Option<u16>,
            window_scale in prop::option::of(0..=WINDOW_SCALE_MAX),
            sack_permitted: bool,
            timestamp: Option<(u32, u32)>,
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=4),
            cookie in prop::option::of((any::<[u8; 16]>(), 0..=8_usize)),
            (said, word) in (0..4_u8, any::<[u8; 4]>()),
            accurate in prop::option::of((any::<[u32; 3]>(), 0..=3_u8, any::<bool>())),
        ) -> Options {
            let sack = blocks.into_iter().collect();
            // Two are too few.
            let cookie = cookie.filter(|(_, pairs)| *pairs != 1);
            let fast_open = cookie.and_then(|(bytes, pairs)| FastOpenCookie::new(&bytes[..2 * pairs]));
            let fast_open = fast_open.filter(|cookie| said == 0 || cookie.len() < 8);
            // All of that together is more than a header has room for.
            let accurate = accurate.filter(|_| said == 0 && fast_open.is_none());
            let accurate = accurate.map(|(counters, count, is_reverse)| {
                AccurateOption::new(counters, count, is_reverse)
            });
            let immediate = match said {
                0 => None,
                1 => Some(ImmediateOption::Plain),
                2 => Some(ImmediateOption::Declined),
                _ => Some(ImmediateOption::Word(word)),
            };
            Options { mss, window_scale, sack_permitted, timestamp, sack, fast_open, immediate, accurate }
        }
    }

    proptest! {
        #[test]
        fn options_survive_the_wire(options in options()) {
            let mut bytes = [0; LEN_MAX];
            let len = options.write(&mut bytes);
            prop_assert_eq!(len % 4, 0);
            prop_assert_eq!(len, options.len());
            let read = Options::read(&bytes[..len]).unwrap();
            prop_assert!(options.sack.starts_with(&read.sack));
            prop_assert_eq!(Options { sack: options.sack, ..read }, options);
        }

        #[test]
        fn too_little_room_leaves_out_and_never_cuts(options in options(), room in 0..40usize) {
            let mut bytes = [0xff; LEN_MAX];
            let len = options.write(&mut bytes[..room]);
            prop_assert!(len <= room && len % 4 == 0);
            prop_assert!(Options::read(&bytes[..len]).is_ok());
            prop_assert!(bytes[len..].iter().all(|b| *b == 0xff));
        }

        #[test]
        fn any_options_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let fast = Options::read(&bytes);
            prop_assert_eq!(fast, Options::read_any(&bytes), "the short cut is only that");
        }

        #[test]
        fn the_short_cut_is_only_that(value: [u8; 8], tail in prop::collection::vec(0..9u8, 0..8)) {
            let mut bytes = std::vec![1, 1, 8, 10];
            bytes.extend(value);
            bytes.extend(tail);
            prop_assert_eq!(Options::read(&bytes), Options::read_any(&bytes));
        }
    }
}
