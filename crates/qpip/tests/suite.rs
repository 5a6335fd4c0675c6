//! All tests of this crate's public face, as one program: this many of their own take longer
//! to link than to run. Each file says what it tests.

#![allow(unreachable_pub, reason = "what the files share is theirs")]

mod abuse;
mod addresses;
mod completion;
mod connections;
mod errors;
mod groups;
mod immediate;
mod invariants;
mod kernel_bulk;
mod kernel_captures;
mod kernel_endings;
mod kernel_fast_open;
mod kernel_paths;
mod kernel_programs;
mod memory;
mod neighbours;
mod offload;
mod path_size;
mod predicted;
mod scripts;
mod shared;
mod shares;
mod smoltcp;
mod station;
mod two;
mod udp;
mod vlan;
mod world;
