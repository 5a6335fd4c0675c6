//! Explicit requests: a socket of Unix by which programs ask for a fast stream and hear how it
//! stands, as the paper's `ioctl` did.
//!
//! A connection is a request. Its first line is `ask` and a station, by its address
//! (`02:00:00:00:00:01`) or by that of a neighbour over IPv4; what comes back are lines, one
//! whenever the answer has changed:
//!
//! | line | what it means |
//! | --- | --- |
//! | `asked` | no answer yet |
//! | `fast` | granted, and renewed as long as the connection stands |
//! | `slow` or `slow 3` | refused for now; this many get their turn before |
//! | `no gate` | the station does not answer: nothing is throttled |
//! | `error …` | the request cannot be understood, or there are too many |
//!
//! When the connection ends, so does the transfer.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use landfall_placement::Instant;
use landfall_transport::driver::Interest;
use spec_defrag::admission::{Answer, Mac, TransferId};

use super::admission::Admission;
use super::lower::neighbour;

/// More connections wait until others end.
const MOST_CLIENTS: usize = 32;
/// The longest line of a request.
const LONGEST: usize = 64;

/// The socket, and who asks.
#[derive(Debug)]
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The interface whose neighbours can be asked.
    interface: String,
    clients: Vec<Client>,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    line: Vec<u8>,
    asked: Option<(Mac, TransferId)>,
    told: String,
}

impl ControlSocket {
    /// Listens at this path, for the user alone. What one that was killed has left is replaced.
    pub(super) fn bind(path: &Path, interface: &str) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
                fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        let socket = Self {
            listener,
            path: path.to_owned(),
            interface: interface.to_owned(),
            clients: Vec::new(),
        };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        socket.listener.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Hears who asks, and tells what has changed.
    pub(super) fn turn(&mut self, now: Instant, admission: &mut Admission) {
        while self.clients.len() < MOST_CLIENTS {
            // A failure here is that of one client.
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                let (line, told) = (Vec::new(), String::new());
                self.clients.push(Client { stream, line, asked: None, told });
            }
        }
        let interface = &self.interface;
        self.clients.retain_mut(|client| {
            let stays = client.turn(now, interface, admission).is_ok();
            if let Some((station, transfer)) = client.asked.filter(|_| !stays) {
                admission.end(now, station, transfer);
            }
            stays
        });
    }

    /// Whether answers are waited for.
    pub(super) fn is_in_use(&self) -> bool {
        !self.clients.is_empty()
    }

    pub(super) fn interests(&self, into: &mut Vec<Interest>) {
        let readable = |fd: RawFd| Interest { fd, readable: true, writable: false };
        if self.clients.len() < MOST_CLIENTS {
            into.push(readable(self.listener.as_raw_fd()));
        }
        into.extend(self.clients.iter().map(|client| readable(client.stream.as_raw_fd())));
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // It may have been taken away already.
        let _ = fs::remove_file(&self.path);
    }
}

/// A fast stream that is asked for at the control socket of a `landfall bigmtu`, or of a
/// [`BigMtu`](super::BigMtu) with [one](super::BigMtuBuilder::control_socket). It is given back
/// when this goes.
///
/// ```no_run
/// use std::time::Duration;
/// use landfall::defrag::bigmtu::FastStream;
///
/// let mut stream = FastStream::ask("/run/big0.sock".as_ref(), "10.9.0.2")?;
/// while stream.answer_within(Duration::from_secs(1))?.as_deref() != Some("fast") {}
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FastStream {
    answers: BufReader<UnixStream>,
    /// What came of the next answer.
    line: String,
}

impl FastStream {
    /// Asks for one to a station, by its address or by that of a neighbour over IPv4.
    ///
    /// # Errors
    /// Nobody answers at the socket.
    pub fn ask(socket: &Path, station: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        writeln!(stream, "ask {station}")?;
        Ok(Self { answers: BufReader::new(stream), line: String::new() })
    }

