//! Turns the corpus of a fuzz target into a folder of files, and adds files to a corpus.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use landfall_testkit::corpus::{Corpus, Error, path};

const USAGE: &str = "\
corpus unpack TARGET FOLDER      each input of TARGET as a file in FOLDER
corpus add TARGET NAME FILE      the bytes of FILE as the input NAME of TARGET
corpus explored TARGET FOLDER    of the inputs of TARGET without a name of their own, those in FOLDER";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["unpack", target, folder] => unpack(target, Path::new(folder)),
        ["add", target, name, file] => add(target, name, Path::new(file)),
        ["explored", target, folder] => explored(target, Path::new(folder)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corpus: {error}");
            ExitCode::FAILURE
        }
    }
}

fn unpack(target: &str, folder: &Path) -> Result<(), Error> {
    let corpus = Corpus::open(target)?;
    corpus.unpack(folder)?;
    println!("{} inputs of {target} in {}", corpus.len(), folder.display());
    Ok(())
}

fn add(target: &str, name: &str, file: &Path) -> Result<(), Error> {
    // The first input of a new target makes the corpus.
    let mut corpus = if path(target).exists() { Corpus::open(target)? } else { Corpus::default() };
    let bytes = fs::read(file).map_err(|error| Error::File(file.to_owned(), error))?;
    corpus.add(name, &bytes)?;
    corpus.save(target)?;
    println!("{target} has {} inputs", corpus.len());
    Ok(())
}

fn explored(target: &str, folder: &Path) -> Result<(), Error> {
    let mut corpus = Corpus::open(target)?;
    let before = corpus.len();
    corpus.set_explored(folder)?;
    corpus.save(target)?;
    println!("{target} has {} inputs, and had {before}", corpus.len());
    Ok(())
}
