//! [`Connector`]: how a client gets to exports.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use landfall::stp::Transport;
use landfall_services::tls;
use landfall_storage::client::{Client, Options};
use landfall_storage::rustls::pki_types::ServerName;
use landfall_storage::stream::{Stream, queue_pair_options};
pub(super) use landfall_storage::uri::Target;
use landfall_storage::uri::{Carrier, ExportUri};
use sockets_compat::{Address, Carrier as StpCarrier, QpHost, StpHost, StpOptions};

use crate::adapter::{self, LinkArgs};
use crate::endpoint::{self, SecurityArgs};
use crate::leaving;

/// How a client connects, beside the address.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ConnectArgs {
    /// For nbds://: a PEM file with the certificates that are trusted
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// For nbd+qp://: the address of this end's adapter, with the length of its prefix [default:
    /// 10.9.0.2/24 on a TAP interface or in a tunnel]
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    address: Option<String>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    security: SecurityArgs,
}

/// Connects to exports, by an adapter and an endpoint of its own where an address asks for
/// them. Dropped behind the streams, it lets their ends arrive.
pub(super) struct Connector<'a> {
    args: &'a ConnectArgs,
    queue_pairs: Option<(QpHost, std::net::IpAddr)>,
    stp: Option<StpHost>,
}

impl<'a> Connector<'a> {
    pub(super) const fn new(args: &'a ConnectArgs) -> Self {
        Self { args, queue_pairs: None, stp: None }
    }

    /// A stream to the server, and what is wanted there.
    pub(super) fn open(&mut self, uri: &ExportUri) -> Result<(Arc<dyn Stream>, Options)> {
        let mut options = Options::export(uri.name.as_str());
        if uri.tls {
            let host = uri.carrier.host();
            let Some(path) = &self.args.tls_ca else {
                bail!("nbds:// needs --tls-ca FILE, with the certificates that are trusted");
            };
            let name = ServerName::try_from(host.to_owned());
            let name = name.with_context(|| format!("`{host}` is in no certificate"))?;
            options.tls = Some((tls::trusting(path)?, name));
        }
        let stream = self.stream(&uri.carrier);
        Ok((stream.with_context(|| format!("cannot connect to {uri}"))?, options))
    }

    pub(super) fn connect(&mut self, uri: &ExportUri) -> Result<Client> {
        let (stream, options) = self.open(uri)?;
        Ok(Client::connect(stream, &options)?)
    }

    fn stream(&mut self, carrier: &Carrier) -> Result<Arc<dyn Stream>> {
        Ok(match carrier {
            Carrier::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                Arc::new(stream)
            }
            Carrier::Unix { path } => Arc::new(UnixStream::connect(path)?),
            Carrier::Qp { host, port } => {
                let (adapter, own) = self.queue_pairs()?;
                let alike = |at: &SocketAddr| at.is_ipv4() == own.is_ipv4();
                let at = (host.as_str(), *port).to_socket_addrs()?.find(alike);
                let at = at.with_context(|| format!("{host} has no address like {own}"))?;
                ensure!(
                    at.ip() != own,
                    "{own} is the address of this end: give it another one with --address"
                );
                ends_with_signals(Arc::new(adapter.connect(at)?))
            }
            Carrier::Stp { host, port, udp } => {
                let at = (host.as_str(), *udp).to_socket_addrs()?.next();
                let at = at.with_context(|| format!("{host} has no address"))?;
                let carrier = StpCarrier::Udp(*udp);
                let address = Address::Stp { host: at.ip(), port: *port, carrier };
                ends_with_signals(Arc::new(self.stp(at)?.connect_stream(address)?))
            }
            _ => bail!("that is not known here"),
        })
    }

    fn queue_pairs(&mut self) -> Result<(QpHost, std::net::IpAddr)> {
        if let Some(open) = &self.queue_pairs {
            return Ok(open.clone());
        }
        let (adapter, own) = self.args.link.open(self.args.address.as_deref())?;
        let host = QpHost::new(adapter.clone(), queue_pair_options())?;
        leaving::before_signals_end_it(move || adapter::see_off(&adapter));
        Ok(self.queue_pairs.insert((host, own)).clone())
    }

    fn stp(&mut self, peer: SocketAddr) -> Result<&StpHost> {
        if self.stp.is_none() {
            let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let endpoint = self.args.security.bind(Transport::udp(any.parse()?))?;
            let closing = endpoint.clone();
            leaving::before_signals_end_it(move || endpoint::see_off(&closing));
            self.stp = Some(StpHost::new(endpoint, StpOptions::default()));
        }
        self.stp.as_ref().context("it was opened above")
    }
}

/// No kernel tells a server of the family that its client was ended.
fn ends_with_signals(stream: Arc<dyn Stream>) -> Arc<dyn Stream> {
    let ended = Arc::downgrade(&stream);
    leaving::before_signals_end_it(move || {
        if let Some(stream) = ended.upgrade() {
            stream.shut_down();
        }
    });
    stream
}

impl Drop for Connector<'_> {
    fn drop(&mut self) {
        if let Some((host, _)) = &self.queue_pairs {
            adapter::see_off(host.adapter());
        }
        if let Some(host) = &self.stp {
            endpoint::see_off(host.endpoint());
        }
    }
}
