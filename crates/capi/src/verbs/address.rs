//! Addresses of IP with a port, as C has them: of QPIP's connections and datagrams.

use std::ffi::c_char;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::{Failure, code, number};
use crate::stp::text_of;
use crate::{shared, text};

/// An address and a port: see `landfall.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Address {
    ip: [u8; 16],
    port: u16,
    version: u8,
    reserved: u8,
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let mut ip = [0; 16];
        let version = match address.ip() {
            IpAddr::V4(of) => {
                ip[..4].copy_from_slice(&of.octets());
                4
            }
            IpAddr::V6(of) => {
                ip = of.octets();
                6
            }
        };
        Self { ip, port: address.port(), version, reserved: 0 }
    }
}

impl Address {
    pub(super) fn socket(&self) -> Result<SocketAddr, Failure> {
        let [a, b, c, d, ..] = self.ip;
        let ip = match (self.version, self.reserved) {
            (4, 0) => Ipv4Addr::new(a, b, c, d).into(),
            (6, 0) => Ipv6Addr::from(self.ip).into(),
            _ => return Err(Failure::Invalid("the version of an address is 4 or 6")),
        };
        Ok(SocketAddr::new(ip, self.port))
    }
}

/// An address as a text says it.
pub(super) fn socket(text: &str) -> Result<SocketAddr, Failure> {
    text.parse().map_err(|_| Failure::Invalid("an address of QPIP is like 10.0.0.2:9000"))
}

/// Writes an address, or that there is none, to where a C program said.
///
/// # Safety
/// It is null, or nobody else uses it.
pub(super) unsafe fn give_address(
    found: Option<SocketAddr>,
    into: *mut Address,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let into = unsafe { into.as_mut() }.ok_or(Failure::Invalid("there is no room: NULL"))?;
    *into = found.map(Address::from).unwrap_or_default();
    Ok(())
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_address_read(from: *const c_char, address: *mut Address) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let read = socket(unsafe { text(from) }?)?;
        // SAFETY: the caller's promise.
        unsafe { give_address(Some(read), address) }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_address_text(
    address: *const Address,
    into: *mut c_char,
    room: usize,
) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let address = unsafe { shared(address) }?.socket()?;
        // SAFETY: the caller's promise.
        unsafe { text_of(&address.to_string(), into, room) }
    })
}
