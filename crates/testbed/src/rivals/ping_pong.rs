//! Messages there and back over a connected socket, timed one by one.

use std::io::Read;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::Plan;
use super::measure::{Goal, Patience, measure};
use super::stream::LARGEST;
use crate::error::Error;
use crate::sample::{RttHistogram, Sample};

/// How a conversation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The stream is shut.
    Stream,
    /// An empty datagram.
    Datagram,
}

/// A conversation to be held.
pub(super) struct PingPong<'a> {
    pub(super) plan: &'a Plan,
    pub(super) kind: Kind,
    pub(super) message: usize,
    /// Rounds at the start that are not recorded.
    pub(super) warm_up: u64,
}

/// What the asker saw, without the warm-up.
pub(super) struct InitiatorResult {
    pub(super) rounds: u64,
    pub(super) time: Duration,
    pub(super) round_trips: RttHistogram,
}

impl PingPong<'_> {
    /// Holds the conversation.
    pub(super) fn run(&self, asker: &Socket, answerer: &Socket) -> Result<Sample, Error> {
        let measured = measure(
            self.plan,
            |patience| self.ask_until_done(asker, patience),
            |patience| self.answer_all(answerer, patience),
        )?;
        let asked = measured.sent;
        Ok(Sample {
            bytes: asked.rounds * self.message as u64,
            messages: asked.rounds,
            seconds: asked.time.as_secs_f64(),
            cpu: measured.cpu,
            rtt: asked.round_trips.summary(),
            wakeups: measured.wakeups,
            ..Sample::default()
        })
    }

    fn check(&self) -> Result<(), Error> {
        let message = self.message;
        if (1..=LARGEST).contains(&message) {
            return Ok(());
        }
        let why = format!("messages of {message} bytes; 1 to {LARGEST} are possible");
        Err(Error::BadRequest(why))
    }

    /// The half that asks, and ends the conversation.
    pub(super) fn ask_until_done(
        &self,
        socket: &Socket,
        patience: &Patience,
    ) -> Result<InitiatorResult, Error> {
        self.check()?;
        let end = End { socket, kind: self.kind };
        let asked = self.ask(socket, patience);
        drop(end);
        asked
    }

    /// The half that answers, until the conversation ends.
    pub(super) fn answer_all(&self, socket: &Socket, patience: &Patience) -> Result<(), Error> {
        self.check()?;
        let mut answer = vec![0; self.message];
        patience.prepare(socket)?;
        while receive_all(socket, &mut answer, patience)? {
            send_all(socket, &answer, patience)?;
        }
        Ok(())
    }

    fn ask(&self, socket: &Socket, patience: &Patience) -> Result<InitiatorResult, Error> {
        let goal = Goal::new(self.plan.amount, self.message);
        let (mut question, mut answer) = (vec![0; self.message], vec![0; self.message]);
        let mut round_trips = RttHistogram::new();
        patience.prepare(socket)?;
        let mut started = Instant::now();
        let mut round = 0u64;
        loop {
            let recorded = round.checked_sub(self.warm_up);
            let asked = Instant::now();
            patience.check("a round trip", asked)?;
            if let Some(rounds) = recorded {
                if rounds == 0 {
                    started = asked;
                }
                let bytes = rounds.saturating_mul(self.message as u64);
                let time = asked - started;
                if goal.left(bytes, time) == 0 {
                    return Ok(InitiatorResult { rounds, time, round_trips });
                }
            }
            send_all(socket, &question, patience)?;
            let answered = receive_all(socket, &mut answer, patience)?;
            let round_trip = asked.elapsed();
            if !answered || answer != question {
                return Err(Error::WrongData(format!("the answer of round {round}")));
            }
            if recorded.is_some() {
                round_trips.record(round_trip);
            }
            round += 1;
            stamp(&mut question, round);
        }
    }
}

/// Makes the messages of different rounds different.
fn stamp(message: &mut [u8], round: u64) {
    message.iter_mut().zip(round.to_le_bytes()).for_each(|(to, from)| *to = from);
}

/// Ends the conversation on every way out, so that the answerer does not wait
/// until its limit.
struct End<'a> {
    socket: &'a Socket,
    kind: Kind,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        // When this fails the answerer is gone, or waits until its limit.
        let _ = match self.kind {
            Kind::Stream => self.socket.shutdown(Shutdown::Write),
            Kind::Datagram => self.socket.send(&[]).map(drop),
        };
    }
}

#[inline]
fn send_all(socket: &Socket, mut bytes: &[u8], patience: &Patience) -> Result<(), Error> {
    while !bytes.is_empty() {
        let sent = patience
            .wait_for("send a message", || socket.send_with_flags(bytes, libc::MSG_NOSIGNAL))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Fills `bytes`; false when the conversation ended before.
#[inline]
fn receive_all(mut socket: &Socket, bytes: &mut [u8], patience: &Patience) -> Result<bool, Error> {
    let mut have = 0;
    while have < bytes.len() {
        let got = patience.wait_for("receive a message", || socket.read(&mut bytes[have..]))?;
        if got == 0 {
            return Ok(false);
        }
        have += got;
    }
    Ok(true)
}
