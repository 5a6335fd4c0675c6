//! Where an exporter listens: at an address of TCP, or at a path, where the rights of files say who may
//! ask.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// What `--metrics` names: `ADDRESS:PORT`, or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A path, of which a socket is made.
    Unix(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("unix: needs a path behind it".to_owned()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let address = text.parse().map(Self::Tcp);
        address.map_err(|_| format!("'{text}' is neither ADDRESS:PORT nor unix:PATH"))
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that waits for scrapes.
#[derive(Debug)]
pub(super) enum MetricsListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Somebody who asks.
pub(super) trait Client: Read + Write {
    fn reads_within(&self, limit: Duration) -> io::Result<()>;
    fn writes_within(&self, limit: Duration) -> io::Result<()>;
}

impl Client for TcpStream {
    fn reads_within(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }

    fn writes_within(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))
    }
}

impl Client for UnixStream {
    fn reads_within(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }

    fn writes_within(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))
    }
}

impl MetricsListener {
    /// Listens there; what a process that was killed has left at a path is replaced.
    pub(super) fn bind(address: &MetricsAddress) -> io::Result<Self> {
        match address {
            MetricsAddress::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
            MetricsAddress::Unix(path) => {
                let bound = match UnixListener::bind(path) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left(path) => {
                        fs::remove_file(path)?;
                        UnixListener::bind(path)
                    }
                    bound => bound,
                };
                bound.map(Self::Unix)
            }
        }
    }

    /// Where that is: the port of TCP may have been left to the kernel.
    pub(super) fn address(&self, asked: MetricsAddress) -> io::Result<MetricsAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(MetricsAddress::Tcp),
            Self::Unix(_) => Ok(asked),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Box<dyn Client>> {
        match self {
            Self::Tcp(listener) => Ok(Box::new(listener.accept()?.0)),
            Self::Unix(listener) => Ok(Box::new(listener.accept()?.0)),
        }
    }
}

/// Whether a socket is there that nobody listens at.
fn is_left(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let refuses = || {
        UnixStream::connect(path).is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused)
    };
    is_socket && refuses()
}

/// The name of a socket, which goes with its owner if it is still that one.
#[derive(Debug)]
pub(super) struct SocketName {
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl SocketName {
    pub(super) fn of(address: &MetricsAddress) -> Option<Self> {
        let MetricsAddress::Unix(path) = address else { return None };
        Some(Self { path: path.clone(), file: file_at(path) })
    }
}

impl Drop for SocketName {
    fn drop(&mut self) {
        if self.file.is_some() && self.file == file_at(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|data| (data.dev(), data.ino()))
}
