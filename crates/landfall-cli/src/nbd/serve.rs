//! `landfall nbd serve`: devices for any client of NBD.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::metrics::Metrics;
use landfall::qpip::Adapter;
use landfall::stp::{Endpoint, Transport};
use landfall_storage::device::{BlockDevice, FileDevice, MemoryDevice};
use landfall_storage::server::{Offer, Server};
use landfall_storage::uri::{Carrier, ExportUri, PORT};
use landfall_transport::signals::Endings;
use serde::Serialize;
use sockets_compat::{Address, Carrier as StpCarrier, QpHost, QpOptions, StpHost, StpOptions};

use crate::adapter::{self, LinkArgs};
use crate::endpoint::{self, SecurityArgs};
use crate::metrics::Exporter;
use crate::proxy::End;
use crate::serve::tasks::TlsArgs;
use crate::style;
use crate::transfer::options::parse_size;

const EXAMPLES: &str = "\
Examples:
  landfall nbd serve --export disk=file:disk.img          then: nbdinfo nbd://127.0.0.1/disk
  landfall nbd serve --export a=mem:1G --export b=file:/dev/vg/b --listen 0.0.0.0:10809
  landfall nbd serve --export disk=file:disk.img --read-only --unix /run/user/1000/nbd.sock
  landfall nbd serve --export disk=mem:1G --tls-cert cert.pem --tls-key key.pem --tls-required
  sudo landfall nbd serve --export disk=mem:1G --listen qp://10.9.0.2:10809     then: nbdinfo nbd://10.9.0.2/disk
  landfall nbd serve --export disk=mem:1G --listen stp://0.0.0.0:10809     for landfall nbd copy and its like

A file is as large as it is: `truncate -s 10G disk.img` makes one. A flush and a request with
FUA return when the data is on the medium (fdatasync); what is only written may be in the
page cache. Memory is gone when the server ends.

It runs until SIGINT or SIGTERM (or for as long as --seconds says): requests that have begun
are ended, and clients are told.";

/// Options of `landfall nbd serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Offer this under that name: file:PATH, for a file or a block device, or mem:SIZE. May
    /// be given several times
    #[arg(long, value_name = "NAME=file:PATH|mem:SIZE", required = true, value_parser = Export::parse)]
    export: Vec<Export>,
    /// Nobody writes
    #[arg(long)]
    read_only: bool,
    /// Let clients come in here: at ADDRESS:PORT over the kernel's TCP, at qp://ADDRESS:PORT over
    /// queue pairs, at stp://ADDRESS:PORT[/udp/PORT] over STP. May be given several times [default:
    /// 127.0.0.1:10809, if no other way is given]
    #[arg(long, value_name = "[qp://|stp://]ADDRESS:PORT")]
    listen: Vec<Listen>,
    /// Let clients of this host come in at this path
    #[arg(long, value_name = "PATH")]
    unix: Vec<PathBuf>,
    /// Serve this many clients at a time
    #[arg(long, default_value_t = 1024)]
    clients: usize,
    #[command(flatten)]
    tls: TlsArgs,
    /// Nobody comes in without TLS
    #[arg(long)]
    tls_required: bool,
    /// The address of the adapter, with the length of its prefix [default: that of --listen
    /// qp://…, with 24 or 64 bits]
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    address: Option<String>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    security: SecurityArgs,
    /// Tell Prometheus what is counted: HTTP at this address, /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// End by itself after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// A line for each client
    #[arg(short, long)]
    verbose: bool,
    /// One JSON object when it is ready, and one at the end; what is said meanwhile goes to
    /// stderr
    #[arg(long)]
    json: bool,
}

/// Where clients come in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Listen {
    Kernel(SocketAddr),
    QueuePair(SocketAddr),
    Stp { at: IpAddr, port: u16, carrier: StpCarrier },
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.starts_with("stp://") {
            return Ok(match text.parse::<End>()? {
                End::Kernel(at) => Self::Kernel(at),
                End::QueuePair(at) => Self::QueuePair(at),
            });
        }
        match text.parse() {
            Ok(Address::Stp { host, port, carrier }) => Ok(Self::Stp { at: host, port, carrier }),
            Ok(_) => Err(format!("`{text}` is no address of STP")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Export {
    name: String,
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Memory(u64),
}

impl Export {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no export: NAME=file:PATH or NAME=mem:SIZE would be");
        let (name, source) = text.split_once('=').ok_or_else(wrong)?;
        let source = match source.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Source::File(path.into()),
            Some(("mem", size)) => Source::Memory(parse_size(size)?),
            _ => return Err(wrong()),
        };
        Ok(Self { name: name.into(), source })
    }

    fn offer(&self, read_only: bool) -> Result<(Offer, Offered)> {
        let (device, source): (Arc<dyn BlockDevice>, _) = match &self.source {
            Source::File(path) => {
                let opened = FileDevice::open(path, read_only);
                let device = opened.with_context(|| format!("cannot open {}", path.display()))?;
                (Arc::new(device), path.display().to_string())
            }
            Source::Memory(size) => {
                (Arc::new(MemoryDevice::new(*size)), format!("{} of memory", style::bytes(*size)))
            }
        };
        let offered =
            Offered { name: self.name.clone(), size: device.size(), source: source.clone() };
        let offer = Offer::shared(self.name.as_str(), device).read_only(read_only);
        Ok((offer.description(source), offered))
    }
}

