//! [`ExportUri`]: the name of an export, and how it is reached, as text and back.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of NBD.
pub const PORT: u16 = 10809;

/// The port of UDP that carries STP, if no other is named.
pub const STP_UDP_PORT: u16 = 8181;

/// An export of a server.
///
/// | text | how it is reached |
/// | --- | --- |
/// | `nbd://HOST:PORT/NAME` | the kernel's TCP |
/// | `nbd+unix:///NAME?socket=PATH` | a Unix socket |
/// | `nbd+qp://HOST:PORT/NAME` | a queue pair, to any TCP |
/// | `nbd+stp://HOST:PORT/NAME?udp=PORT` | the Scheduled Transfer Protocol; `PORT` is STP's |
///
/// With `nbds` instead of `nbd` the connection has TLS. Ports may be left out.
///
/// ```
/// use landfall_storage::uri::{Carrier, ExportUri};
///
/// let uri: ExportUri = "nbds+qp://10.9.0.2/disk".parse()?;
/// assert!(uri.tls && uri.name == "disk");
/// assert_eq!(uri.carrier, Carrier::Qp { host: "10.9.0.2".into(), port: 10809 });
/// assert_eq!(uri.to_string(), "nbds+qp://10.9.0.2:10809/disk");
/// # Ok::<(), landfall_storage::uri::UriError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportUri {
    /// What carries the connection, and to where.
    pub carrier: Carrier,
    /// The name of the export.
    pub name: String,
    /// Whether it has TLS.
    pub tls: bool,
}

/// What carries a connection, and where its server is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// The kernel's TCP.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket of this host.
    Unix {
        /// Where it is.
        path: PathBuf,
    },
    /// A queue pair.
    Qp {
        /// A name or an address.
        host: String,
        /// The port of TCP.
        port: u16,
    },
    /// The Scheduled Transfer Protocol.
    Stp {
        /// A name or an address.
        host: String,
        /// STP's own port.
        port: u16,
        /// The port of UDP that carries it.
        udp: u16,
    },
}

/// An export of a server, or a file of this host.
///
/// ```
/// use landfall_storage::uri::Target;
///
/// assert_eq!(Target::parse("disk.img")?, Target::File("disk.img".into()));
/// assert_eq!(Target::parse("nbd://host/disk")?.export()?.name, "disk");
/// # Ok::<(), landfall_storage::uri::UriError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// At the other end.
    Export(ExportUri),
    /// Here.
    File(PathBuf),
}

impl Target {
    /// Understands the address of an export, or a path.
    ///
    /// # Errors
    /// It looks like an address and is none.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        if text.contains("://") {
            text.parse().map(Self::Export)
        } else {
            Ok(Self::File(text.into()))
        }
    }

    /// The export.
    ///
    /// # Errors
    /// A file is none.
    pub fn export(&self) -> Result<&ExportUri, UriError> {
        match self {
            Self::Export(uri) => Ok(uri),
            Self::File(path) => {
                let path = path.display();
                Err(UriError::new(format!("{path} is a file: nbd://HOST/NAME is an export")))
            }
        }
    }
}

impl Carrier {
    /// The name or the address of the host, as a certificate has it.
    #[must_use]
    pub fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } | Self::Qp { host, .. } | Self::Stp { host, .. } => host,
            Self::Unix { .. } => "localhost",
        }
    }
}

/// A text is no [`ExportUri`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UriError(String);

impl UriError {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl FromStr for ExportUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let (security, family) = scheme.split_once('+').unwrap_or((scheme, "tcp"));
        let tls = match security {
            "nbd" => false,
            "nbds" => true,
            _ => return Err(unknown(text)),
        };
        let (path, query) =
            rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let (at, name) = path.split_once('/').unwrap_or((path, ""));
        let name = decoded(name)?;
        if let ("tcp" | "qp", Some(query)) = (family, query) {
            return Err(UriError::new(format!("`{query}` means nothing with {scheme}://")));
        }
        let carrier = match family {
            "tcp" => {
                let (host, port) = host_and_port(at)?;
                Carrier::Tcp { host, port }
            }
            "qp" => {
                let (host, port) = host_and_port(at)?;
                Carrier::Qp { host, port }
            }
            "stp" => {
                let (host, port) = host_and_port(at)?;
                let udp = match query.map(|query| query.strip_prefix("udp=").ok_or(query)) {
                    None => STP_UDP_PORT,
                    Some(Ok(udp)) => port_of(udp)?,
                    Some(Err(other)) => {
                        return Err(UriError::new(format!("`{other}` is no port: udp=8181 is")));
                    }
                };
                Carrier::Stp { host, port, udp }
            }
            "unix" => {
                let path = query.and_then(|query| query.strip_prefix("socket="));
                let wrong = || {
                    UriError::new(format!("`{text}` has no path: nbd+unix:///NAME?socket=PATH has"))
                };
                Carrier::Unix { path: decoded(path.ok_or_else(wrong)?)?.into() }
            }
            _ => return Err(unknown(text)),
        };
        Ok(Self { carrier, name, tls })
    }
}

