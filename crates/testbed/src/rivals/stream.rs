//! Bytes through a connected stream socket, whichever kind it is.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Instant;

use socket2::Socket;

use super::measure::{Goal, Measured, Patience, byte_sum, measure, pattern, pattern_sum};
use super::{Plan, Workload};
use crate::error::{Error, Tried};
use crate::sample::Sample;
use crate::sys;

/// Largest message or memory that a rival takes: a slip of a digit should not
/// bring a machine down.
pub(super) const LARGEST: usize = 1 << 30;

/// How a stream is driven. The defaults are the plain loop of 128 KiB.
#[derive(Clone, Copy, Debug)]
pub struct StreamShape {
    /// Bytes per `send`.
    pub send_size: usize,
    /// Room per `recv`.
    pub receive_size: usize,
    /// Bytes of memory that each side walks through. One buffer's worth stays
    /// in the cache; more is what an application with a place for every byte
    /// sees.
    pub memory: usize,
    /// What happens to the bytes.
    pub workload: Workload,
}

impl Default for StreamShape {
    fn default() -> Self {
        const PLAIN: usize = 128 * 1024;
        Self { send_size: PLAIN, receive_size: PLAIN, memory: PLAIN, workload: Workload::Plain }
    }
}

impl StreamShape {
    pub(super) fn check(&self) -> Result<(), Error> {
        let sizes = [self.send_size, self.receive_size, self.memory];
        if sizes.iter().all(|size| (1..=LARGEST).contains(size)) {
            return Ok(());
        }
        Err(Error::BadRequest(format!("stream sizes {sizes:?}: 1 to {LARGEST} are possible")))
    }
}

/// What the sender did.
pub(super) struct Sent {
    pub(super) started: Instant,
    pub(super) bytes: u64,
    /// The byte sum of it.
    pub(super) sum: u64,
}

/// What the receiver saw.
pub(super) struct Received {
    pub(super) ended: Instant,
    pub(super) bytes: u64,
    pub(super) calls: u64,
    /// The byte sum of it, where the receiver touches what came.
    pub(super) sum: u64,
}

/// Sends from one socket to the other as the plan says.
pub(super) fn pump(
    plan: &Plan,
    shape: StreamShape,
    from: &Socket,
    to: &Socket,
) -> Result<Sample, Error> {
    shape.check()?;
    let goal = Goal::new(plan.amount, shape.send_size);
    // Memory is made and touched before the clock runs.
    let mut source = Source::new(shape)?;
    let mut sink = Sink::new(shape);
    let measured = measure(
        plan,
        |patience| {
            let _end = ShutWhenDone(from, Shutdown::Write);
            source.send(from, goal, patience)
        },
        |patience| {
            let _end = ShutWhenDone(to, Shutdown::Both);
            sink.receive(to, patience)
        },
    )?;
    sample_of(shape.workload, &measured)
}

/// What both gave, if all that was sent arrived.
pub(super) fn sample_of(
    workload: Workload,
    measured: &Measured<Sent, Received>,
) -> Result<Sample, Error> {
    let Measured { sent, received, cpu, busy, wakeups } = measured;
    if sent.bytes != received.bytes {
        let (sent, received) = (sent.bytes, received.bytes);
        return Err(Error::WrongData(format!("{sent} bytes were sent, {received} arrived")));
    }
    if workload == Workload::Touch && sent.sum != received.sum {
        return Err(Error::WrongData("the bytes that arrived have another sum".into()));
    }
    Ok(Sample {
        bytes: received.bytes,
        messages: received.calls,
        seconds: received.ended.duration_since(sent.started).as_secs_f64(),
        cpu: *cpu,
        busy: *busy,
        wakeups: *wakeups,
        ..Sample::default()
    })
}

/// Tells the peer that nothing more comes, on every way out, so that it does
/// not wait until its limit.
pub(super) struct ShutWhenDone<'a>(pub(super) &'a Socket, pub(super) Shutdown);

impl Drop for ShutWhenDone<'_> {
    fn drop(&mut self) {
        // The peer may have gone first: then it needs no telling.
        let _ = self.0.shutdown(self.1);
    }
}

/// Memory walked through in a circle.
#[derive(Clone, Copy)]
struct Walk {
    at: usize,
    piece: usize,
    memory: usize,
}

impl Walk {
    fn new(piece: usize, memory: usize) -> Self {
        Self { at: 0, piece, memory: memory.max(piece) }
    }

    /// Steps over what was used; the next piece always fits.
    fn step(&mut self, used: usize) {
        self.at += used;
        if self.at + self.piece > self.memory {
            self.at = 0;
        }
    }
}

