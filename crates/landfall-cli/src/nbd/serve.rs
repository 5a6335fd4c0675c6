//! `landfall nbd serve`: devices for any client of NBD.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use landfall::metrics::Metrics;
use landfall_storage::device::{BlockDevice, FileDevice, MemoryDevice};
use landfall_storage::server::{Offer, Server};
use landfall_transport::signals::Endings;
use serde::Serialize;

use super::target;
use crate::metrics::Exporter;
use crate::style;
use crate::transfer::options::parse_size;

const EXAMPLES: &str = "\
Examples:
  landfall nbd serve --export disk=file:disk.img          then: nbdinfo nbd://127.0.0.1/disk
  landfall nbd serve --export a=mem:1G --export b=file:/dev/vg/b --listen 0.0.0.0:10809
  landfall nbd serve --export disk=file:disk.img --read-only --unix /run/user/1000/nbd.sock
  landfall nbd serve --export disk=mem:1G --tls-certificate cert.pem --tls-key key.pem --tls-required

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
    /// Let clients come in over the kernel's TCP at this address [default: 127.0.0.1:10809, if
    /// no other way is given]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Let clients of this host come in at this path
    #[arg(long, value_name = "PATH")]
    unix: Vec<PathBuf>,
    /// Serve this many clients at a time
    #[arg(long, default_value_t = 1024)]
    clients: usize,
    #[command(flatten)]
    tls: Tls,
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

/// TLS of a server.
#[derive(Clone, Debug, clap::Args)]
struct Tls {
    /// TLS for anyone who wants it: a PEM file of the server's certificate, and of those that
    /// lead to its root
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Nobody comes in without TLS
    #[arg(long, requires = "tls_certificate")]
    tls_required: bool,
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
    let (server, ready) = start(args)?;
    announce(args, &ready, exporter.as_ref())?;
    let until = args.seconds.map(|seconds| started + Duration::from_secs(seconds));
    let ended = loop {
        if endings.wait(TICK)? {
            break "a signal";
        }
        if let Some(exporter) = &exporter {
            exporter.answer(|metrics| measure(&server, metrics));
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            break "the time is over";
        }
    };
    let clients = server.served();
    // What has begun is ended.
    drop(server);
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

fn start(args: &Args) -> Result<(Server, Ready)> {
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
    if let (Some(certificate), Some(key)) = (&args.tls.tls_certificate, &args.tls.tls_key) {
        builder = builder.tls(target::server_tls(certificate, key)?, args.tls.tls_required);
    }
    let server = builder.start()?;
    let mut listening = Vec::new();
    let usual = [SocketAddr::from(([127, 0, 0, 1], target::PORT))];
    let addresses =
        if args.listen.is_empty() && args.unix.is_empty() { &usual[..] } else { &args.listen };
    for address in addresses {
        let local =
            server.listen(address).with_context(|| format!("cannot listen at {address}"))?;
        listening.push(format!("nbd://{local}"));
    }
    for path in &args.unix {
        let told = path.display();
        server.listen_unix(path).with_context(|| format!("cannot listen at {told}"))?;
        listening.push(format!("nbd+unix:///?socket={told}"));
    }
    Ok((server, Ready { exports, listening }))
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
}
