//! [`Target`]: what is at the other end of an address.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use landfall_storage::client::{Client, Options};
use landfall_storage::rustls::pki_types::pem::PemObject;
use landfall_storage::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use landfall_storage::rustls::{ClientConfig, RootCertStore, ServerConfig};
use landfall_storage::stream::Stream;

/// The port of NBD.
pub(super) const PORT: u16 = 10809;

/// How a client connects, beside the address.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct ConnectArgs {
    /// For nbds://: a PEM file with the certificates that are trusted
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

/// A server and the name of an export, or a file of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Tcp { host: String, port: u16, name: String, tls: bool },
    Unix { path: PathBuf, name: String },
    File(PathBuf),
}

impl Target {
    /// Understands an address: `nbd://HOST:PORT/NAME`, the same with `nbds`,
    /// `nbd+unix:///NAME?socket=PATH`, or a path.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::File(text.into()));
        };
        match scheme {
            "nbd" | "nbds" => {
                let (at, name) = rest.split_once('/').unwrap_or((rest, ""));
                let (host, port) = host_and_port(at)?;
                Ok(Self::Tcp { host, port, name: decoded(name)?, tls: scheme == "nbds" })
            }
            "nbd+unix" => {
                let wrong = || format!("`{text}` has no path: nbd+unix:///NAME?socket=PATH would");
                let (name, path) = rest.split_once("?socket=").ok_or_else(wrong)?;
                let name = decoded(name.strip_prefix('/').unwrap_or(name))?;
                Ok(Self::Unix { path: decoded(path)?.into(), name })
            }
            other => {
                Err(format!("{other}:// is not known here; nbd://, nbds:// and nbd+unix:// are"))
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Tcp { name, .. } | Self::Unix { name, .. } => name,
            Self::File(_) => "",
        }
    }

    /// A stream to the server, and what is wanted there.
    pub(super) fn open(&self, how: &ConnectArgs) -> Result<(Arc<dyn Stream>, Options)> {
        let mut options = Options::export(self.name());
        let stream: Arc<dyn Stream> = match self {
            Self::Tcp { host, port, tls, .. } => {
                if *tls {
                    options.tls = Some(client_tls(host, how)?);
                }
                let stream = TcpStream::connect((host.as_str(), *port))
                    .with_context(|| format!("cannot connect to {host}, port {port}"))?;
                stream.set_nodelay(true)?;
                Arc::new(stream)
            }
            Self::Unix { path, .. } => {
                let told = path.display();
                let stream = UnixStream::connect(path);
                Arc::new(stream.with_context(|| format!("cannot connect to {told}"))?)
            }
            Self::File(path) => {
                bail!("{} is a file: nbd://HOST/NAME is an export", path.display())
            }
        };
        Ok((stream, options))
    }

    pub(super) fn connect(&self, how: &ConnectArgs) -> Result<Client> {
        let (stream, options) = self.open(how)?;
        Ok(Client::connect(stream, &options)?)
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let port = |port: &str| port.parse().map_err(|_| format!("`{port}` is no port"));
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let given = rest.strip_prefix(':').map(port).transpose()?;
        return Ok((host.into(), given.unwrap_or(PORT)));
    }
    let (host, given) = match text.split_once(':') {
        Some((host, given)) => (host, port(given)?),
        None => (text, PORT),
    };
    let host = if host.is_empty() { "localhost" } else { host };
    Ok((host.into(), given))
}

/// A part of an address with `%20` for a blank.
fn decoded(text: &str) -> Result<String, String> {
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
        bytes.push(value.ok_or_else(|| format!("`{text}` has a % without two digits behind it"))?);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("`{text}` is no text"))
}

fn client_tls(host: &str, how: &ConnectArgs) -> Result<(Arc<ClientConfig>, ServerName<'static>)> {
    let Some(path) = &how.tls_ca else {
        bail!("nbds:// needs --tls-ca FILE, with the certificates that are trusted");
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(host.to_owned());
    Ok((Arc::new(config), name.with_context(|| format!("`{host}` is in no certificate"))?))
}

/// What a server needs for TLS.
pub(super) fn server_tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read a key from {}", key.display()))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    Ok(Arc::new(config.context("certificate and key do not fit together")?))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let cannot = || format!("cannot read certificates from {}", path.display());
    let all = CertificateDer::pem_file_iter(path).with_context(cannot)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().with_context(cannot)?;
    if all.is_empty() {
        bail!("{} has no certificate", path.display());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood() {
        let tcp = |host: &str, port, name: &str, tls| {
            Ok(Target::Tcp { host: host.into(), port, name: name.into(), tls })
        };
        assert_eq!(Target::parse("nbd://a/b"), tcp("a", 10809, "b", false));
        assert_eq!(Target::parse("nbds://a:1/b%20c/d"), tcp("a", 1, "b c/d", true));
        assert_eq!(Target::parse("nbd://[::1]:7"), tcp("::1", 7, "", false));
        assert_eq!(Target::parse("nbd://"), tcp("localhost", 10809, "", false));
        let unix = Target::Unix { path: "/run/x y".into(), name: "b".into() };
        assert_eq!(Target::parse("nbd+unix:///b?socket=/run/x%20y"), Ok(unix));
        assert_eq!(Target::parse("disk.img"), Ok(Target::File("disk.img".into())));
        for wrong in ["nbd://a:b/", "http://a/", "nbd+unix:///b", "nbd://a/%4", "nbd://a/%zz"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }
}
