//! Tests of rings skip where there are none.

use landfall_placement::PathId;
use landfall_transport::memory::Regions;
use landfall_transport::uring::{Unavailable, UringUdpConfig, UringUdpDriver};

/// Why this machine has no `io_uring`; none if it has.
pub(crate) fn why_no_uring() -> Option<String> {
    let config = UringUdpConfig::new("127.0.0.1:0".parse().unwrap(), 1500);
    let error = UringUdpDriver::open(PathId(0), config, &Regions::new(1)).err()?;
    let why = error.get_ref()?.downcast_ref::<Unavailable>()?;
    Some(why.to_string())
}
