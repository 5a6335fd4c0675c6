//! Bytes through many connected stream sockets at once: one thread serves all that send,
//! another all that receive, each asleep while none of its sockets is ready.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Instant;

use socket2::Socket;

use super::Plan;
use super::measure::{Goal, Patience, measure};
use super::stream::{Received, Sent, ShutWhenDone, Sink, Source, StreamShape, sample_of};
use crate::error::{Error, Tried};
use crate::sample::Sample;
use crate::sys::Epoll;

/// A thread that sleeps looks at the clock so often, in milliseconds.
const LOOK_EVERY: u16 = 20;
/// As many ready sockets are told of at a time.
const AT_ONCE: usize = 256;

/// Sends from each socket to its other end as the plan says.
pub(super) fn pump_many(
    plan: &Plan,
    shape: StreamShape,
    from: &[&Socket],
    to: &[&Socket],
) -> Result<Sample, Error> {
    shape.check()?;
    let goal = Goal::new(plan.amount, shape.send_size);
    let (mut source, mut sink) = (Source::new(shape)?, Sink::new(shape));
    let measured = measure(
        plan,
        |patience| {
            let _ends: Vec<_> = from.iter().map(|it| ShutWhenDone(it, Shutdown::Write)).collect();
            send(&mut source, from, goal, patience)
        },
        |patience| {
            let _ends: Vec<_> = to.iter().map(|it| ShutWhenDone(it, Shutdown::Both)).collect();
            receive(&mut sink, to, patience)
        },
    )?;
    sample_of(shape.workload, &measured)
}

/// Watches all sockets, none of which blocks.
fn watch(sockets: &[&Socket], events: libc::c_int) -> Result<Epoll, Error> {
    let epoll = Epoll::new(sockets.len().min(AT_ONCE)).tried("make an epoll instance")?;
    for (name, socket) in sockets.iter().enumerate() {
        socket.set_nonblocking(true).tried("set how a socket waits")?;
        epoll.add(socket.as_fd(), name as u64, events).tried("watch a socket")?;
    }
    Ok(epoll)
}

/// The sockets that are ready, after a short wait.
fn ready(epoll: &mut Epoll, into: &mut Vec<u64>) -> Result<(), Error> {
    into.clear();
    match epoll.wait(LOOK_EVERY) {
        Ok(names) => into.extend(names),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(Error::system("wait for sockets", error)),
    }
    Ok(())
}

/// What a socket that does not block said: nothing if it has to be waited for.
fn unless_busy(what: &str, outcome: io::Result<usize>) -> Result<Option<usize>, Error> {
    match outcome {
        Ok(count) => Ok(Some(count)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::system(what, error)),
    }
}

pub(super) fn send(
    source: &mut Source,
    sockets: &[&Socket],
    goal: Goal,
    patience: &Patience,
) -> Result<Sent, Error> {
    let mut epoll = watch(sockets, libc::EPOLLOUT)?;
    let mut names = Vec::with_capacity(AT_ONCE);
    let started = Instant::now();
    let mut sent = Sent { started, bytes: 0, sum: 0 };
    loop {
        ready(&mut epoll, &mut names)?;
        patience.check("sending", Instant::now())?;
        // Where all are full somebody still has to see that the time is over.
        if goal.left(sent.bytes, started.elapsed()) == 0 {
            return Ok(sent);
        }
        for name in &names {
            let left = goal.left(sent.bytes, started.elapsed());
            if left == 0 {
                return Ok(sent);
            }
            let one = source.send_piece(sockets[*name as usize], left);
            if let Some(count) = unless_busy("send on a stream", one)? {
                sent.bytes += count as u64;
                sent.sum += source.step(count);
            }
        }
    }
}

pub(super) fn receive(
    sink: &mut Sink,
    sockets: &[&Socket],
    patience: &Patience,
) -> Result<Received, Error> {
    let mut epoll = watch(sockets, libc::EPOLLIN)?;
    let mut names = Vec::with_capacity(AT_ONCE);
    let mut open = sockets.len();
    let mut received = Received { ended: Instant::now(), bytes: 0, calls: 0, sum: 0 };
    while open > 0 {
        ready(&mut epoll, &mut names)?;
        patience.check("receiving", Instant::now())?;
        for name in &names {
            let socket = sockets[*name as usize];
            match unless_busy("receive from a stream", sink.receive_once(socket))? {
                None => {}
                Some(0) => {
                    epoll.remove(socket.as_fd()).tried("watch a socket no more")?;
                    open -= 1;
                    received.ended = Instant::now();
                }
                Some(count) => {
                    received.bytes += count as u64;
                    received.calls += 1;
                    received.sum += sink.step(count);
                    received.ended = Instant::now();
                }
            }
        }
    }
    Ok(received)
}
