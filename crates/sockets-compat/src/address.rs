//! [`Address`]: where a socket of this family is, as text and back.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The port of STP's UDP encapsulation, where an address names no other.
pub const STP_UDP_PORT: u16 = 8181;

/// The port of CLAN's UDP encapsulation, where an address names no other.
pub const CLAN_UDP_PORT: u16 = 8182;

/// Where a socket is.
///
/// | text | what |
/// | --- | --- |
/// | `stp://10.0.0.1:7` | port 7 of STP at that host, by UDP at port 8181 |
/// | `stp://10.0.0.1:7/udp/4000` | the same by another UDP port |
/// | `stp://[fd00::1]:7/ip` | the same by IP protocol 118, without UDP |
/// | `qp://10.0.0.1:7000` | a port of TCP or UDP, as everybody knows it |
/// | `clan:///run/landfall#web` | the service `web` among those that meet in the folder `/run/landfall` |
/// | `clan:///run/landfall` | somebody there who has no name, as one that connects |
/// | `clan://10.0.0.1:7` | port 7 of CLAN at that host, by UDP at port 8182 |
/// | `clan://10.0.0.1:7/udp/4000` | the same by another UDP port |
///
/// ```
/// use sockets_compat::Address;
///
/// let address: Address = "stp://10.0.0.1:7/udp/4000".parse()?;
/// assert_eq!(address.port(), Some(7));
/// assert_eq!(address.to_string(), "stp://10.0.0.1:7/udp/4000");
/// # Ok::<(), sockets_compat::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A port of the Scheduled Transfer Protocol.
    Stp {
        /// The host.
        host: IpAddr,
        /// STP's own port, which has nothing to do with ports of UDP.
        port: u16,
        /// What carries it.
        carrier: Carrier,
    },
    /// A port of TCP or UDP, at a station of queue pairs or at any other host.
    Qp(SocketAddr),
    /// A service of this host, over shared memory.
    Clan {
        /// The folder where nodes meet.
        folder: PathBuf,
        /// Its name there; who connects has none.
        name: Option<Name>,
    },
    /// A port of CLAN at a host, over the network.
    ClanPort {
        /// The host.
        host: IpAddr,
        /// CLAN's own port, which has nothing to do with ports of UDP.
        port: u16,
        /// The port of UDP that carries it.
        udp: u16,
    },
}

/// What carries STP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// UDP, at this port.
    Udp(u16),
    /// IP protocol 118.
    Ip,
}

impl Default for Carrier {
    fn default() -> Self {
        Self::Udp(STP_UDP_PORT)
    }
}

/// The name of a service over shared memory: 1 to 64 letters, digits, `.`, `-` and `_`
/// of ASCII, of which the first is no dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// The longest.
    pub const MAX: usize = 64;

    /// Checks a name.
    ///
    /// # Errors
    /// It is none: see [`Name`].
    pub fn new(name: impl Into<String>) -> Result<Self, AddressError> {
        let name = name.into();
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let fits = (1..=Self::MAX).contains(&name.len()) && !name.starts_with('.');
        if fits && name.bytes().all(is_known) {
            Ok(Self(name))
        } else {
            Err(AddressError::Name(name))
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::new(text)
    }
}

impl Address {
    /// A port of STP, by UDP at STP's port.
    #[must_use]
    pub fn stp(host: impl Into<IpAddr>, port: u16) -> Self {
        Self::Stp { host: host.into(), port, carrier: Carrier::default() }
    }

    /// A port of CLAN over the network, by UDP at CLAN's port.
    #[must_use]
    pub fn clan_port(host: impl Into<IpAddr>, port: u16) -> Self {
        Self::ClanPort { host: host.into(), port, udp: CLAN_UDP_PORT }
    }

    /// A service over shared memory.
    ///
    /// # Errors
    /// That is no name: see [`Name`]; or the folder is not absolute, or not UTF-8, so that
    /// it could not be written down.
    pub fn clan(folder: impl Into<PathBuf>, name: &str) -> Result<Self, AddressError> {
        let folder = folder.into();
        check_folder(&folder)?;
        Ok(Self::Clan { folder, name: Some(Name::new(name)?) })
    }