    /// How it stands with it, as the table of this module has it, once that has changed. `None` if
    /// it has not for so long.
    ///
    /// # Errors
    /// It cannot be asked for, or the interface is gone.
    pub fn answer_within(&mut self, patience: Duration) -> io::Result<Option<String>> {
        self.answers.get_ref().set_read_timeout(Some(patience))?;
        match self.answers.read_line(&mut self.line) {
            Ok(0) => return Err(io::Error::other("the interface is gone")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let answer = std::mem::take(&mut self.line).trim_end().to_owned();
        match answer.strip_prefix("error ") {
            Some(why) => Err(io::Error::other(why.to_owned())),
            None => Ok(Some(answer)),
        }
    }
}

/// Nobody listens there any more.
fn is_left_over(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Client {
    /// Fails when the connection is over.
    fn turn(&mut self, now: Instant, interface: &str, admission: &mut Admission) -> io::Result<()> {
        let mut bytes = [0; LONGEST];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) if self.asked.is_none() => self.line.extend(&bytes[..len]),
            // Nothing more is to be said.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if self.asked.is_none() {
            let Some(end) = self.line.iter().position(|byte| *byte == b'\n') else {
                return if self.line.len() < LONGEST { Ok(()) } else { self.fail("too long") };
            };
            let line = String::from_utf8_lossy(&self.line[..end]).into_owned();
            let station = match station_of(&line, |address| neighbour(interface, address)) {
                Ok(station) => station,
                Err(why) => return self.fail(why),
            };
            let Some(transfer) = admission.ask(now, station) else {
                return self.fail("too many requests, or not the address of another station");
            };
            self.asked = Some((station, transfer));
        }
        let Some((station, transfer)) = self.asked else { return Ok(()) };
        let answer = line_of(admission.answer(now, station, transfer));
        if answer != self.told {
            self.stream.write_all(answer.as_bytes())?;
            self.told = answer;
        }
        Ok(())
    }

    /// Says what is wrong, and ends.
    fn fail(&mut self, why: &str) -> io::Result<()> {
        writeln!(self.stream, "error {why}")?;
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// The station that a request names.
fn station_of(
    line: &str,
    neighbour: impl FnOnce(Ipv4Addr) -> Option<Mac>,
) -> Result<Mac, &'static str> {
    let name = line.trim_end().strip_prefix("ask ").ok_or("say `ask` and a station")?;
    if let Ok(address) = name.parse() {
        return neighbour(address).ok_or("not a neighbour whose station is known");
    }
    parse_station(name).ok_or("a station is 02:00:00:00:00:01, or an address like 10.9.0.2")
}

/// A station address as people write it.
pub(super) fn parse_station(text: &str) -> Option<Mac> {
    let mut station = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut station {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(station)
}

fn line_of(answer: Answer) -> String {
    match answer {
        Answer::Pending => "asked\n".to_owned(),
        Answer::Granted { .. } => "fast\n".to_owned(),
        Answer::Refused { position: Some(before), .. } => format!("slow {before}\n"),
        Answer::Refused { position: None, .. } => "slow\n".to_owned(),
        Answer::NoGate => "no gate\n".to_owned(),
        Answer::NotAsked => "ended\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_understood_or_refused() {
        let known = |address: Ipv4Addr| (address.octets()[3] == 2).then_some([2; 6]);
        let of = |line: &str| station_of(line, known).ok();
        assert_eq!(of("ask 10.9.0.2"), Some([2; 6]));
        assert_eq!(of("ask 2:0:0:a:0B:ff"), Some([2, 0, 0, 10, 11, 255]));
        for bad in [
            "",
            "ask",
            "ask ",
            "ask 10.9.0.3",
            "ask 2:0:0:a:b",
            "ask 2:0:0:a:b:c:d",
            "end 10.9.0.2",
            "ask 2:0:0:a:b:+1f",
            "ask 2:0:0:a:b:",
            "ask fd00::1",
            "ask 2:0:0:a:b:100",
        ] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}
