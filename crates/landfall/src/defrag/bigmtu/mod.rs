//! An interface with an MTU of 4 to 64 KiB above a link that carries 1500 bytes.
//!
//! A [`BigMtu`] makes a TAP interface. The kernel's own protocols use it like any
//! other, unmodified, and TCP sends segments of up to 64 KiB. What fits into a frame
//! of the lower link passes as it is; what does not is cut into IP fragments, below
//! IP, and the pieces are joined at the other end by a [`Receiver`](super::Receiver)
//! that posts the places where they belong. The kernel gets the whole packet with one
//! call, from the page in which it was joined.
//!
//! | other end | what happens |
//! | --- | --- |
//! | the same | whole packets both ways, mostly joined without a copy in user space |
//! | a kernel alone | its IP joins our pieces; the pieces that it cuts are joined here |
//!
//! It works on frames, as a bridge does: ARP and neighbour discovery pass, addresses
//! and routes belong to the new interface. That has the station address of the lower
//! one, so that the lower link needs no promiscuous mode.
//!
//! # The lower link is taken over
//!
//! The kernel's protocols would see what arrives there as well: they would answer
//! ARP, take each packet that fits a second time, since an address is local on every
//! interface, and join the same fragments. So all that arrives is dropped at the
//! ingress of the lower link (nftables, family `netdev`, priority -500), behind the
//! place where packet sockets hear it. The rule has a table of its own, which goes
//! when the interface does; after `kill -9` the next start replaces it, or
//! `nft delete table netdev landfall_bigmtu_NAME` takes it away. An address on the
//! lower link would be out of reach, so it must have none.
//!
//! # What to know
//!
//! - Pieces that are lost cost the whole packet: TCP sends it anew. A packet that does
//!   not become whole within [`lifetime`](BigMtuBuilder::lifetime) is given up. That is
//!   short: an IPv4 sender has 65,536 identifications, which at these rates come again
//!   in less than a second, and must not find old pieces (RFC 4963).
//! - Pieces keep the flag "don't fragment", as the packet had it: no router cuts them
//!   further, and a packet that comes out is the one that went in.
//! - A virtual lower link hands over TCP super-packets with unfinished checksums
//!   where a kernel alone is at the other end; they are finished here. UDP
//!   super-packets (`UDP_SEGMENT`) it hands over whole, and so do adapters that join
//!   received datagrams: switch that off with `ethtool -K … tx-udp-segmentation off`
//!   there, or `rx-udp-gro-forwarding off` here.
//! - VLAN frames of the lower link do not pass.
//!
//! What does not live here: cutting and joining (those are engines), and addresses
//! or routes beyond the one that can be given at the start.

mod builder;
mod checksum;
mod down;
mod error;
mod lower;
mod shared;
mod up;

use std::sync::Arc;
use std::thread::JoinHandle;

pub use builder::BigMtuBuilder;
pub use error::BigMtuError;
pub use shared::{Amount, BigMtuStats};

use super::error::Error;
use super::technique::Chosen;
use shared::Shared;

/// The largest MTU that Linux lets a TAP interface have (`drivers/net/tun.c`): a
/// packet of 65,535 bytes, less the Ethernet header.
pub const MTU_MAX: u32 = 65_521;
/// The smallest that is worth it here.
pub const MTU_MIN: u32 = 4096;

/// An interface with a large MTU, for as long as this lives.
///
/// ```no_run
/// use landfall::defrag::bigmtu::BigMtu;
///
/// let big = BigMtu::builder("eth0")
///     .name("big0")
///     .mtu(9000)
///     .address("10.9.0.1".parse()?, 24)
///     .start()?;
/// println!("{} has an MTU of {}", big.name(), big.mtu());
/// std::thread::sleep(std::time::Duration::from_secs(60));
/// println!("{:?}", big.stop()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BigMtu {
    name: String,
    mtu: u32,
    lower_mtu: u16,
    station: [u8; 6],
    chosen: Chosen,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl BigMtu {
    /// An interface above this one, to be described, and then started.
    pub fn builder(lower: impl Into<String>) -> BigMtuBuilder {
        BigMtuBuilder::new(lower.into())
    }

    /// The name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its MTU.
    #[must_use]
    pub const fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The MTU of the link below.
    #[must_use]
    pub const fn lower_mtu(&self) -> u16 {
        self.lower_mtu
    }

    /// The station address of both.
    #[must_use]
    pub const fn station(&self) -> [u8; 6] {
        self.station
    }

    /// How frames come in.
    #[must_use]
    pub const fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// What was done until a moment ago.
    #[must_use]
    pub fn stats(&self) -> BigMtuStats {
        self.shared.stats()
    }

    /// False once a link broke: [`stop`](Self::stop) says why.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.shared.is_over()
    }

    /// Takes the interface and the rule at the lower link away, and tells what was
    /// done.
    ///
    /// # Errors
    /// A link broke before.
    pub fn stop(mut self) -> Result<BigMtuStats, Error> {
        self.end();
        self.shared.take_error().map_or_else(|| Ok(self.shared.stats()), Err)
    }

    fn end(&mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            // What it panicked with was printed where it did.
            let _ = thread.join();
        }
    }
}

impl Drop for BigMtu {
    fn drop(&mut self) {
        self.end();
    }
}
