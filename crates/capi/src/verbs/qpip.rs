//! An adapter of QPIP, opened for C.

use std::ffi::c_char;

use landfall::qpip::{Adapter, Config, KeepAlive, Link, ProtectionDomain, TcpConfig};
use landfall_placement::Duration;

use crate::error::Failure;
use crate::text;

/// How an adapter is opened: see `landfall.h`.
#[derive(Debug)]
#[repr(C)]
pub struct QpipConfig {
    link: *const c_char,
    address: *const c_char,
    gateway: *const c_char,
    peer: *const c_char,
    flags: u32,
    reserved: u32,
}

/// An adapter, and the one domain that C has of it.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) adapter: Adapter,
    pub(super) domain: ProtectionDomain,
}

impl QpipConfig {
    /// # Safety
    /// Its pointers are what the header asks for.
    pub(super) unsafe fn open(&self) -> Result<Host, Failure> {
        if self.flags != 0 || self.reserved != 0 {
            return Err(Failure::Invalid("a flag is not known"));
        }
        // SAFETY: each is null, or the caller's promise.
        let optional = |pointer: *const c_char| match pointer.is_null() {
            true => Ok(None),
            // SAFETY: as above.
            false => unsafe { text(pointer) }.map(Some),
        };
        // SAFETY: the caller's promise.
        let (link, address) = unsafe { (text(self.link)?, text(self.address)?) };
        let config = Config::default();
        // Who is silent for half a minute is gone, as over STP.
        let interval = Duration::from_secs(5);
        let keep_alive = KeepAlive { idle: 2 * interval, interval, probes: 4 };
        let give_up_after = Duration::from_secs(30);
        let keep_alive = Some(keep_alive);
        let tcp = TcpConfig { immediates: true, keep_alive, give_up_after, ..config.tcp };
        let mut builder = Adapter::builder()
            .config(Config { tcp, ..config })
            .link(link_of(link, optional(self.peer)?)?)
            .address(address);
        if let Some(gateway) = optional(self.gateway)? {
            builder = builder.gateway(gateway);
        }
        let adapter = builder.open()?;
        let domain = adapter.domain()?;
        Ok(Host { adapter, domain })
    }
}

/// A link as a text says it. One within UDP may have its peer apart.
fn link_of(link: &str, peer: Option<&str>) -> Result<Link, Failure> {
    match peer {
        None => Ok(link.parse()?),
        Some(peer) if link.starts_with("udp:") => Ok(format!("{link},{peer}").parse()?),
        Some(_) => Err(Failure::Invalid("only a link within UDP has a peer")),
    }
}

impl Host {
    /// Where the other ends of a link within UDP send to; nothing of other links.
    pub(super) fn local(&self) -> String {
        let address = self.adapter.links().first().and_then(|link| link.tunnel_address);
        address.map_or_else(String::new, |address| address.to_string())
    }
}