/// Where the bytes of a stream come from.
pub(super) struct Source {
    bytes: Vec<u8>,
    file: Option<File>,
    walk: Walk,
}

impl Source {
    pub(super) fn new(shape: StreamShape) -> Result<Self, Error> {
        let walk = Walk::new(shape.send_size, shape.memory);
        let bytes = pattern(walk.memory);
        let file = shape.workload.sends_a_file().then(|| -> io::Result<File> {
            let mut file = File::from(sys::memory_file()?);
            file.write_all(&bytes)?;
            Ok(file)
        });
        let file = file.transpose().tried("make a file in memory")?;
        Ok(Self { bytes, file, walk })
    }

    pub(super) fn send(
        &mut self,
        to: &Socket,
        goal: Goal,
        patience: &Patience,
    ) -> Result<Sent, Error> {
        patience.prepare(to)?;
        let started = Instant::now();
        let (mut bytes, mut sum) = (0, 0);
        loop {
            let now = Instant::now();
            let left = goal.left(bytes, now - started);
            if left == 0 {
                return Ok(Sent { started, bytes, sum });
            }
            patience.check("sending", now)?;
            let sent = patience.wait_for("send on a stream", || self.send_piece(to, left))?;
            if sent == 0 {
                return Err(Error::WrongData("a stream took no bytes".into()));
            }
            bytes += sent as u64;
            sum += self.step(sent);
        }
    }

    /// Goes on to the next piece; gives the byte sum of what was sent.
    #[inline]
    pub(super) fn step(&mut self, sent: usize) -> u64 {
        let sum = pattern_sum(self.walk.at, sent);
        self.walk.step(sent);
        sum
    }

    /// Sends the next piece, or less of it where less is left.
    #[inline]
    pub(super) fn send_piece(&self, to: &Socket, left: u64) -> io::Result<usize> {
        let (at, len) = (self.walk.at, left.min(self.walk.piece as u64) as usize);
        match &self.file {
            Some(file) => sys::send_file(to.as_fd(), file.as_fd(), at, len),
            None => to.send_with_flags(&self.bytes[at..at + len], libc::MSG_NOSIGNAL),
        }
    }
}

/// Where the bytes of a stream go.
pub(super) struct Sink {
    bytes: Vec<u8>,
    /// Named to the kernel but never written, when bytes are thrown away.
    nowhere: Vec<MaybeUninit<u8>>,
    workload: Workload,
    walk: Walk,
}

impl Sink {
    pub(super) fn new(shape: StreamShape) -> Self {
        let walk = Walk::new(shape.receive_size, shape.memory);
        let thrown_away = shape.workload.throws_away();
        Self {
            // Not zero, so that the pages are really there.
            bytes: if thrown_away { Vec::new() } else { vec![0xff; walk.memory] },
            nowhere: if thrown_away { vec![MaybeUninit::uninit(); walk.piece] } else { Vec::new() },
            workload: shape.workload,
            walk,
        }
    }

    pub(super) fn receive(
        &mut self,
        from: &Socket,
        patience: &Patience,
    ) -> Result<Received, Error> {
        patience.prepare(from)?;
        let (mut bytes, mut calls, mut sum) = (0, 0, 0);
        loop {
            let got = patience.wait_for("receive from a stream", || self.receive_once(from))?;
            let now = Instant::now();
            if got == 0 {
                return Ok(Received { ended: now, bytes, calls, sum });
            }
            patience.check("receiving", now)?;
            bytes += got as u64;
            calls += 1;
            sum += self.step(got);
        }
    }

    /// Touches what came if that is its work, gives the byte sum then, and goes on.
    #[inline]
    pub(super) fn step(&mut self, got: usize) -> u64 {
        let at = self.walk.at;
        self.walk.step(got);
        let touches = self.workload == Workload::Touch;
        if touches { byte_sum(&self.bytes[at..at + got]) } else { 0 }
    }

    #[inline]
    pub(super) fn receive_once(&mut self, mut from: &Socket) -> io::Result<usize> {
        if self.workload.throws_away() {
            // tcp(7): bytes are thrown away instead of copied to the buffer.
            return from.recv_with_flags(&mut self.nowhere, libc::MSG_TRUNC);
        }
        let at = self.walk.at;
        from.read(&mut self.bytes[at..at + self.walk.piece])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_stays_inside_its_memory() {
        let mut walk = Walk::new(100, 250);
        let places = [100, 30, 60, 1].map(|used| {
            walk.step(used);
            walk.at
        });
        assert_eq!(places, [100, 130, 0, 1]);
        assert_eq!(Walk::new(100, 1).memory, 100);
    }
}
