//! What `nc` is to sockets, for services through shared memory: standard input goes to
//! the service, and what it answers to standard output.
//!
//! ```sh
//! mkdir -m 700 meet
//! cargo run --release -- serve echo --over clan --shared meet -v &
//! echo 'every byte has its place' | cargo run --example talk -- clan://$PWD/meet#echo
//! ```

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::thread;

use anyhow::{Context, Result};
use sockets_compat::ClanStream;

fn main() -> Result<()> {
    let address = std::env::args().nth(1).context("whom? clan:///FOLDER#SERVICE")?;
    let stream = ClanStream::connect(&address).with_context(|| address.clone())?;
    let mut incoming = stream.try_clone()?;
    thread::spawn(move || {
        let sent = send(&mut io::stdin().lock(), &stream);
        if let Err(error) = sent {
            eprintln!("talk: not all was sent: {error}");
        }
    });
    // The end of the answers is the end of it, whether all was sent or not.
    match hear(&mut incoming, &mut io::stdout().lock()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// What comes is shown when it comes, and not when a line is full.
fn hear(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            len => to.write_all(&buffer[..len])?,
        }
        to.flush()?;
    }
}

fn send(from: &mut impl Read, mut to: &ClanStream) -> io::Result<()> {
    io::copy(from, &mut to)?;
    to.flush()?;
    to.shutdown(Shutdown::Write)
}
