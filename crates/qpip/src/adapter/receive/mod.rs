//! The receive state machine: a frame came. What is it, whose, and where does
//! its payload belong?
//!
//! | file | what it reads |
//! | --- | --- |
//! | `arrival` | a frame for this station, and the packet in it |
//! | `segments` | TCP |
//! | `datagrams` | UDP |
//! | `control` | ARP, ICMP and neighbour discovery, which it answers |
//! | `pieces` | fragments of IP, and the packets they become |
//!
//! A packet without payload is looked at whole and at once. A payload's checksum
//! is the driver's pass, and nothing of the packet counts before its verdict.
//!
//! What does not live here: what comes as the offload seam expects it, which is not
//! read here at all (`seam`).

pub(super) mod arrival;
pub(super) mod control;
pub(super) mod datagrams;
pub(super) mod pieces;
pub(super) mod segments;
