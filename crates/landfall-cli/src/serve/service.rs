//! What the three services do, and the characters that one of them sends.

use clap::ValueEnum;
use serde::Serialize;

/// What is done with whatever comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Service {
    /// Send back what comes (RFC 862)
    Echo,
    /// Throw away what comes (RFC 863)
    Discard,
    /// Send characters, whatever comes (RFC 864)
    Source,
}

impl Service {
    /// The port that it is known at.
    pub(super) const fn port(self) -> u16 {
        match self {
            Self::Echo => 7,
            Self::Discard => 9,
            Self::Source => 19,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Discard => "discard",
            Self::Source => "source",
        }
    }
}

/// Ports of services that answer any datagram: echo, discard's neighbours, day, quote,
/// characters, time. An answer to one of them could be answered again, for ever.
pub(super) const fn answers_anything(port: u16) -> bool {
    matches!(port, 0 | 7 | 13 | 17 | 19 | 37)
}

/// The characters of a line, without its end.
const LINE: usize = 72;
/// The printable characters of ASCII, from the space on.
const PRINTABLE: usize = 95;

/// After so many bytes the characters begin again.
pub(super) const PERIOD: usize = PRINTABLE * (LINE + 2);

/// The characters of RFC 864: lines of 72 of them, each beginning one further.
pub(super) fn characters(len: usize) -> Vec<u8> {
    let character = |at: usize| match (at % PERIOD / (LINE + 2), at % (LINE + 2)) {
        (_, LINE) => b'\r',
        (line, column) if column < LINE => b' ' + ((line + column) % PRINTABLE) as u8,
        _ => b'\n',
    };
    (0..len).map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_those_of_the_rfc() {
        let text = String::from_utf8(characters(2 * PERIOD)).unwrap();
        let lines: Vec<_> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 2 * PRINTABLE);
        // The first and the last line that RFC 864 shows begin so.
        assert!(lines[0].starts_with(" !\"#$%&'()*+,-./0123456789:;<=>?@ABC"));
        assert!(lines[1].starts_with("!\"#$%&'()*+,-./0123456789:;<=>?@ABCD"));
        assert_eq!(lines[94].as_bytes()[..3], *b"~ !");
        assert!(lines.iter().all(|line| line.len() == LINE));
        assert_eq!(text[..PERIOD], text[PERIOD..]);
    }
}
