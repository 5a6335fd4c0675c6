//! Clients that take what they can get and give nothing back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::Scope;
use std::time::Duration;

use socket2::SockRef;

use super::{BAD, Scene};

const REQUEST: &[u8] = b"GET /long.bin HTTP/1.1\r\nHost: x\r\n\r\n";
/// Of each kind at a time: more than one source may have.
const EACH: usize = 60;

/// What a client does on its connections.
#[derive(Clone, Copy)]
enum Kind {
    /// It asks, and never reads.
    Deaf,
    /// It asks, and reads a byte a second.
    Sipping,
    /// It says a letter at a time, and never ends its request.
    Endless,
    /// It asks, reads a little, and resets the connection; and again.
    Resetting,
}

/// All kinds, each from a source of its own.
pub(super) fn start<'scope>(scope: &'scope Scope<'scope, '_>, scene: &'scope Scene) {
    let kinds = [Kind::Deaf, Kind::Sipping, Kind::Endless, Kind::Resetting];
    for (kind, from) in kinds.into_iter().zip(BAD) {
        scope.spawn(move || {
            let mut streams = Vec::new();
            while !scene.is_over() {
                // Some are not let in: that is what bounds are for.
                while streams.len() < EACH
                    && let Ok(stream) = scene.connect(from, Some(4096))
                {
                    if begin(kind, &stream).is_ok() {
                        streams.push(stream);
                    }
                    if scene.is_over() {
                        return;
                    }
                }
                streams.retain(|stream| go_on(kind, stream).is_ok());
                let time = if matches!(kind, Kind::Resetting) { 20 } else { 1000 };
                scene.pause(Duration::from_millis(time));
            }
        });
    }
}

fn begin(kind: Kind, mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(1)))?;
    match kind {
        Kind::Endless => stream.write_all(b"GET /long.bin HTTP/1.1\r\nHost: x\r\nX-"),
        Kind::Deaf | Kind::Sipping | Kind::Resetting => stream.write_all(REQUEST),
    }
}

/// What it does once a second; an error where its connection is over.
fn go_on(kind: Kind, mut stream: &TcpStream) -> std::io::Result<()> {
    let over = || std::io::ErrorKind::ConnectionAborted.into();
    match kind {
        // It writes, for else it would not hear that it was given up.
        Kind::Deaf | Kind::Endless => stream.write_all(b"a"),
        Kind::Sipping => match stream.read(&mut [0]) {
            Ok(0) => Err(over()),
            Err(why) if why.kind() != std::io::ErrorKind::WouldBlock => Err(why),
            _ => Ok(()),
        },
        Kind::Resetting => {
            // Nothing may be there yet.
            let _ = stream.read(&mut [0; 1000]);
            SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
            Err(over())
        }
    }
}
