//! [`Server`]: devices as logical units of a SCSI target, for initiators of iSCSI and over STP.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | a target and its units |
//! | `accounts` | secrets of initiators, from files |
//! | `connection` | one initiator of iSCSI, from its login to its goodbye |
//! | [`sst`] | initiators over STP, whose data are Transfers |
//! | `command` | the commands of the tool that are an initiator |
//! | `units` | what people call a unit |
//! | `carry_out` | what a device does for a command |

mod accounts;
mod carry_out;
#[cfg(all(feature = "command", feature = "family"))]
pub mod command;
mod connection;
#[cfg(feature = "family")]
pub mod sst;
mod units;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_nbd::Features;
pub use landfall_scsi::Lun;
pub use landfall_scsi::iscsi::Account;
pub use landfall_scsi::{Code, Failure, Key, Response, Sense, Status, TaskManagement};
use landfall_scsi::{Disk, Target, Work};

#[cfg(feature = "family")]
use sockets_compat::{Address, StpHost};

use crate::device::BlockDevice;
use crate::server::tally::Tally;
use crate::server::{BlockServer, Log, ServerStats, StreamServer, WORKERS, Workers};
use crate::uri::Carrier;
pub use accounts::read_account;
use carry_out::UnitDevice;
pub use units::UnitSource;

/// The port of iSCSI.
pub const PORT: u16 = 3260;

/// An address as initiators write it. What comes in at an adapter of queue pairs is TCP for those of
/// iSCSI.
#[must_use]
pub fn address(carrier: &Carrier) -> String {
    match carrier {
        Carrier::Tcp { host, port } | Carrier::Qp { host, port } if host.contains(':') => {
            format!("iscsi://[{host}]:{port}/")
        }
        Carrier::Tcp { host, port } | Carrier::Qp { host, port } => {
            format!("iscsi://{host}:{port}/")
        }
        Carrier::Unix { path } => format!("iscsi+unix://{}", path.display()),
        Carrier::Stp { host, port, udp } => format!("stp://{host}:{port}/udp/{udp}"),
    }
}

/// A target whose logical units are devices.
///
/// ```
/// use landfall_storage::device::MemoryDevice;
/// use landfall_storage::scsi::Server;
///
/// let server = Server::builder("iqn.2026-01.example:disks")
///     .unit(0, MemoryDevice::new(1 << 30))
///     .start()?;
/// let address = server.listen("127.0.0.1:0")?;
/// // qemu-io -f raw iscsi://ADDRESS/iqn.2026-01.example:disks/0 -c 'read 0 4k'
/// # let _ = address;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Dropped, it stops: what a device has begun is ended, and initiators see the end of their
/// connections.
#[derive(Debug)]
pub struct Server {
    /// Ended first.
    streams: StreamServer,
    common: Arc<Common>,
}

/// What all connections of a server share.
pub(crate) struct Common {
    target: Mutex<Target>,
    sessions: connection::Sessions,
    units: BTreeMap<Lun, Arc<UnitDevice>>,
    workers: Workers,
    tally: Tally,
    log: Option<Log>,
    is_ending: Arc<AtomicBool>,
    /// Who may come in by iSCSI, and what the target proves itself by.
    chap: Option<(Account, Option<Account>)>,
    /// Initiators over STP.
    #[cfg(feature = "family")]
    direct: Mutex<Vec<std::sync::Weak<sst::Replies>>>,
    #[cfg(feature = "family")]
    most_clients: usize,
}

impl std::fmt::Debug for Common {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Common").field("units", &self.units.len()).finish_non_exhaustive()
    }
}

impl Common {
    fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, what: &str) {
        if let Some(log) = &self.log {
            log(what);
        }
    }

    fn count(&self, work: &Work, data: usize) {
        match work {
            Work::Read { length, .. } => self.tally.read(u64::from(*length)),
            Work::Write { .. } => self.tally.write(data as u64),
            Work::Flush => self.tally.flush(),
            _ => self.tally.other(),
        }
    }

    /// What the device said is for the log; the initiator hears what kind of failure it is.
    fn logged(&self, done: Result<Vec<u8>, (Failure, io::Error)>) -> Result<Vec<u8>, Failure> {
        done.map_err(|(failure, error)| {
            self.tally.error();
            if !matches!(failure, Failure::Miscompare(_)) {
                self.say(&format!("{failure}: {error}"));
            }
            failure
        })
    }
}

/// What a [`Server`] shall be like.
#[must_use]
pub struct Builder {
    name: String,
    units: Vec<(u16, Arc<dyn BlockDevice>)>,
    read_only: bool,
    log: Option<Log>,
    most_clients: usize,
    initiator: Option<Account>,
    own: Option<Account>,
}

impl Builder {
    /// A device is the logical unit of this number.
    pub fn unit(self, number: u16, device: impl BlockDevice + 'static) -> Self {
        self.shared_unit(number, Arc::new(device))
    }

