//! What the services of RFC 862 to 864 send and answer: echo, discard and characters.

/// Ports of services that answer any datagram: echo, discard's neighbours, day, quote,
/// characters, time. An answer to one of them could be answered again, for ever.
#[must_use]
pub const fn answers_anything(port: u16) -> bool {
    matches!(port, 0 | 7 | 13 | 17 | 19 | 37)
}

/// The characters of a line, without its end.
const LINE: usize = 72;
/// The printable characters of ASCII, from the space on.
const PRINTABLE: usize = 95;

/// After this many bytes the characters begin again.
pub const PERIOD: usize = PRINTABLE * (LINE + 2);

/// The characters of RFC 864: lines of 72 of them, each beginning one further.
#[must_use]
pub fn characters(len: usize) -> Vec<u8> {
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
