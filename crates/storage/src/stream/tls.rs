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
/// How long the last words may wait until there is room for them.
const GOODBYE: Duration = Duration::from_secs(1);

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

/// A reader never waits for a writer, who may wait until the other side reads: neither to open
/// what came, nor to send anything. So both sides can write at once, whatever the room between
/// them.
struct TlsStream {
    below: Arc<dyn Stream>,
    /// Held while bytes are sealed and while they are opened; never while somebody waits for
    /// the stream below.
    connection: Mutex<Connection>,
    /// Anyone who sends holds it from sealing to the last byte: records leave in the order of
    /// their numbers.
    sending: Mutex<()>,
    received: Mutex<Input>,
}

impl TlsStream {
    fn shake_hands(below: Arc<dyn Stream>, connection: Connection) -> io::Result<Arc<dyn Stream>> {
        let (connection, received) = (Mutex::new(connection), Mutex::new(Input::new(ROOM)));
        let stream = Self { below, connection, sending: Mutex::new(()), received };
        loop {
            stream.send(&stream.sending())?;
            if !stream.connection().is_handshaking() {
                break;
            }
            if !stream.receive()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Arc::new(stream))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sending(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends all that is sealed.
    fn send(&self, _sending: &MutexGuard<'_, ()>) -> io::Result<()> {
        let mut sealed = Vec::new();
        let mut connection = self.connection();
        while connection.wants_write() {
            connection.write_tls(&mut sealed)?;
        }
        drop(connection);
        if sealed.is_empty() { Ok(()) } else { self.below.write(&sealed, &[]) }
    }

    /// Opens what was received until there is something to read, and waits for bytes where
    /// there are none; false at the end of what is below. What was opened before has been
    /// read: `rustls` keeps no more than it must.
    ///
    /// What has to be answered (a new key of the other side) is answered with the next write, as
    /// RFC 8446 section 4.6.3 allows: who reads would wait here for who reads there.
    fn receive(&self) -> io::Result<bool> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        if received.bytes().is_empty() && !received.fill(&*self.below)? {
            return Ok(false);
        }
        let mut connection = self.connection();
        while !received.bytes().is_empty() {
            let count = connection.read_tls(&mut received.bytes())?;
            received.consume(count);
            match connection.process_new_packets() {
                Ok(opened) => {
                    if opened.plaintext_bytes_to_read() > 0 || opened.peer_has_closed() {
                        break;
                    }
                }
                Err(error) => {
                    drop(connection);
                    // An alert says why.
                    self.send_last(|_| {});
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
        Ok(true)
    }

    /// Sends what is sealed, and what `more` adds, if nobody sends at the moment: anyone who does
    /// may wait for ever for a side that has stopped reading.
    fn send_last(&self, more: impl FnOnce(&mut Connection)) {
        let Ok(sending) = self.sending.try_lock() else { return };
        more(&mut self.connection());
        // The other side may be gone.
        let _ = self.below.set_write_timeout(Some(GOODBYE));
        let _ = self.send(&sending);
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
        let sending = self.sending();
        for part in [head, payload] {
            let mut rest = part;
            while !rest.is_empty() {
                // `rustls` takes no more than it has room for.
                let piece = &rest[..rest.len().min(PIECE)];
                let count = self.connection().writer().write(piece)?;
                if count == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                rest = &rest[count..];
                self.send(&sending)?;
            }
        }
        Ok(())
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.below.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.below.set_write_timeout(timeout)
    }

    fn shut_down(&self) {
        self.send_last(|connection| connection.send_close_notify());
        self.below.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;

    use rustix::net::sockopt::set_socket_send_buffer_size;
    use rustls::RootCertStore;
    use rustls::pki_types::PrivateKeyDer;

    use super::*;

    /// Long for whatever a test waits for.
    const LIMIT: Duration = Duration::from_secs(60);

    /// Both ends of a stream with room for a few kilobytes in the middle.
    fn pair() -> [Arc<dyn Stream>; 2] {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let server = ServerConfig::builder().with_no_client_auth();
        let server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        for end in [&near, &far] {
            set_socket_send_buffer_size(end, 4096).unwrap();
        }
        let accepting = thread::spawn(move || accept(Arc::new(far), &Arc::new(server)));
        let name = ServerName::try_from("localhost").unwrap();
        let near = connect(Arc::new(near), &Arc::new(client), name).unwrap();
        [near, accepting.join().unwrap().unwrap()]
    }

    fn bytes(number: usize) -> Vec<u8> {
        (0..4_usize << 20).map(|at| (at * 7 + at / 4099 + number * 13) as u8).collect()
    }

    #[test]
    fn both_sides_write_at_once_through_little_room() {
        let (done, heard) = mpsc::channel();
        let ends = pair();
        for (number, end) in ends.iter().enumerate() {
            let (writer, reader, done) = (Arc::clone(end), Arc::clone(end), done.clone());
            thread::spawn(move || writer.write(b"head", &bytes(number)).unwrap());
            thread::spawn(move || {
                let mut came = vec![0; 4 + (4 << 20)];
                let mut rest = &mut came[..];
                while !rest.is_empty() {
                    let count = reader.read(rest).unwrap();
                    rest = &mut rest[count..];
                }
                done.send(came[4..] == bytes(1 - number)).unwrap();
            });
        }
        for _ in &ends {
            let same = heard.recv_timeout(LIMIT);
            assert_eq!(same, Ok(true), "each side waits until the other reads");
        }
    }

    #[test]
    fn a_goodbye_does_not_wait_for_a_side_that_does_not_read() {
        let [near, far] = pair();
        near.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        // As much as there is room for, and no more.
        while near.write(&[7; 1000], &[]).is_ok() {}
        let (done, heard) = mpsc::channel();
        thread::spawn(move || {
            near.shut_down();
            done.send(()).unwrap();
        });
        assert_eq!(heard.recv_timeout(LIMIT), Ok(()));
        drop(far);
    }
}
