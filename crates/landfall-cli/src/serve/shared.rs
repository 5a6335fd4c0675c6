//! The services over CLAN within this host: byte streams through memory that both
//! processes have, found by a name in a folder. No kernel sees a byte of them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use anyhow::{Context, Result};
use sockets_compat::{Address, ClanListener, ClanStream, Name};

use super::ledger::{Ledger, parting};
use super::{Args, PERIOD, Service, TICK, characters};

/// What is taken from a client, or sent to it, at once.
const PART: usize = 64 << 10;
/// Characters that are sent at once: whole periods.
const LETTERS: usize = 8 * PERIOD;

pub(super) fn serve(args: &Args, ledger: &Arc<Ledger>) -> Result<()> {
    let folder = args.shared.as_deref().context("--shared is missing")?;
    let folder = folder.canonicalize().with_context(|| {
        format!("--shared {}: make it, for those only who may meet there", folder.display())
    })?;
    let name = Some(Name::new(args.service.name())?);
    let address = Address::Clan { folder, name };
    let listener = ClanListener::bind(&address).with_context(|| format!("{address}"))?;
    listener.set_accept_timeout(Some(TICK))?;
    ledger.ready(format_args!("{} on shared memory, at {address}", args.service.name()))?;
    thread::scope(|scope| {
        let outcome = receive(scope, &listener, args, ledger);
        // Those who are still there hear that it is over.
        ledger.end();
        outcome
    })
}

/// A thread for each client, until the server shall end.
fn receive<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    listener: &ClanListener,
    args: &Args,
    ledger: &'env Ledger,
) -> Result<()> {
    let mut clients = Vec::new();
    let mut came = 0;
    while !ledger.is_over() {
        ledger.answer_scrape(|_| {});
        let accepted = listener.accept();
        clients.retain(|client: &ScopedJoinHandle<'_, _>| !client.is_finished());
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_no_news(&error) => continue,
            Err(error) => return Err(error).context("nobody can come any more"),
        };
        came += 1;
        if clients.len() >= usize::from(args.clients) {
            drop(stream);
            ledger.client_turned_away(format_args!("client {came}"))?;
            continue;
        }
        let moved = [AtomicU64::new(0), AtomicU64::new(0)];
        let client = Client { stream, service: args.service, ledger, moved };
        let thread = thread::Builder::new().name("landfall-client".into());
        clients.push(thread.spawn_scoped(scope, move || client.serve(came))?);
    }
    Ok(())
}

/// Nothing came, or nothing could go, for as long as one waits.
fn is_no_news(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

struct Client<'a> {
    stream: ClanStream,
    service: Service,
    ledger: &'a Ledger,
    /// Bytes that came and bytes that went.
    moved: [AtomicU64; 2],
}

impl Client<'_> {
    /// Until the client has gone, or the server shall end.
    fn serve(&self, number: u64) -> Result<()> {
        let name = format!("client {number}");
        self.ledger.client_came(&name)?;
        let how = match self.converse() {
            Ok(()) if self.ledger.is_over() => "the server ended".to_owned(),
            Ok(()) => "finished".to_owned(),
            Err(error) => error.to_string(),
        };
        let [received, sent] = [0, 1].map(|way| self.moved[way].load(Ordering::Relaxed));
        self.ledger.client_gone(name, parting(received, sent, how))
    }

    fn converse(&self) -> io::Result<()> {
        // Nobody who is silent keeps the server from ending.
        self.stream.set_read_timeout(Some(TICK))?;
        self.stream.set_write_timeout(Some(TICK))?;
        match self.service {
            Service::Echo => self.hear(|bytes| self.say(bytes))?,
            Service::Discard => self.hear(|_| Ok(true))?,
            Service::Source => self.send_characters()?,
        }
        match self.stream.shutdown(Shutdown::Write) {
            // Anyone who has gone needs not be told, and nobody waits for one who does not read.
            Err(error) if has_gone(&error) || is_no_news(&error) => Ok(()),
            other => other,
        }
    }

    /// Hands over what comes, until that was all, or until nobody wants more of it.
    fn hear(&self, mut each: impl FnMut(&[u8]) -> io::Result<bool>) -> io::Result<()> {
        let mut buffer = vec![0; PART];
        while !self.ledger.is_over() {
            match (&self.stream).read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => {
                    self.count(len as u64, 0);
                    if !each(&buffer[..len])? {
                        break;
                    }
                }
                Err(error) if is_no_news(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends all of it; false if the server ended meanwhile.
    fn say(&self, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            if self.ledger.is_over() {
                return Ok(false);
            }
            match (&self.stream).write(bytes) {
                Ok(len) => {
                    self.count(0, len as u64);
                    bytes = &bytes[len..];
                }
                Err(error) if is_no_news(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends without end, to a client that may send, too: that is thrown away.
    fn send_characters(&self) -> io::Result<()> {
        let letters = characters(LETTERS);
        thread::scope(|scope| {
            let listening = || {
                // How the client ends shows where characters are sent.
                let _ = self.hear(|_| Ok(true));
            };
            thread::Builder::new().name("landfall-client".into()).spawn_scoped(scope, listening)?;
            let outcome = loop {
                match self.say(&letters) {
                    Ok(true) => {}
                    // Anyone who has seen enough goes, and that is how this service ends.
                    Err(error) if has_gone(&error) => break Ok(()),
                    other => break other.map(drop),
                }
            };
            // Then nobody listens any more, either.
            self.stream.shutdown(Shutdown::Read)?;
            outcome
        })
    }

    fn count(&self, received: u64, sent: u64) {
        self.moved[0].fetch_add(received, Ordering::Relaxed);
        self.moved[1].fetch_add(sent, Ordering::Relaxed);
        self.ledger.moved(received, sent);
    }
}

/// The client took no more.
fn has_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof
    )
}
