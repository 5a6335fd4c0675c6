//! Corpora as they are written and read, and what a replay says.

use super::{Corpus, Error, replay};
use super::{expect_passes, failures};
use crate::TemporaryFolder;

const TEXT: &str = "\
# Inputs of a target.

0-empty -
# Loses its first
# acknowledgement.
lost_ack 00ff10
random.7 7f
# The end.
";

fn corpus() -> Corpus {
    Corpus::parse(TEXT).expect("it is a corpus")
}

#[test]
fn a_corpus_is_read_and_written_as_it_is() {
    let corpus = corpus();
    let inputs: Vec<_> = corpus.inputs().collect();
    assert_eq!(
        inputs,
        [("0-empty", &[][..]), ("lost_ack", &[0x00, 0xff, 0x10]), ("random.7", &[0x7f])]
    );
    assert_eq!(corpus.to_string(), TEXT);
}

#[test]
fn every_byte_is_read_as_it_was_written() {
    let bytes: Vec<u8> = (0..=255).collect();
    let mut corpus = Corpus::default();
    corpus.set("all", &bytes).unwrap();
    let read = Corpus::parse(&corpus.to_string()).unwrap();
    assert_eq!(read.inputs().next(), Some(("all", &bytes[..])));
}

#[test]
fn an_input_is_added_in_its_order_and_comments_stay_with_theirs() {
    let mut corpus = corpus();
    corpus.add("0", &[2]).unwrap();
    corpus.add("late", &[1]).unwrap();
    corpus.add("z", &[]).unwrap();
    let expected = TEXT
        .replace("0-empty", "0 02\n0-empty")
        .replace("# Loses", "late 01\n# Loses")
        .replace("# The end", "z -\n# The end");
    assert_eq!(corpus.to_string(), expected);
}

#[test]
fn a_name_that_is_taken_is_refused_unless_the_bytes_are_the_same() {
    let mut corpus = corpus();
    corpus.add("random.7", &[0x7f]).unwrap();
    assert!(matches!(corpus.add("random.7", &[0x7e]), Err(Error::Taken(_))));
    assert_eq!(corpus.to_string(), TEXT);
    corpus.set("random.7", &[0x7e]).unwrap();
    assert_eq!(corpus.to_string(), TEXT.replace("7f", "7e"));
}

#[test]
fn what_is_no_corpus_is_refused() {
    for (text, line) in [
        ("a 00\nb", 2),      // no bytes
        ("a 0", 1),          // half a byte
        ("a 0g", 1),         // no digit
        ("a 0A", 1),         // another way to write it
        ("a ", 1),           // nothing, and not `-`
        ("a  00", 1),        // two blanks
        ("a 00 ", 1),        // a blank at the end
        ("b 00\na 00", 2),   // out of order
        ("a 00\n\na 00", 3), // twice
    ] {
        let said = Corpus::parse(text);
        assert!(matches!(said, Err(Error::Line(at, _)) if at == line), "{text:?}: {said:?}");
    }
    for name in ["", "..", ".hidden", "a/b", "/a", "a b", "-", "#a", "ä"] {
        assert!(matches!(Corpus::default().set(name, &[]), Err(Error::Name(_))), "{name:?}");
    }
}

#[test]
fn a_folder_has_a_file_for_each_input() {
    let parent = TemporaryFolder::new("corpus");
    let folder = parent.join("of_a_target");
    corpus().unpack(&folder).unwrap();
    let read = |name| std::fs::read(folder.join(name)).unwrap();
    assert_eq!(read("0-empty"), []);
    assert_eq!(read("lost_ack"), [0x00, 0xff, 0x10]);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
}

#[test]
fn a_replay_checks_every_input_and_names_each_that_fails() {
    let found = failures(&corpus(), |bytes: &[u8]| -> Vec<String> {
        match bytes {
            [] => vec!["too short".to_owned(), "by one".to_owned()],
            [first, ..] => {
                assert_ne!(*first, 0x7f, "no such number");
                vec![]
            }
        }
    });
    let [empty, random] = &found[..] else { panic!("two fail: {found:?}") };
    assert!(empty.contains("0-empty: too short\n") && empty.contains("by one"), "{empty}");
    assert!(random.contains("random.7: it panicked:"), "{random}");
    assert!(random.contains("no such number"), "{random}");
}

#[test]
#[should_panic(expected = "2 of 3 inputs of a_target fail:\n  lost_ack: a finding\n  random.7:")]
fn a_replay_panics_with_the_names_of_what_fails() {
    expect_passes("a_target", &corpus(), 3, |bytes: &[u8]| {
        if bytes.is_empty() { vec![] } else { vec!["a finding".to_owned()] }
    });
}

#[test]
#[should_panic(expected = "a_target has 3 inputs, and should have at least 4")]
fn a_replay_of_too_few_inputs_fails() {
    expect_passes("a_target", &corpus(), 4, |_: &[u8]| ());
}

#[test]
#[should_panic(expected = "a_target has 0 inputs")]
fn a_replay_of_an_empty_corpus_fails() {
    expect_passes("a_target", &Corpus::default(), 0, |_: &[u8]| ());
}

#[test]
#[should_panic(expected = "no_such_target.hex")]
fn a_replay_without_a_corpus_fails() {
    replay("no_such_target", 1, |_: &[u8]| ());
}
