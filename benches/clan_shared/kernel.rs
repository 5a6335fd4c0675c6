//! What the kernel carries: Unix sockets, pipes, and TCP over loopback.

use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use anyhow::{Result, bail};

use crate::sides::{End, Kind, Opened, PATIENCE, Place, Waiting, Work};

struct Socket<S> {
    stream: S,
    spins: bool,
}

pub(crate) fn open_unix(work: &Work, place: &Place) -> Result<Opened> {
    if work.kind == Kind::InPlace {
        return Ok(None);
    }
    let stream = if place.is_first {
        let (mine, theirs) = UnixStream::pair()?;
        place.exchange(Some(theirs))?;
        mine
    } else {
        match place.exchange(None)? {
            Some(stream) => stream,
            None => bail!("the other end has no socket"),
        }
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    let spins = work.waiting == Waiting::Spin;
    stream.set_nonblocking(spins)?;
    Ok(Some(Box::new(Socket { stream, spins })))
}

/// A pipe each way. It cannot be read without waiting but by `poll`, so nobody spins there.
pub(crate) fn open_pipe(work: &Work, place: &Place) -> Result<Opened> {
    if work.kind == Kind::InPlace || work.waiting == Waiting::Spin {
        return Ok(None);
    }
    let (reader, mine) = std::io::pipe()?;
    let Some(reader) = place.exchange(Some(reader))? else { bail!("the other end has no pipe") };
    Ok(Some(Box::new(Socket { stream: Pipes { reader, writer: mine }, spins: false })))
}

struct Pipes {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Read for Pipes {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(into)
    }
}

impl Write for Pipes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

pub(crate) fn open_tcp(work: &Work, place: &Place) -> Result<Opened> {
    if work.kind == Kind::InPlace {
        return Ok(None);
    }
    let stream = if place.is_first {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        place.exchange(Some(listener.local_addr()?))?;
        listener.accept()?.0
    } else {
        match place.exchange(None::<std::net::SocketAddr>)? {
            Some(address) => TcpStream::connect(address)?,
            None => bail!("the other end does not listen"),
        }
    };
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let spins = work.waiting == Waiting::Spin;
    stream.set_nonblocking(spins)?;
    Ok(Some(Box::new(Socket { stream, spins })))
}

impl<S: Read + Write> End for Socket<S> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        if !self.spins {
            return Ok(self.stream.write_all(message)?);
        }
        let mut done = 0;
        while done < message.len() {
            match self.stream.write(&message[done..]) {
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        if !self.spins {
            return Ok(self.stream.read_exact(into)?);
        }
        let mut done = 0;
        while done < into.len() {
            match self.stream.read(&mut into[done..]) {
                Ok(0) => bail!("the other end has gone"),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