fn unknown(text: &str) -> UriError {
    UriError::new(format!(
        "`{text}` is no address of an export: nbd://HOST/NAME, nbd+unix:///NAME?socket=PATH, \
         nbd+qp://HOST/NAME and nbd+stp://HOST/NAME are, and the same with nbds for TLS"
    ))
}

fn port_of(text: &str) -> Result<u16, UriError> {
    text.parse().map_err(|_| UriError::new(format!("`{text}` is no port")))
}

fn host_and_port(text: &str) -> Result<(String, u16), UriError> {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let given = rest.strip_prefix(':').map(port_of).transpose()?;
        return Ok((host.into(), given.unwrap_or(PORT)));
    }
    let (host, given) = match text.split_once(':') {
        Some((host, given)) => (host, port_of(given)?),
        None => (text, PORT),
    };
    let host = if host.is_empty() { "localhost" } else { host };
    Ok((host.into(), given))
}

/// A part of an address with `%20` for a blank.
fn decoded(text: &str) -> Result<String, UriError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = behind;
            continue;
        }
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(value.ok_or_else(|| {
            UriError::new(format!("`{text}` has a % without two digits behind it"))
        })?);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).map_err(|_| UriError::new(format!("`{text}` is no text")))
}

/// The other way round.
struct Encoded<'a>(&'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0.as_bytes() {
            if byte.is_ascii_alphanumeric() || b"/-._~:@!,;=+".contains(&byte) {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// A host in front of a port: addresses of IPv6 have brackets.
struct Host<'a>(&'a str);

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(f, "[{}]", self.0) } else { f.write_str(self.0) }
    }
}

impl fmt::Display for ExportUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, name) = (if self.tls { "s" } else { "" }, Encoded(&self.name));
        match &self.carrier {
            Carrier::Tcp { host, port } => write!(f, "nbd{s}://{}:{port}/{name}", Host(host)),
            Carrier::Unix { path } => {
                let path = path.to_string_lossy();
                write!(f, "nbd{s}+unix:///{name}?socket={}", Encoded(&path))
            }
            Carrier::Qp { host, port } => write!(f, "nbd{s}+qp://{}:{port}/{name}", Host(host)),
            Carrier::Stp { host, port, udp } => {
                write!(f, "nbd{s}+stp://{}:{port}/{name}", Host(host))?;
                if *udp == STP_UDP_PORT { Ok(()) } else { write!(f, "?udp={udp}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood_and_written_alike() {
        let host = |host: &str| host.to_owned();
        for (text, carrier, name, tls) in [
            ("nbd://a:10809/b", Carrier::Tcp { host: host("a"), port: 10809 }, "b", false),
            ("nbds://a:1/b%20c/d", Carrier::Tcp { host: host("a"), port: 1 }, "b c/d", true),
            ("nbd://[::1]:7/", Carrier::Tcp { host: host("::1"), port: 7 }, "", false),
            (
                "nbd+unix:///b?socket=/run/x%20y",
                Carrier::Unix { path: "/run/x y".into() },
                "b",
                false,
            ),
            ("nbds+qp://10.9.0.2:5/b", Carrier::Qp { host: host("10.9.0.2"), port: 5 }, "b", true),
            ("nbd+stp://a:5/b", Carrier::Stp { host: host("a"), port: 5, udp: 8181 }, "b", false),
            (
                "nbd+stp://a:5/b?udp=4000",
                Carrier::Stp { host: host("a"), port: 5, udp: 4000 },
                "b",
                false,
            ),
        ] {
            let uri = ExportUri { carrier, name: name.into(), tls };
            assert_eq!(text.parse(), Ok(uri.clone()), "{text}");
            assert_eq!(uri.to_string(), text);
        }
    }

    #[test]
    fn what_is_left_out_is_as_usual() {
        let of = |text: &str| text.parse::<ExportUri>().unwrap().to_string();
        assert_eq!(of("nbd://a/b"), "nbd://a:10809/b");
        assert_eq!(of("nbd://"), "nbd://localhost:10809/");
        assert_eq!(of("nbd+stp://fd/?udp=8181"), "nbd+stp://fd:10809/");
        assert_eq!(of("nbds+qp://[fd00::2]/x"), "nbds+qp://[fd00::2]:10809/x");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for wrong in [
            "disk.img",
            "nbd://a:b/",
            "http://a/",
            "nbd+udp://a/",
            "nbd+unix:///b",
            "nbd+unix:///b?udp=7",
            "nbd+stp://a/b?socket=7",
            "nbd+stp://a/b?udp=x",
            "nbd+qp://a/b?udp=7",
            "nbd://a/%4",
            "nbd://a/%zz",
        ] {
            assert!(wrong.parse::<ExportUri>().is_err(), "{wrong}");
        }
    }
}
