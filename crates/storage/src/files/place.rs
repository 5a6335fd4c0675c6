//! [`Place`]: where a server of files is met.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The name by which a server is found in a folder.
pub const NAME: &str = "files";

/// Where a server is met: over UDP, or in a folder by processes of its host.
///
/// ```
/// use landfall_storage::files::Place;
///
/// let place: Place = "192.0.2.7:7200".parse()?;
/// assert!(matches!(place, Place::Udp(_)));
/// let place: Place = "shm:/run/landfall".parse()?;
/// assert_eq!(place.to_string(), "shm:/run/landfall");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this address.
    Udp(SocketAddr),
    /// By [`NAME`] in this folder, over shared memory.
    Host(PathBuf),
}

/// A text that says no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no place of a server: say ADDRESS:PORT for UDP, or shm:FOLDER within this host")]
pub struct NoPlace(String);

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let wrong = || NoPlace(text.into());
        match text.strip_prefix("shm:") {
            Some("") => Err(wrong()),
            Some(folder) => Ok(Self::Host(Path::new(folder).into())),
            None => text.parse().map(Self::Udp).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "{address}"),
            Self::Host(folder) => write!(f, "shm:{}", folder.display()),
        }
    }
}
