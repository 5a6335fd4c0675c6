//! `landfall serve` as people use it: the real program, with other programs as clients.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `running` | the program under test, which ends with the test |
//! | `kernel` | sockets of the kernel and `nc` as clients, over TAP and an interface (root) |
//! | `family` | clients of our own, over tunnels, STP and CLAN, as anybody |
//! | `shared` | clients in other processes of this host, through shared memory |

#[path = "../common/mod.rs"]
mod common;
mod family;
mod kernel;
mod running;
mod shared;
