//! All tests of this crate's public face, as one program: this many of their own take longer
//! to link than to run. Each file says what it tests.

#![allow(unreachable_pub, reason = "what the files share is theirs")]

mod carries_engines;
mod faults_everywhere;
mod halves;
mod packet_engines;
mod packet_groups;
mod packet_offload;
mod packet_rules;
mod rawip_rules;
mod remap_rules;
mod ring_rules;
mod same_host;
mod scatter_kernel;
mod scatter_rules;
mod shm_kill;
mod support;
mod tap_rules;
mod tunnel;
mod udp_packet;
mod udp_packet_bad_input;
mod udp_rules;
#[cfg(feature = "io-uring")]
mod uring_engines;
#[cfg(feature = "io-uring")]
mod uring_file;
#[cfg(feature = "io-uring")]
mod uring_packet;
#[cfg(feature = "io-uring")]
mod uring_udp;
#[cfg(feature = "io-uring")]
mod uring_udp_packet;
mod xdp_frames;
mod xdp_queue;
mod xdp_rules;