#[derive(Clone, Debug, Serialize)]
struct Offered {
    name: String,
    size: u64,
    source: String,
}

/// What is said when clients can come.
#[derive(Debug, Serialize)]
struct Ready {
    exports: Vec<Offered>,
    listening: Vec<String>,
    /// Where other queue pairs send frames to, if that is a tunnel.
    tunnel: Option<SocketAddr>,
    /// What the endpoint of STP proves itself by.
    key: Option<String>,
}

#[derive(Debug, Serialize)]
struct Summary {
    clients: u64,
    seconds: f64,
    ended: &'static str,
}

/// How often it looks whether it shall end.
const TICK: Duration = Duration::from_millis(200);

/// Serves until it is told to end.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    let started = Instant::now();
    let exporter = args.metrics.map(Exporter::listen).transpose()?;
    let Serving { server, adapter, endpoints, ready } = start(args)?;
    announce(args, &ready, exporter.as_ref())?;
    let until = args.seconds.map(|seconds| started + Duration::from_secs(seconds));
    let ended = loop {
        if endings.wait(TICK)? {
            break "a signal";
        }
        if let Some(exporter) = &exporter {
            exporter.answer(|metrics| {
                measure(&server, metrics);
                if let Some(adapter) = &adapter {
                    metrics.add(&[], &adapter.stats());
                    metrics.add(&[], &adapter.refusals());
                }
                for endpoint in &endpoints {
                    metrics.add(&[], &endpoint.stats());
                }
            });
        }
        if let Some(why) = adapter.iter().find_map(adapter::broken) {
            bail!("the link broke: {why}");
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            break "the time is over";
        }
    };
    let clients = server.served();
    // What has begun is ended.
    drop(server);
    adapter.iter().for_each(adapter::see_off);
    endpoints.iter().for_each(endpoint::see_off);
    let summary = Summary { clients, seconds: started.elapsed().as_secs_f64(), ended };
    if args.json {
        style::print_json(&summary)?;
    } else {
        let Summary { clients, seconds, ended } = summary;
        style::print(&format!("ended after {seconds:.1} s: {ended}; {clients} clients\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(server: &Server, metrics: &mut Metrics) {
    let here = server.clients() as u64;
    metrics.gauge("landfall_nbd_clients", "Clients that are here", &[], here);
    let help = "Clients that have been here, the present ones among them";
    metrics.counter("landfall_nbd_clients", help, &[], server.served());
    metrics.counters("nbd", &[], server.stats().counters());
}

/// A server that clients can come to, and what carries them.
struct Serving {
    server: Server,
    adapter: Option<Adapter>,
    endpoints: Vec<Endpoint>,
    ready: Ready,
}

fn start(args: &Args) -> Result<Serving> {
    let mut builder = Server::builder().clients(args.clients);
    let mut exports = Vec::new();
    for export in &args.export {
        let (offer, offered) = export.offer(args.read_only)?;
        builder = builder.offer(offer);
        exports.push(offered);
    }
    if args.verbose {
        builder = builder.log(|line| eprintln!("{}", crate::printable::printable_lines(line)));
    }
    let names = args.listen.iter().map(|listen| listen.ip().to_string());
    match args.tls.config(names.chain(["localhost".to_owned()]))? {
        Some(config) => builder = builder.tls(config, args.tls_required),
        None if args.tls_required => bail!("--tls-required needs --tls-cert or --tls-self-signed"),
        None => {}
    }
    let ready = Ready { exports, listening: Vec::new(), tunnel: None, key: None };
    let server = builder.start()?;
    let mut serving = Serving { server, adapter: None, endpoints: Vec::new(), ready };
    serving.listen(args)?;
    for path in &args.unix {
        let told = path.display();
        serving.server.listen_unix(path).with_context(|| format!("cannot listen at {told}"))?;
        serving.tell(args, Carrier::Unix { path: path.clone() });
    }
    Ok(serving)
}

impl Listen {
    const fn ip(&self) -> IpAddr {
        match self {
            Self::Kernel(at) | Self::QueuePair(at) => at.ip(),
            Self::Stp { at, .. } => *at,
        }
    }
}

impl Serving {
    fn listen(&mut self, args: &Args) -> Result<()> {
        let usual = [Listen::Kernel(SocketAddr::from(([127, 0, 0, 1], PORT)))];
        let is_usual = args.listen.is_empty() && args.unix.is_empty();
        let mut sockets = None;
        for listen in if is_usual { &usual[..] } else { &args.listen } {
            let carrier = match listen {
                Listen::Kernel(at) => {
                    let local = self.server.listen(at);
                    let local = local.with_context(|| format!("cannot listen at {at}"))?;
                    Carrier::Tcp { host: local.ip().to_string(), port: local.port() }
                }
                Listen::QueuePair(at) => {
                    let host = match &sockets {
                        Some(host) => host,
                        None => sockets.insert(self.open_adapter(args, *at)?),
                    };
                    let local = self.server.listen_qp(host, *at);
                    let local = local.with_context(|| format!("cannot listen at qp://{at}"))?;
                    let port = local.port().unwrap_or(at.port());
                    Carrier::Qp { host: at.ip().to_string(), port }
                }
                Listen::Stp { at, port, carrier } => self.listen_stp(args, *at, *port, *carrier)?,
            };
            self.tell(args, carrier);
        }
        if self.adapter.is_none()
            && let Some(option) = args.link.first_given()
        {
            bail!("{option} means nothing here: leave it out, or add --listen qp://ADDRESS:PORT");
        }
        Ok(())
    }

    fn open_adapter(&mut self, args: &Args, at: SocketAddr) -> Result<QpHost> {
        let address = args.address.clone().unwrap_or_else(|| adapter::listening_at(at));
        let (adapter, _) = args.link.open(Some(&address))?;
        self.ready.tunnel = adapter.links().into_iter().find_map(|link| link.tunnel_address);
        self.adapter = Some(adapter.clone());
        Ok(QpHost::new(adapter, QpOptions::default())?)
    }

    fn listen_stp(
        &mut self,
        args: &Args,
        at: IpAddr,
        port: u16,
        carrier: StpCarrier,
    ) -> Result<Carrier> {
        let StpCarrier::Udp(udp) = carrier else {
            bail!("stp://…/ip is not served: leave /ip out, and it is UDP");
        };
        let endpoint = args.security.bind(Transport::udp(SocketAddr::new(at, udp)))?;
        self.ready.key = endpoint.fingerprint().map(|key| key.to_string());
        let host = StpHost::new(endpoint.clone(), StpOptions::default());
        let local = self.server.listen_stp(&host, port);
        let local = local.with_context(|| format!("cannot listen at STP port {port}"))?;
        self.endpoints.push(endpoint);
        let Address::Stp { port, carrier: StpCarrier::Udp(udp), .. } = local else {
            bail!("{local} is no address of STP over UDP");
        };
        Ok(Carrier::Stp { host: at.to_string(), port, udp })
    }

    /// Clients can come in this way.
    fn tell(&mut self, args: &Args, carrier: Carrier) {
        let uri = ExportUri { carrier, name: String::new(), tls: args.tls_required };
        self.ready.listening.push(uri.to_string());
    }
}

fn announce(args: &Args, ready: &Ready, exporter: Option<&Exporter>) -> Result<()> {
    if let Some(exporter) = exporter {
        eprintln!("{}", exporter.describe());
    }
    if args.json {
        // In one line: anyone who waits for it reads lines.
        return Ok(style::print(&format!("{}\n", serde_json::to_string(ready)?))?);
    }
    let mut text = String::new();
    for Offered { name, size, source } in &ready.exports {
        text += &format!("export `{name}`: {}, {source}\n", style::bytes(*size));
    }
    for address in &ready.listening {
        text += &format!("serving at {address}\n");
    }
    if let Some(tunnel) = ready.tunnel {
        text += &format!("queue pairs by a tunnel at {tunnel}\n");
    }
    if let Some(key) = &ready.key {
        text += &format!("key of STP {key}\n");
    }
    Ok(style::print(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_a_name_and_a_source() {
        let export = |text: &str| Export::parse(text);
        let file = Source::File("a=b:c.img".into());
        assert_eq!(export("x=file:a=b:c.img").unwrap(), Export { name: "x".into(), source: file });
        let memory = Export { name: String::new(), source: Source::Memory(1 << 30) };
        assert_eq!(export("=mem:1G").unwrap(), memory);
        for wrong in ["x", "x=", "x=file:", "x=disk:1", "x=mem:much"] {
            assert!(export(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn clients_come_in_over_tcp_queue_pairs_and_stp() {
        let at = "10.9.0.2:7".parse().unwrap();
        assert_eq!("10.9.0.2:7".parse(), Ok(Listen::Kernel(at)));
        assert_eq!("qp://10.9.0.2:7".parse(), Ok(Listen::QueuePair(at)));
        let stp = |udp| Listen::Stp { at: at.ip(), port: 7, carrier: StpCarrier::Udp(udp) };
        assert_eq!("stp://10.9.0.2:7".parse(), Ok(stp(8181)));
        assert_eq!("stp://10.9.0.2:7/udp/4000".parse(), Ok(stp(4000)));
        for wrong in ["10.9.0.2", "stp://10.9.0.2", "clan://10.9.0.2:7", "stp://x:7"] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }
}
