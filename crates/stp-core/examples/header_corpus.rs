//! Writes the seeds of the fuzz target `stp_header` again, from the vectors in
//! `docs/spec/stp.md`: `cargo run -p stp-core --example header_corpus`.

use landfall_testkit::corpus::{Corpus, Error};
use landfall_testkit::document::Vector;
use stp_core::wire::{Flags, Message, Op};

#[path = "../tests/support/document.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use more of it")]
mod document;

fn main() -> Result<(), Error> {
    let mut corpus = Corpus::open("stp_header")?;
    for Vector { name, bytes } in document::vectors() {
        let name = name.to_lowercase().replace([' ', '_'], "-");
        let op = Op::from_number(bytes[0]).unwrap_or(Op::Data);
        let head_len = Message::head_len(op, Flags(bytes[1]));
        corpus.set(&format!("cut-{name}"), &bytes[..head_len - 1])?;
        corpus.set(&format!("vector-{name}"), &bytes)?;
    }
    corpus.save("stp_header")
}
