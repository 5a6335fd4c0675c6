//! What the file of a process is called.

/// A process by what no other one has: its number may be used again, but not with the same start.
/// The name changes with each of them, so who removes the file of a process that has ended never
/// removes another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessName {
    /// Its number, as its own namespace has it.
    pub process: u32,
    /// When it began, in the kernel's ticks since the start of the host; zero if that is unknown.
    pub start: u64,
    /// The kernel's number of its namespace of processes; zero if that is unknown.
    pub namespace: u64,
}

const BEGINNING: &[u8] = b"process-";
const DIGITS: [usize; 3] = [8, 16, 16];

impl ProcessName {
    /// Bytes of a name.
    pub const LEN: usize = BEGINNING.len() + DIGITS[0] + DIGITS[1] + DIGITS[2] + 2;

    /// The name of the file.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut name = [b'-'; Self::LEN];
        name[..BEGINNING.len()].copy_from_slice(BEGINNING);
        let mut at = BEGINNING.len();
        for (value, digits) in
            [u64::from(self.process), self.start, self.namespace].iter().zip(DIGITS)
        {
            for place in 0..digits {
                let digit = (value >> (4 * (digits - 1 - place))) & 15;
                name[at + place] = b"0123456789abcdef"[digit as usize];
            }
            at += digits + 1;
        }
        name
    }

    /// The process whose file is called so; `None` where it is the name of something else.
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        let rest = name.strip_prefix(BEGINNING).filter(|_| name.len() == Self::LEN)?;
        let mut parts = rest.split(|byte| *byte == b'-').zip(DIGITS).map(|(part, digits)| {
            let is_plain = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let text = std::str::from_utf8(part).ok()?;
            (part.len() == digits && part.iter().all(is_plain))
                .then(|| u64::from_str_radix(text, 16).ok())?
        });
        let mut next = || parts.next().flatten();
        let (process, start, namespace) = (next()?, next()?, next()?);
        Some(Self { process: u32::try_from(process).ok()?, start, namespace })
    }
}

/// When a process began, in the kernel's ticks, out of a line of `/proc/PID/stat`.
#[must_use]
pub fn start_in_stat(line: &[u8]) -> Option<u64> {
    /// Words behind the name of the program, which is in brackets and may have brackets in it.
    const STARTS_AT: usize = 19;
    let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&line[end_of_name + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(STARTS_AT)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_is_read_as_it_was_written(process: u32, start: u64, namespace: u64) {
            let name = ProcessName { process, start, namespace };
            prop_assert_eq!(ProcessName::parse(&name.to_bytes()), Some(name));
        }

        /// One byte of a name is another: it is that of another process, or of nobody.
        #[test]
        fn any_other_name_is_refused_or_is_one(
            process: u32, start: u64, namespace: u64, at in 0..ProcessName::LEN,
            byte in prop_oneof![prop::sample::select(&b"0123456789abcdef"[..]), any::<u8>()],
        ) {
            let name = ProcessName { process, start, namespace };
            let mut bytes = name.to_bytes();
            let (was, is_digit) = (bytes[at], matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            let is_place_of_digit = at >= BEGINNING.len() && was != b'-';
            bytes[at] = byte;
            let other = ProcessName::parse(&bytes);
            prop_assert_eq!(other.is_some(), byte == was || is_digit && is_place_of_digit);
            if let Some(other) = other {
                prop_assert_eq!(other.to_bytes(), bytes);
                prop_assert_eq!(other == name, byte == was);
            }
        }

        #[test]
        fn a_name_that_is_cut_or_goes_on_is_refused(process: u32, start: u64, len in 0..ProcessName::LEN) {
            let bytes = ProcessName { process, start, namespace: 7 }.to_bytes();
            prop_assert_eq!(ProcessName::parse(&bytes[..len]), None);
            prop_assert_eq!(ProcessName::parse(&[&bytes[..], b"0"].concat()), None);
        }
    }

    #[test]
    fn the_start_of_a_process_is_found_behind_any_name() {
        let own = std::fs::read("/proc/self/stat").unwrap();
        assert!(start_in_stat(&own).unwrap() > 0);
        let fields: Vec<String> = (4..60).map(|nth| nth.to_string()).collect();
        let line = format!("7 (a) b ) S {}", fields.join(" "));
        assert_eq!(start_in_stat(line.as_bytes()), Some(22));
        assert_eq!(start_in_stat(&line.as_bytes()[..30]), None);
    }

    #[test]
    fn it_is_as_the_documentation_has_it() {
        let name = ProcessName { process: 4711, start: 99, namespace: 4_026_531_836 };
        assert_eq!(&name.to_bytes()[..], b"process-00001267-0000000000000063-00000000effffffc");
        assert_eq!(ProcessName::parse(b"process-00001267-0000000000000063-00000000EFFFFFFC"), None);
        assert_eq!(ProcessName::parse(b"process-"), None);
    }
}
