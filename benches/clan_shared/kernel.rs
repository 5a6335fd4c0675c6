//! What the kernel carries: Unix sockets, and TCP over loopback.
//!
//! What memory itself gives: words that two cores hand to each other, and copies.

use std::hint::spin_loop;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::sides::{END, End, Opened, PATIENCE, Place, WALK, Waiting, Work};

struct Socket<S> {
    stream: S,
    spins: bool,
}

pub(crate) fn open_unix(work: &Work, place: &Place) -> Result<Opened> {
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

pub(crate) fn open_tcp(work: &Work, place: &Place) -> Result<Opened> {
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

/// A message of up to eight words, and its number; each way has one.
#[repr(align(256))]
#[derive(Default)]
struct Way {
    number: AtomicU64,
    words: [AtomicU64; 8],
}

struct Words {
    there: Arc<Way>,
    back: Arc<Way>,
    sent: u64,
    seen: u64,
}

pub(crate) fn open(work: &Work, place: &Place) -> Result<Opened> {
    let is_copied = work.is_stream;
    if !is_copied && work.waiting != Waiting::Spin {
        return Ok(None);
    }
    let there = Arc::new(Way::default());
    let back = place.exchange(Arc::clone(&there))?;
    if is_copied {
        return Ok(Some(Box::new(Copies { there, back, memory: vec![2; WALK], at: 0 })));
    }
    Ok(Some(Box::new(Words { there, back, sent: 0, seen: 0 })))
}

/// One thread copies, and the other waits for the end.
struct Copies {
    there: Arc<Way>,
    back: Arc<Way>,
    memory: Vec<u8>,
    at: usize,
}

impl End for Copies {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.at = (self.at + message.len()) % self.memory.len();
        self.memory[self.at..self.at + message.len()].copy_from_slice(message);
        if message[..8] == END.to_le_bytes() {
            self.there.number.store(END, Release);
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        while self.back.number.load(Acquire) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        into[..8].copy_from_slice(&END.to_le_bytes());
        Ok(())
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<()> {
        std::hint::black_box(&self.memory);
        Ok(())
    }

    fn confirm(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

impl End for Words {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        for (word, bytes) in self.there.words.iter().zip(message.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into()?), Relaxed);
        }
        self.sent += 1;
        self.there.number.store(self.sent, Release);
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        while self.back.number.load(Acquire) == self.seen {
            spin_loop();
        }
        self.seen += 1;
        for (word, bytes) in self.back.words.iter().zip(into.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        Ok(())
    }
}
