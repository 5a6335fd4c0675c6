//! What encryption costs: plain and encrypted STP over UDP, the cipher alone with the crate that
//! both use, and rivals: quinn, s2n-quic and TLS by rustls, which have the same crate below them, and
//! TLS by OpenSSL. Over loopback, both ends threads of this process.
//!
//! ```sh
//! cargo bench -p landfall-benches --features quinn --bench encrypted
//! cargo bench -p landfall-benches --features quinn,s2n-quic,openssl --bench encrypted
//! cargo bench -p landfall-benches --features quinn --bench encrypted -- stp-encrypted-1500 quinn-1500
//! ```
//!
//! The feature `openssl` takes the library of the system (`libssl-dev`, `pkg-config`).
//!
//! Printed are CPU seconds of the whole process for each GB, user and kernel apart, beside what
//! went by in a second: on a machine with others the first says more. Each can be run alone, so
//! that instructions are counted, as `benches/README.md` shows. With `--test` each is run once
//! and briefly.

mod certificate;
mod cipher;
mod quic;
#[cfg(feature = "s2n-quic")]
mod s2n;
mod stp;
mod tcp;

use std::time::Instant;

use anyhow::{Result, bail};
use landfall_testbed::cpu::TaskUse;

/// What is sent in a run, and in a brief one.
const BYTES: u64 = 2 << 30;
const BRIEF: u64 = 8 << 20;
/// Each is run so often; the run that took the least CPU time counts.
const ROUNDS: usize = 3;

/// Moves, or seals and opens, this many bytes; says how many it were.
type Run = fn(u64) -> Result<u64>;

/// The payload of an STP unit in frames of 1,500 bytes, and a common longer one.
const SHORT: usize = 1_424;
const LONG: usize = 8_192;

const SUBJECTS: &[(&str, Run)] = &[
    ("seal-aes-128-gcm-1424", |bytes| cipher::seal(cipher::AES, SHORT, bytes)),
    ("open-aes-128-gcm-1424", |bytes| cipher::open(cipher::AES, SHORT, bytes)),
    ("seal-aes-128-gcm-8192", |bytes| cipher::seal(cipher::AES, LONG, bytes)),
    ("open-aes-128-gcm-8192", |bytes| cipher::open(cipher::AES, LONG, bytes)),
    ("seal-chacha20-poly1305-1424", |bytes| cipher::seal(cipher::CHACHA, SHORT, bytes)),
    ("open-chacha20-poly1305-1424", |bytes| cipher::open(cipher::CHACHA, SHORT, bytes)),
    ("seal-chacha20-poly1305-8192", |bytes| cipher::seal(cipher::CHACHA, LONG, bytes)),
    ("open-chacha20-poly1305-8192", |bytes| cipher::open(cipher::CHACHA, LONG, bytes)),
    ("ring-seal-aes-128-gcm-1424", |bytes| cipher::ring_seal(SHORT, bytes)),
    ("ring-seal-aes-128-gcm-8192", |bytes| cipher::ring_seal(LONG, bytes)),
    ("stp-plain-1500", |bytes| stp::run(false, 1_500, bytes)),
    ("stp-encrypted-1500", |bytes| stp::run(true, 1_500, bytes)),
    ("quinn-1500", |bytes| quic::run(1_452, bytes)),
    #[cfg(feature = "s2n-quic")]
    ("s2n-quic-1500", |bytes| s2n::run(1_500, bytes)),
    ("stp-plain-9000", |bytes| stp::run(false, 9_000, bytes)),
    ("stp-encrypted-9000", |bytes| stp::run(true, 9_000, bytes)),
    ("quinn-9000", |bytes| quic::run(8_952, bytes)),
    #[cfg(feature = "s2n-quic")]
    ("s2n-quic-9000", |bytes| s2n::run(9_000, bytes)),
    ("tcp-plain", tcp::plain),
    ("tls-rustls", tcp::rustls),
    #[cfg(feature = "openssl")]
    ("tls-openssl", tcp::openssl),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_brief = arguments.iter().any(|argument| argument == "--test");
    let named: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|name| !name.starts_with("--")).collect();
    if let Some(unknown) = named.iter().find(|name| !SUBJECTS.iter().any(|known| known.0 == **name))
    {
        let known: Vec<&str> = SUBJECTS.iter().map(|(name, _)| *name).collect();
        bail!("there is no `{unknown}`; there are: {}", known.join(", "));
    }
    println!("{:30} {:>8} {:>8} {:>8} {:>8}", "", "CPU s/GB", "user", "kernel", "GB/s");
    for (name, run) in SUBJECTS {
        if !named.is_empty() && !named.contains(name) {
            continue;
        }
        let (bytes, rounds) = if is_brief { (BRIEF, 1) } else { (BYTES, ROUNDS) };
        let mut best: Option<(TaskUse, f64)> = None;
        for _ in 0..rounds {
            let (before, started) = (TaskUse::of_this_process()?, Instant::now());
            let moved = run(bytes)?;
            let (used, time) = (TaskUse::of_this_process()? - before, started.elapsed());
            let gb = moved as f64 * 1e-9;
            let per_gb = TaskUse {
                user_s: used.user_s / gb,
                system_s: used.system_s / gb,
                ..TaskUse::default()
            };
            if best.is_none_or(|(least, _)| per_gb.busy_s() < least.busy_s()) {
                best = Some((per_gb, gb / time.as_secs_f64()));
            }
        }
        if let Some((used, speed)) = best {
            let TaskUse { user_s, system_s, .. } = used;
            println!("{name:30} {:8.3} {user_s:8.3} {system_s:8.3} {speed:8.2}", used.busy_s());
        }
    }
    Ok(())
}