    /// The port, where it has one.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        match self {
            Self::Stp { port, .. } | Self::ClanPort { port, .. } => Some(*port),
            Self::Qp(address) => Some(address.port()),
            Self::Clan { .. } => None,
        }
    }

    /// The host, where it has one; services over shared memory are on this one.
    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Stp { host, .. } | Self::ClanPort { host, .. } => Some(*host),
            Self::Qp(address) => Some(address.ip()),
            Self::Clan { .. } => None,
        }
    }

    /// The address of TCP or UDP behind `qp://`.
    #[must_use]
    pub const fn socket(&self) -> Option<SocketAddr> {
        match self {
            Self::Qp(address) => Some(*address),
            Self::Stp { .. } | Self::Clan { .. } | Self::ClanPort { .. } => None,
        }
    }

    /// Reads an address whose host may be a name, and asks the system's resolver for it:
    /// `stp://server.example:7`. Gives all that the name stands for.
    ///
    /// # Errors
    /// The text is no address, or the name stands for nothing.
    pub fn resolve(text: &str) -> std::io::Result<Vec<Self>> {
        let wrong = |error| std::io::Error::new(std::io::ErrorKind::InvalidInput, error);
        let parsed = text.parse::<Self>();
        let (scheme, rest) = match (text.split_once("://"), &parsed) {
            (Some((scheme @ ("stp" | "qp"), rest)), Err(_)) => (scheme, rest),
            (Some(("clan", rest)), Err(_)) if is_of_a_host(rest) => ("clan", rest),
            _ => return parsed.map(|address| vec![address]).map_err(wrong),
        };
        let (authority, behind) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let found = authority.to_socket_addrs()?;
        found.map(|socket| format!("{scheme}://{socket}{behind}").parse().map_err(wrong)).collect()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Qp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stp { host, port, carrier } => {
                write!(f, "stp://{}", SocketAddr::new(*host, *port))?;
                match carrier {
                    Carrier::Udp(STP_UDP_PORT) => Ok(()),
                    Carrier::Udp(port) => write!(f, "/udp/{port}"),
                    Carrier::Ip => f.write_str("/ip"),
                }
            }
            Self::Qp(address) => write!(f, "qp://{address}"),
            Self::Clan { folder, name } => {
                f.write_str("clan://")?;
                write_folder(f, folder)?;
                name.as_ref().map_or(Ok(()), |name| write!(f, "#{name}"))
            }
            Self::ClanPort { host, port, udp } => {
                write!(f, "clan://{}", SocketAddr::new(*host, *port))?;
                if *udp == CLAN_UDP_PORT { Ok(()) } else { write!(f, "/udp/{udp}") }
            }
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(AddressError::NoScheme(text.into()));
        };
        match scheme {
            "stp" => stp_of(rest),
            "qp" => Ok(Self::Qp(socket_of(rest)?)),
            "clan" if is_of_a_host(rest) => clan_port_of(rest),
            "clan" => clan_of(rest),
            _ => Err(AddressError::Scheme(scheme.into())),
        }
    }
}

fn socket_of(text: &str) -> Result<SocketAddr, AddressError> {
    match text.parse() {
        // What cannot be written down is not read, so that each address has one text.
        Ok(SocketAddr::V6(address)) if address.flowinfo() != 0 => {
            Err(AddressError::Host(text.into()))
        }
        Ok(address) => Ok(address),
        Err(_) => Err(AddressError::Host(text.into())),
    }
}

fn stp_of(text: &str) -> Result<Address, AddressError> {
    let (socket, behind) = host_of(text)?;
    let carrier = match behind {
        "" => Carrier::default(),
        "/ip" => Carrier::Ip,
        _ => Carrier::Udp(udp_of(behind)?),
    };
    Ok(Address::Stp { host: socket.ip(), port: socket.port(), carrier })
}

/// Host and port of a protocol of its own, and what carries it.
fn host_of(text: &str) -> Result<(SocketAddr, &str), AddressError> {
    let (authority, behind) = text.split_at(text.find('/').unwrap_or(text.len()));
    match socket_of(authority)? {
        SocketAddr::V6(address) if address.scope_id() != 0 => {
            Err(AddressError::Host(authority.into()))
        }
        socket => Ok((socket, behind)),
    }
}

fn udp_of(text: &str) -> Result<u16, AddressError> {
    let port = text.strip_prefix("/udp/").and_then(|port| port.parse().ok());
    port.ok_or_else(|| AddressError::Carrier(text.into()))
}

