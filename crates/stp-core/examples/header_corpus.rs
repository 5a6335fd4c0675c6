//! Writes the seeds of the fuzz target `stp_header` again, from the vectors in
//! `docs/spec/stp.md`: `cargo run -p stp-core --example header_corpus`.

use std::path::Path;

use stp_core::wire::{Flags, Message, Op};

#[path = "../tests/support/document.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use more of it")]
mod document;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/stp_header");
    std::fs::create_dir_all(&folder)?;
    for document::Vector { name, bytes } in document::vectors() {
        let name = name.to_lowercase().replace([' ', '_'], "-");
        let op = Op::from_number(bytes[0]).unwrap_or(Op::Data);
        let head_len = Message::head_len(op, Flags(bytes[1]));
        std::fs::write(folder.join(format!("cut-{name}")), &bytes[..head_len - 1])?;
        std::fs::write(folder.join(format!("vector-{name}")), bytes)?;
    }
    Ok(())
}
