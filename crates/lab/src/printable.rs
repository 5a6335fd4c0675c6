//! Text that somebody else chose, so that a terminal shows it and does nothing more.
//!
//! A file's name, and whatever a peer says, may hold commands for a terminal: to clear it, to
//! change its title, to type for its user. Others turn the direction of writing, so that a
//! name reads as another. All of that is shown as an escape instead, and so are bytes that
//! are no UTF-8. Everything that comes from outside of this program passes here before it
//! is printed.

/// Is this shown as something else than itself?
fn is_disguised(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Marks, embeddings, overrides and isolates of direction.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Lines and paragraphs end here.
            | '\u{2028}' | '\u{2029}'
            // What has no width: names that look alike are different.
            | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{ad}' | '\u{180e}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// The text without anything that a terminal obeys.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_disguised(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// The same of bytes that need not be text: what is none is shown as `\xff`.
pub fn printable_bytes(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        safe.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            safe.extend(byte.escape_ascii().map(char::from));
        }
    }
    safe
}

/// The same of a text of several lines of which each is our own.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown_and_the_rest_stays() {
        for (text, shown) in [
            ("plain, grün/ß 你好 🙂", "plain, grün/ß 你好 🙂"),
            ("\x1b]0;owned\x07\x1b[2J", "\\u{1b}]0;owned\\u{7}\\u{1b}[2J"),
            ("a\rb\nc\td", "a\\rb\\nc\\td"),
            ("\u{9b}31m\u{85}\u{7f}", "\\u{9b}31m\\u{85}\\u{7f}"),
            ("exe.\u{202e}gpj", "exe.\\u{202e}gpj"),
            ("\u{2066}\u{200f}\u{feff}\u{2028}", "\\u{2066}\\u{200f}\\u{feff}\\u{2028}"),
        ] {
            assert_eq!(printable(text), shown);
            assert_eq!(printable_bytes(text.as_bytes()), shown);
        }
        // An escape of eight bits, and a sequence that is cut.
        assert_eq!(printable_bytes(b"a\xff\x9b2Jb\xe4\xbd"), "a\\xff\\x9b2Jb\\xe4\\xbd");
        assert_eq!(printable_lines("one\n\x1b[2J"), "one\n\\u{1b}[2J");
    }

    proptest! {
        #[test]
        fn nothing_unsafe_is_left_and_a_second_time_changes_nothing(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            text in any::<String>(),
        ) {
            for shown in [printable_bytes(&bytes), printable(&text)] {
                prop_assert!(!shown.contains(is_disguised), "{shown:?}");
                prop_assert_eq!(&printable(&shown), &shown);
            }
        }
    }
}
