//! The inputs of a fuzz target, one text file for each target, and their replay.
//!
//! A line is an input: its name, a blank, and its bytes as lower-case hex digits, or `-` if
//! it has none. Inputs are in the order of their names, byte by byte, and each name occurs
//! once. Lines that start with `#` are comments, and blank lines are allowed; a comment
//! belongs to the input below it, or to the whole file if it stands above the first input
//! and a blank line follows. There is one way to write an input, so that two corpora with
//! the same inputs differ in comments alone.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use crate::root;

/// The folder of all corpora, seen from the root of the repository.
const FOLDER: &str = "fuzz/corpus";

/// The end of the name of a corpus.
const SUFFIX: &str = ".hex";

/// How the names of inputs begin that a generator drew, and that a fuzzer found on its way.
const WITHOUT_NAMES: [&str; 2] = ["random-", EXPLORED];

/// How the names of inputs begin that a fuzzer found on its way.
const EXPLORED: &str = "explored-";

/// The file of a target's corpus.
///
/// # Panics
///
/// If the running package is not in the repository.
#[must_use]
pub fn path(target: &str) -> PathBuf {
    root().join(FOLDER).join(format!("{target}{SUFFIX}"))
}

/// The inputs of one target, with the comments of their file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corpus {
    /// The comments about all of it.
    head: String,
    inputs: BTreeMap<String, Input>,
    /// What follows the last input.
    tail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Input {
    /// The comments and blank lines above it, as they are.
    above: String,
    bytes: Vec<u8>,
}

/// Why a corpus cannot be read or written.
#[derive(Debug)]
pub enum Error {
    /// The system's reason, and the file.
    File(PathBuf, io::Error),
    /// A line, counted from 1, and what is wrong with it.
    Line(usize, &'static str),
    /// A name that no input may have.
    Name(String),
    /// The corpus has an input of this name, with other bytes.
    Taken(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Line(number, what) => write!(f, "line {number}: {what}"),
            Self::Name(name) => write!(
                f,
                "`{name}` is no name of an input: use letters, digits, `-`, `_` and `.`, \
                 a letter or a digit first"
            ),
            Self::Taken(name) => {
                write!(f, "`{name}` is the name of another input: choose one that is free")
            }
        }
    }
}

impl std::error::Error for Error {}

impl Corpus {
    /// Reads the corpus of a target.
    ///
    /// # Errors
    ///
    /// If there is no such file, or a line of it is not as this module says.
    pub fn open(target: &str) -> Result<Self, Error> {
        let path = path(target);
        let text = fs::read_to_string(&path).map_err(|error| Error::File(path.clone(), error))?;
        Self::parse(&text).map_err(|error| {
            Error::File(path, io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
        })
    }

    /// Reads the text of a corpus.
    ///
    /// # Errors
    ///
    /// If a line is not as this module says.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut corpus = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |what| Error::Line(number, what);
            if line.trim().is_empty() || line.starts_with('#') {
                corpus.tail += line;
                corpus.tail.push('\n');
                if line.trim().is_empty() && corpus.inputs.is_empty() {
                    corpus.head += &std::mem::take(&mut corpus.tail);
                }
                continue;
            }
            let (name, digits) =
                line.split_once(' ').ok_or(wrong("a name, a blank and hex digits, or `-`"))?;
            check_name(name)?;
            if corpus.inputs.last_key_value().is_some_and(|(last, _)| last.as_str() >= name) {
                return Err(wrong("its name is not after the name above it"));
            }
            let bytes =
                from_hex(digits).ok_or(wrong("pairs of lower-case hex digits, or `-` for none"))?;
            let above = std::mem::take(&mut corpus.tail);
            corpus.inputs.insert(name.to_owned(), Input { above, bytes });
        }
        Ok(corpus)
    }

    /// Writes the corpus of a target.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn save(&self, target: &str) -> Result<(), Error> {
        let path = path(target);
        fs::write(&path, self.to_string()).map_err(|error| Error::File(path, error))
    }

    /// How many inputs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Whether there is no input.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// The inputs in order of their names.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.inputs.iter().map(|(name, input)| (name.as_str(), input.bytes.as_slice()))
    }

    /// Adds an input.
    ///
    /// # Errors
    ///
    /// If no input may have this name, or another one has it.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        match self.inputs.get(name) {
            Some(input) if input.bytes != bytes => Err(Error::Taken(name.to_owned())),
            _ => self.set(name, bytes),
        }
    }

    /// Adds an input, or gives it other bytes.
    ///
    /// # Errors
    ///
    /// If no input may have this name.
    pub fn set(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        check_name(name)?;
        let empty = || Input { above: String::new(), bytes: Vec::new() };
        self.inputs.entry(name.to_owned()).or_insert_with(empty).bytes = bytes.to_vec();
        Ok(())
    }

    /// Of the inputs without a name of their own (`random-…`, `explored-…`) keeps those that are
    /// in a folder, and adds what else is in it as `explored-…`, by the beginnings of the files'
    /// names, which fuzzers make from the bytes.
    ///
    /// # Errors
    ///
    /// What the system says; if a file has a name that no input may have, or two of them begin
    /// alike.
    pub fn set_explored(&mut self, folder: &Path) -> Result<(), Error> {
        let failed = |error| Error::File(folder.to_owned(), error);
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let start: String = name.chars().take(12).collect();
            found.insert(fs::read(&path).map_err(failed)?, format!("{EXPLORED}{start}"));
        }
        let is_named = |name: &str| !WITHOUT_NAMES.iter().any(|start| name.starts_with(start));
        self.inputs.retain(|name, input| is_named(name) || found.contains_key(&input.bytes));
        for Input { bytes, .. } in self.inputs.values() {
            found.remove(bytes);
        }
        found.iter().try_for_each(|(bytes, name)| self.add(name, bytes))
    }

    /// Writes each input into a file of its own, as fuzzers want them, into a folder that is
    /// made if there is none.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn unpack(&self, folder: &Path) -> Result<(), Error> {
        let failed = |path: PathBuf| |error| Error::File(path, error);
        fs::create_dir_all(folder).map_err(failed(folder.to_owned()))?;
        for (name, bytes) in self.inputs() {
            let path = folder.join(name);
            fs::write(&path, bytes).map_err(failed(path))?;
        }
        Ok(())
    }
}