/// Folders begin with a slash; what begins with a host has a port behind it.
fn is_of_a_host(text: &str) -> bool {
    let authority = text.split('/').next().unwrap_or_default();
    authority.contains(':') && !authority.contains('#')
}

fn clan_port_of(text: &str) -> Result<Address, AddressError> {
    let (socket, behind) = host_of(text)?;
    let udp = if behind.is_empty() { CLAN_UDP_PORT } else { udp_of(behind)? };
    Ok(Address::ClanPort { host: socket.ip(), port: socket.port(), udp })
}

fn clan_of(text: &str) -> Result<Address, AddressError> {
    let (folder, name) = match text.split_once('#') {
        Some((folder, name)) => (folder, Some(Name::new(name)?)),
        None => (text, None),
    };
    let folder = PathBuf::from(unescaped(folder)?);
    check_folder(&folder)?;
    Ok(Address::Clan { folder, name })
}

fn check_folder(folder: &Path) -> Result<(), AddressError> {
    match folder.to_str() {
        Some(text) if folder.is_absolute() && !text.contains('\0') => Ok(()),
        _ => Err(AddressError::Folder(folder.to_string_lossy().into_owned())),
    }
}

/// As it is, but for what would be read as something else.
fn write_folder(f: &mut fmt::Formatter<'_>, folder: &Path) -> fmt::Result {
    for character in folder.to_string_lossy().chars() {
        match character {
            '%' | '#' | ' ' => write!(f, "%{:02x}", character as u32)?,
            control if control.is_ascii_control() => write!(f, "%{:02x}", control as u32)?,
            other => write!(f, "{other}")?,
        }
    }
    Ok(())
}

fn unescaped(text: &str) -> Result<String, AddressError> {
    let wrong = || AddressError::Folder(text.into());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(wrong()) };
        bytes.push((high << 4 | low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// Nothing says what kind it is.
    NoScheme(String),
    /// It is of a kind that is not known here.
    Scheme(String),
    /// Host and port are not.
    Host(String),
    /// STP or CLAN is not carried by that.
    Carrier(String),
    /// The folder is not absolute, or no text.
    Folder(String),
    /// That is no name of a service.
    Name(String),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoScheme(text) => write!(
                f,
                "{text:?} does not say what it is: write stp://HOST:PORT, qp://HOST:PORT, clan://HOST:PORT or clan:///FOLDER#NAME"
            ),
            Self::Scheme(scheme) => {
                write!(f, "{scheme:?} is no scheme of this family: those are stp, qp and clan")
            }
            Self::Host(text) => write!(
                f,
                "{text:?} is no IP address with a port, such as 10.0.0.1:7 or [fd00::1]:7; names are resolved by Address::resolve"
            ),
            Self::Carrier(text) => {
                write!(
                    f,
                    "{text:?} carries neither STP nor CLAN: write /udp/PORT, for STP also /ip, or nothing for UDP at port {STP_UDP_PORT} (CLAN: {CLAN_UDP_PORT})"
                )
            }
            Self::Folder(text) => {
                write!(f, "{text:?} is no absolute path in UTF-8, such as clan:///run/landfall#web")
            }
            Self::Name(text) => write!(
                f,
                "{text:?} is no name of a service: 1 to {} letters, digits, '.', '-' and '_', of which the first is no dot",
                Name::MAX
            ),
        }
    }
}

impl std::error::Error for AddressError {}

/// What can be taken for an address: one, or a text that is one.
pub trait ToAddress {
    /// The address.
    ///
    /// # Errors
    /// The text is none.
    fn to_address(&self) -> Result<Address, AddressError>;
}

impl ToAddress for Address {
    fn to_address(&self) -> Result<Address, AddressError> {
        Ok(self.clone())
    }
}

impl ToAddress for str {
    fn to_address(&self) -> Result<Address, AddressError> {
        self.parse()
    }
}

impl ToAddress for String {
    fn to_address(&self) -> Result<Address, AddressError> {
        self.parse()
    }
}

impl ToAddress for SocketAddr {
    fn to_address(&self) -> Result<Address, AddressError> {
        Ok(Address::Qp(*self))
    }
}

impl<T: ToAddress + ?Sized> ToAddress for &T {
    fn to_address(&self) -> Result<Address, AddressError> {
        (**self).to_address()
    }
}
