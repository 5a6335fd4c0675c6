//! A thousand ranks around one switch of 10 Gbit/s, in the time of the simulator: all others send
//! 100 KiB to the first at the same moment, and an allreduce of 1 MiB. It needs 3 GB of memory,
//! and some minutes.
//!
//! ```text
//! cargo run --release -p stp-core --example ranks
//! ```

#[path = "../tests/ranks/mod.rs"]
mod ranks;

use ranks::{Network, allreduce, incast};

/// Of each rank.
const MESSAGE: usize = 100 << 10;
/// Of 8 bytes.
const WORDS: usize = 1 << 17;

fn main() {
    let configs = [
        ("a network that is the program's alone", ranks::alone()),
        ("a network that others use, too", ranks::shared()),
    ];
    for (name, config) in configs {
        let outcome = incast(1_000, MESSAGE, Network::ETHERNET, &config);
        println!("{name}: incast of 1,000 ranks: {outcome}");
        let outcome = allreduce((4, 5), WORDS, Network::ETHERNET, &config);
        println!("{name}: allreduce of 1,024 ranks: {outcome}");
    }
    let outcome = incast(1_000, MESSAGE, Network::ETHERNET, &ranks::wide());
    println!("the same with the usual window: incast of 1,000 ranks: {outcome}");
}
