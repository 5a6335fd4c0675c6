//! How many connections one source may have.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the connections of each source.
#[derive(Debug)]
pub(crate) struct Admission {
    per_source: usize,
    /// No longer than there are connections: a source without any is removed.
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that was admitted; dropped, its place is free.
#[derive(Debug)]
pub(crate) struct Ticket {
    admission: Arc<Admission>,
    source: IpAddr,
}

impl Admission {
    pub(crate) fn new(per_source: usize) -> Arc<Self> {
        Arc::new(Self { per_source, counts: Mutex::default() })
    }

    /// Admits a connection, unless its source has as many as one may have.
    pub(crate) fn admit(self: &Arc<Self>, source: IpAddr) -> Option<Ticket> {
        let source = source_of(source);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(source).or_default();
        if *count >= self.per_source {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Ticket { admission: Arc::clone(self), source })
    }
}

/// One host of IPv6 has a whole /64 of addresses.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counts = self.admission.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_its_bound_and_others_are_not_concerned() {
        let admission = Admission::new(2);
        let source = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = admission.admit(source("10.0.0.1")).unwrap();
        let second = admission.admit(source("::ffff:10.0.0.1")).unwrap();
        assert!(admission.admit(source("10.0.0.1")).is_none());
        assert!(admission.admit(source("10.0.0.2")).is_some());
        drop(first);
        let third = admission.admit(source("10.0.0.1")).unwrap();
        drop((second, third));
        assert!(admission.counts.lock().unwrap().is_empty(), "nothing is kept of who has left");
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let admission = Admission::new(1);
        let source = |text: &str| text.parse::<IpAddr>().unwrap();
        let _first = admission.admit(source("fd00::1")).unwrap();
        assert!(admission.admit(source("fd00::2")).is_none());
        assert!(admission.admit(source("fd00:0:0:1::2")).is_some());
    }
}
