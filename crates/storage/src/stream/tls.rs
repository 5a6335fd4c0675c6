//! TLS over another stream, for both ends (`rustls`).

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use super::Stream;
use crate::server::Input;

/// What is received at a time.
const ROOM: usize = 64 << 10;
/// More than that is not written before it is sent.
const PIECE: usize = 256 << 10;

/// The server's end of a handshake, which is made at once.
pub(crate) fn accept(
    below: Arc<dyn Stream>,
    config: &Arc<ServerConfig>,
) -> io::Result<Arc<dyn Stream>> {
    let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    TlsStream::shake_hands(below, connection.into())
}

/// The client's end of a handshake, which is made at once.
pub(crate) fn connect(
    below: Arc<dyn Stream>,
    config: &Arc<ClientConfig>,
    name: ServerName<'static>,
) -> io::Result<Arc<dyn Stream>> {
    let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    TlsStream::shake_hands(below, connection.into())
}

struct TlsStream {
    below: Arc<dyn Stream>,
    /// Held while bytes are sealed and sent, and while they are opened; not while somebody
    /// waits for more.
    connection: Mutex<Connection>,
    received: Mutex<Input>,
}

impl TlsStream {
    fn shake_hands(below: Arc<dyn Stream>, connection: Connection) -> io::Result<Arc<dyn Stream>> {
        let (connection, received) = (Mutex::new(connection), Mutex::new(Input::new(ROOM)));
        let stream = Self { below, connection, received };
        loop {
            let mut connection = stream.connection();
            stream.send(&mut connection)?;
            if !connection.is_handshaking() {
                break;
            }
            drop(connection);
            if !stream.receive()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Arc::new(stream))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, connection: &mut Connection) -> io::Result<()> {
        let mut sealed = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut sealed)?;
        }
        if sealed.is_empty() { Ok(()) } else { self.below.write(&sealed, &[]) }
    }

    /// Opens what was received until there is something to read, and waits for bytes where
    /// there are none; false at the end of what is below. What was opened before has been
    /// read: `rustls` keeps no more than it must.
    fn receive(&self) -> io::Result<bool> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        if received.bytes().is_empty() && !received.fill(&*self.below)? {
            return Ok(false);
        }
        let mut connection = self.connection();
        while !received.bytes().is_empty() {
            let count = connection.read_tls(&mut received.bytes())?;
            received.consume(count);
            let opened = connection.process_new_packets();
            // An alert says why, and other messages may have to be answered.
            self.send(&mut connection)?;
            let opened =
                opened.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if opened.plaintext_bytes_to_read() > 0 || opened.peer_has_closed() {
                break;
            }
        }
        Ok(true)
    }
}

impl Stream for TlsStream {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection().reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if !self.receive()? {
                // Without a goodbye, what came may not be all.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn write(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        let mut connection = self.connection();
        for part in [head, payload] {
            for piece in part.chunks(PIECE) {
                let mut rest = piece;
                while !rest.is_empty() {
                    let count = connection.writer().write(rest)?;
                    rest = &rest[count..];
                    self.send(&mut connection)?;
                }
            }
        }
        Ok(())
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.below.set_read_timeout(timeout)
    }

    fn shut_down(&self) {
        // Anyone who writes at the moment may wait for ever: it has no goodbye then.
        if let Ok(mut connection) = self.connection.try_lock() {
            connection.send_close_notify();
            // The other side may be gone.
            let _ = self.send(&mut connection);
        }
        self.below.shut_down();
    }
}
