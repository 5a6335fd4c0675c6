//! Several sockets at one address and port, each for an engine of its own.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use landfall_placement::PathId;
use socket2::Socket;

use super::UdpDriver;
use crate::memory::Regions;
use crate::packet::{attach_spread, empty, member_of_socket, program_of_sockets};
use crate::udp::UdpConfig;
use crate::udp::socket::Sharing;

impl UdpDriver {
    /// Opens several sockets at one address and port (`SO_REUSEPORT`), each for an engine of
    /// its own. The kernel spreads peers over them by a hash of both addresses and ports: all
    /// that one peer sends from one port comes to the same socket, for as long as any of these
    /// drivers exists. A peer whose address changes may come to another one.
    ///
    /// ```
    /// use landfall_placement::PathId;
    /// use landfall_transport::memory::Regions;
    /// use landfall_transport::udp::{UdpConfig, UdpDriver};
    ///
    /// let config = UdpConfig::discover(([127, 0, 0, 1], 0).into());
    /// let drivers = UdpDriver::open_group(PathId(0), config, &Regions::new(16), 4)?;
    /// let port = drivers[0].local_address();
    /// assert!(drivers.iter().all(|driver| driver.local_address() == port));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open). A port that somebody else has is refused, also where
    /// they would share it.
    pub fn open_group(
        path: PathId,
        mut config: UdpConfig,
        regions: &Regions,
        count: usize,
    ) -> io::Result<Vec<Self>> {
        let mut drivers: Vec<Self> = Vec::with_capacity(count);
        for at in 0..count {
            let sharing = if at == 0 { Sharing::First } else { Sharing::Joining };
            let driver = Self::open_sharing("udp", path, config, regions, sharing)?;
            // Where the kernel chose a port, the others have the same.
            config.bind = driver.local;
            drivers.push(driver);
        }
        // One that is closed would leave the group, and peers of the others would come to
        // other sockets than before.
        let group: io::Result<Arc<[Socket]>> =
            drivers.iter().map(|driver| driver.socket.try_clone()).collect();
        let group = group?;
        for driver in &mut drivers {
            driver._group = Some(Arc::clone(&group));
        }
        Ok(drivers)
    }

    /// The same, and who a peer comes to is known beforehand: its address and port say it
    /// ([`member_of`](Self::member_of)). So the engine that it comes to can also be the one that
    /// begins to talk to it.
    ///
    /// ```
    /// use landfall_placement::PathId;
    /// use landfall_transport::memory::Regions;
    /// use landfall_transport::udp::{UdpConfig, UdpDriver};
    ///
    /// let config = UdpConfig::discover(([127, 0, 0, 1], 0).into());
    /// let drivers = UdpDriver::open_group_by_peer(PathId(0), config, &Regions::new(16), 2)?;
    /// let peer = "127.0.0.1:4000".parse()?;
    /// let its = UdpDriver::member_of(peer, drivers.len()).unwrap();
    /// assert!(its < 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open_group`](Self::open_group), and what the kernel says that does not spread
    /// datagrams by a program (`SO_ATTACH_REUSEPORT_CBPF`, Linux 4.5).
    pub fn open_group_by_peer(
        path: PathId,
        config: UdpConfig,
        regions: &Regions,
        count: usize,
    ) -> io::Result<Vec<Self>> {
        let drivers = Self::open_group(path, config, regions, count)?;
        if let [first, _, ..] = &drivers[..] {
            let members = u32::try_from(count).map_err(io::Error::other)?;
            attach_spread(first.socket.as_raw_fd(), &program_of_sockets(members))?;
        }
        // What came before was spread by chance. To those who sent it, it is lost on the way.
        drivers.iter().for_each(|driver| empty(&driver.socket));
        Ok(drivers)
    }

    /// Which of a [group](Self::open_group_by_peer) of this many gets what this peer sends. None
    /// of none.
    #[must_use]
    pub fn member_of(peer: SocketAddr, count: usize) -> Option<usize> {
        (count > 0).then(|| member_of_socket(peer, count))
    }
}
