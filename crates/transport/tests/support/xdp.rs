//! XDP sockets at the ends of a cable.
use landfall_placement::Peer;
use landfall_testbed::{Namespace, VethEnd, VethPair};
use landfall_transport::memory::Regions;
use landfall_transport::xdp::{Attach, XdpConfig, XdpDriver};
use landfall_transport::{OpenError, Privilege};

use crate::support::carriage::Opened;
use crate::support::packet::EXPERIMENTAL;
use crate::support::transfer::PATH;

pub const MODES: [Attach; 2] = [Attach::Driver, Attach::Generic];

/// Why this machine cannot do it; none if it can.
pub fn why_no_xdp() -> Option<String> {
    let namespace = Namespace::new().ok()?;
    let config = XdpConfig { frames: 64, ..XdpConfig::new("lo", EXPERIMENTAL) };
    let open = || XdpDriver::open(PATH, &config, &Regions::new(1)).map(drop);
    match namespace.enter(open).ok()? {
        Err(error @ (OpenError::NoXdpSockets | OpenError::NoPrivilege(Privilege::Xdp))) => {
            Some(error.to_string())
        }
        _ => None,
    }
}

/// Leaves a test with one clear line where there are no XDP sockets.
macro_rules! require_xdp {
    () => {
        landfall_testbed::require_namespaces!();
        landfall_testbed::skip_unless!($crate::support::xdp::why_no_xdp());
    };
}
pub(crate) use require_xdp;

/// A driver at one end, as configured.
pub fn open_as(
    end: &VethEnd,
    regions: &Regions,
    adjust: impl FnOnce(XdpConfig) -> XdpConfig + Send,
) -> Result<XdpDriver, OpenError> {
    let config = adjust(XdpConfig::new(end.name.as_str(), EXPERIMENTAL));
    end.namespace.enter(|| XdpDriver::open(PATH, &config, regions)).unwrap()
}

/// A driver at one end, whose program runs there.
pub fn open(end: &VethEnd, attach: Attach, regions: &Regions) -> XdpDriver {
    open_as(end, regions, |config| XdpConfig { attach, ..config }).unwrap()
}

/// Drivers at both ends, with tables of their own.
pub fn pair(cable: &VethPair, attach: Attach) -> [Opened<XdpDriver>; 2] {
    [&cable.a, &cable.b].map(|end| {
        let regions = Regions::new(8);
        let driver = open(end, attach, &regions);
        Opened { driver, regions, name: Peer::Ethernet(end.mac.0) }
    })
}