impl fmt::Display for Corpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.head)?;
        for (name, Input { above, bytes }) in &self.inputs {
            writeln!(f, "{above}{name} {}", to_hex(bytes))?;
        }
        f.write_str(&self.tail)
    }
}

/// A name is that of a file in any folder, and a word in a line.
fn check_name(name: &str) -> Result<(), Error> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name =
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_allowed);
    is_name.then_some(()).ok_or_else(|| Error::Name(name.to_owned()))
}

fn to_hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    if digits == "-" {
        return Some(Vec::new());
    }
    // One way to write each byte: upper case would make two.
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    if pairs.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

/// What a check says of an input.
pub trait Outcome {
    /// What it found, if anything.
    fn findings(self) -> Vec<String>;
}

impl Outcome for Vec<String> {
    fn findings(self) -> Vec<String> {
        self
    }
}

/// For checks that panic if they find something.
impl Outcome for () {
    fn findings(self) -> Vec<String> {
        Vec::new()
    }
}

/// Checks every input of a target's corpus, which has at least `least` of them.
///
/// # Panics
///
/// If the corpus cannot be read, if it has too few inputs, or none, or if the check finds
/// something or panics. The message names every input that failed.
#[track_caller]
pub fn replay<O: Outcome>(target: &str, least: usize, check: impl Fn(&[u8]) -> O) {
    let corpus = Corpus::open(target).unwrap_or_else(|error| panic!("{error}"));
    expect_passes(target, &corpus, least, check);
}

#[track_caller]
pub(super) fn expect_passes<O: Outcome>(
    target: &str,
    corpus: &Corpus,
    least: usize,
    check: impl Fn(&[u8]) -> O,
) {
    let count = corpus.len();
    let least = least.max(1);
    assert!(count >= least, "{target} has {count} inputs, and should have at least {least}");
    let failed = failures(corpus, check);
    assert!(
        failed.is_empty(),
        "{} of {count} inputs of {target} fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// A line for each input that the check does not pass: its name and what was found.
pub(super) fn failures<O: Outcome>(corpus: &Corpus, check: impl Fn(&[u8]) -> O) -> Vec<String> {
    let mut failed = Vec::new();
    for (name, bytes) in corpus.inputs() {
        // A check only reads its bytes, and what it made is dropped: nothing that a panic
        // left half done is seen again.
        let findings = catch_unwind(AssertUnwindSafe(|| check(bytes).findings()))
            .unwrap_or_else(|panic| vec![format!("it panicked: {}", message(panic.as_ref()))]);
        if !findings.is_empty() {
            failed.push(format!("  {name}: {}", findings.join("\n    ")));
        }
    }
    failed
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
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
    fn what_was_explored_takes_the_place_of_what_has_no_name() {
        let folder = TemporaryFolder::new("explored");
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
        write("0-empty", &[]);
        write("da39a3ee5e6b4b0d3255bfef", &[1, 2]);
        let mut explored = corpus();
        explored.set_explored(folder.path()).unwrap();
        let expected = TEXT.replace("# Loses", "explored-da39a3ee5e6b 0102\n# Loses");
        assert_eq!(explored.to_string(), expected, "a name with a dot is one of its own");

        write("a", &[0x7f]);
        explored.add("random-8", &[3]).unwrap();
        std::fs::remove_file(folder.join("da39a3ee5e6b4b0d3255bfef")).unwrap();
        explored.set_explored(folder.path()).unwrap();
        assert_eq!(explored.to_string(), TEXT, "what is not in the folder is gone");

        write("da39a3ee5e6b-0", &[4]);
        write("da39a3ee5e6b-1", &[5]);
        assert!(matches!(explored.set_explored(folder.path()), Err(Error::Taken(_))));
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
    #[should_panic(
        expected = "2 of 3 inputs of a_target fail:\n  lost_ack: a finding\n  random.7:"
    )]
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
}