    /// The same for a device that others have, too.
    pub fn shared_unit(mut self, number: u16, device: Arc<dyn BlockDevice>) -> Self {
        self.units.push((number, device));
        self
    }

    /// Nobody writes, whatever the devices can.
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Nobody comes in but those of iSCSI that prove by CHAP that they know this secret.
    pub fn chap(mut self, initiator: Account) -> Self {
        self.initiator = Some(initiator);
        self
    }

    /// The target proves itself, too, to those that ask for it.
    pub fn chap_target(mut self, own: Account) -> Self {
        self.own = Some(own);
        self
    }

    /// Tells of initiators that come and go, and of what goes wrong.
    pub fn log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.log = Some(Arc::new(log));
        self
    }

    /// This many initiators at a time; others are turned away.
    pub const fn clients(mut self, most: usize) -> Self {
        self.most_clients = most;
        self
    }

    /// Starts it. Initiators come in by [`Server::listen`] and [`Server::streams`].
    ///
    /// # Errors
    /// The name is no name of iSCSI, two units have one number, or a device is smaller than a
    /// block.
    pub fn start(self) -> io::Result<Server> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let is_name = ["iqn.", "eui.", "naa."].iter().any(|kind| self.name.starts_with(kind));
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
        if !is_name || self.name.len() > 223 || !self.name.bytes().all(is_plain) {
            return refuse(format!(
                "{} is no name of a target: iqn.YEAR-MONTH.DOMAIN:NAME would be",
                self.name
            ));
        }
        let chap = match (self.initiator, self.own) {
            (None, Some(_)) => {
                return refuse(
                    "a target that proves itself has initiators prove themselves".into(),
                );
            }
            (Some(initiator), Some(own)) if initiator.has_secret_of(&own) => {
                return refuse("both ends of CHAP need a secret of their own".into());
            }
            (initiator, own) => initiator.map(|initiator| (initiator, own)),
        };
        let (mut target, mut units) = (Target::new(self.name.as_str()), BTreeMap::new());
        for (number, device) in self.units {
            let Some(lun) = Lun::new(number) else {
                return refuse(format!("no unit has the number {number}: 16383 is the last"));
            };
            let mut disk = Disk::of_bytes(serial(&self.name, number), device.size());
            if disk.blocks == 0 {
                return refuse(format!("unit {number} is smaller than a block"));
            }
            disk.read_only = self.read_only || device.features().has(Features::READ_ONLY);
            if !target.add(lun, disk) {
                return refuse(format!("two units have the number {number}"));
            }
            units.insert(lun, Arc::new(UnitDevice::new(device)));
        }
        let (target, tally) = (Mutex::new(target), Tally::default());
        let (workers, log) = (Workers::new(WORKERS), self.log.clone());
        let is_ending = Arc::new(AtomicBool::new(false));
        let common = Arc::new(Common {
            target,
            sessions: connection::Sessions::default(),
            units,
            workers,
            tally,
            log,
            is_ending: Arc::clone(&is_ending),
            chap,
            #[cfg(feature = "family")]
            direct: Mutex::default(),
            #[cfg(feature = "family")]
            most_clients: self.most_clients,
        });
        let of_clients = Arc::clone(&common);
        let serve =
            move |stream| connection::serve(stream, &of_clients).map_err(|error| error.to_string());
        let streams = StreamServer::new(Box::new(serve), is_ending, self.log, self.most_clients);
        Ok(Server { streams, common })
    }
}

/// What the unit of a target is called everywhere: a number of both names.
fn serial(name: &str, number: u16) -> String {
    let sum = landfall_placement::crc32c::crc32c(name.as_bytes());
    format!("{sum:08x}{number:04x}")
}

impl Server {
    /// A target of this name, for 1024 initiators.
    pub fn builder(name: impl Into<String>) -> Builder {
        let name = name.into();
        Builder {
            name,
            units: Vec::new(),
            read_only: false,
            log: None,
            most_clients: 1024,
            initiator: None,
            own: None,
        }
    }

    /// Lets initiators come in over the kernel's TCP. Gives the address, whose port may have
    /// been 0.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn listen(&self, address: impl ToSocketAddrs) -> io::Result<SocketAddr> {
        self.streams.listen(address)
    }

    /// Lets initiators come in by any other stream, and knows how many are here.
    #[must_use]
    pub const fn streams(&self) -> &StreamServer {
        &self.streams
    }

    /// What was asked for so far, by all initiators together.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.common.tally.stats()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.common.is_ending.store(true, Ordering::Release);
        #[cfg(feature = "family")]
        sst::end_all(&self.common);
    }
}

impl BlockServer for Server {
    fn streams(&self) -> &StreamServer {
        self.streams()
    }

    fn stats(&self) -> ServerStats {
        self.stats()
    }

    /// With data as Transfers.
    #[cfg(feature = "family")]
    fn listen_stp(&self, host: &StpHost, port: u16) -> io::Result<Address> {
        self.listen_sst(host.endpoint(), port)?;
        sst::address(host.endpoint(), port)
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).finish_non_exhaustive()
    }
}
