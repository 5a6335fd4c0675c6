//! The greeting: each side proves that it knows the code, and learns that the other does.
//!
//! It is the code's handshake of `landfall-seal` (CPace, confirmed by both): who listens has
//! nothing to try codes with, and who takes part can try one, which the other side notices.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use landfall::stp;
use landfall::stp::blocking::Connection;
use landfall::stp::{Memory, Message};
use landfall_seal::{Handshake, HandshakeError, Pake, Seed};

use super::code::Code;
use super::seals::{SUITE, Seals};
use super::wire::{First, Greeting, MOST_GREETING, Refusal, SERVICE, Share, VERSION};

/// How long a receiver may take for its next word.
const LIMIT: Duration = Duration::from_secs(15);
/// A sender shows this many proofs at most before it gives up: anyone who answers in the place of
/// its receiver can try a code with each of them.
pub(crate) const MOST_PROOFS: u32 = 8;

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no random bytes: {error}"))?;
    Ok(bytes)
}

fn seed() -> Result<Seed> {
    Ok(Seed::new(random()?))
}

/// What both sides have to agree on: it is a part of the keys.
fn context(udp_port: u16) -> Vec<u8> {
    let [version, service, port] = [VERSION, SERVICE, udp_port].map(u16::to_le_bytes);
    [&b"landfall file transfer"[..], &version, &service, &port].concat()
}

/// The handshake's next message, of which there has to be one of this length.
fn next<const N: usize>(pake: &mut Pake) -> Result<[u8; N]> {
    let message = pake.poll_message().context("the handshake says nothing")?;
    message.try_into().map_err(|_| anyhow!("the handshake says something else"))
}

fn finish(pake: Pake) -> Result<Seals> {
    Ok(Seals::new(pake.finish()?.keys))
}

/// What a receive gives within the limit; nothing where the other side says nothing.
fn hear(connection: &Connection) -> Result<Option<Greeting>, Rejected> {
    match connection.receive(Memory::zeroed(MOST_GREETING)).wait_for(LIMIT) {
        Ok(heard) => {
            let heard = heard.map_err(|failed| Rejected::Ended(failed.into()))?;
            Ok(Some(Greeting::parse(&heard).map_err(anyhow::Error::from)?))
        }
        Err(_cancelled) => Ok(None),
    }
}

fn say(connection: &Connection, greeting: Greeting) -> Result<(), Rejected> {
    match connection.send(greeting.to_bytes()).wait_for(LIMIT) {
        Ok(sent) => sent.map(drop).map_err(|failed| Rejected::Ended(failed.into())),
        Err(_cancelled) => Err(anyhow!("the other side does not listen").into()),
    }
}

/// Why a sender is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Rejected {
    /// The receiver hears the next greeting in a moment.
    #[error("the receiver hears too many wrong codes from this address: try again later")]
    Later,
    /// The receiver ended it: another stranger took the place.
    #[error("the receiver does not go on with the greeting ({0}): try again later")]
    Ended(stp::Error),
    #[error(transparent)]
    For(#[from] anyhow::Error),
}

/// The sender's part. `udp_port` is the receiver's; `proofs` counts those that were shown.
pub(crate) fn as_sender(
    connection: &Connection,
    code: &Code,
    udp_port: u16,
    proofs: &mut u32,
) -> Result<Seals, Rejected> {
    let mut pake = Pake::initiator(code.as_bytes(), &context(udp_port), SUITE, seed()?);
    let first: First = next(&mut pake)?;
    say(connection, Greeting::Hello { version: VERSION, first })?;
    let share = match hear(connection)? {
        Some(Greeting::Challenge { version: VERSION, share }) => share,
        Some(Greeting::Challenge { version, .. } | Greeting::Refused { version, .. })
            if version != VERSION =>
        {
            return Err(anyhow!(
                "the receiver speaks version {version} of the file transfer, this program \
                 {VERSION}: use the same version of landfall at both ends"
            )
            .into());
        }
        heard => return Err(unexpected(heard)),
    };
    pake.handle_message(&share).map_err(anyhow::Error::from)?;
    *proofs += 1;
    say(connection, Greeting::Proof(next(&mut pake)?))?;
    match hear(connection)? {
        Some(Greeting::Welcome(proof)) if pake.handle_message(&proof).is_ok() => Ok(finish(pake)?),
        Some(Greeting::Welcome(_)) => Err(anyhow!(
            "the program that answers at that address does not know the code either: it is not your \
             receiver"
        )
        .into()),
        heard => Err(unexpected(heard)),
    }
}

fn unexpected(heard: Option<Greeting>) -> Rejected {
    let why = match heard {
        Some(Greeting::Refused { why: Refusal::LATER, .. }) => return Rejected::Later,
        Some(Greeting::Refused { why: Refusal::WRONG, .. }) => {
            "the receiver has another code: compare it with what `landfall receive` printed"
        }
        Some(Greeting::Refused { why: Refusal::BUSY, .. }) => {
            "the receiver is busy with another sender: try again later"
        }
        Some(_) => "the other side does not greet as a receiver",
        None => "the receiver does not answer: is it overloaded? Try again later",
    };
    Rejected::For(anyhow!(why))
}

/// How a greeting went for the receiver.
pub(crate) enum Greeted {
    /// The sender knows the code.
    Knows(Box<Proven>),
    /// It does not.
    Wrong,
    /// It is told to come again.
    Later,
}

/// A sender that knows the code, and has not heard that this side does.
pub(crate) struct Proven(Pake);

impl Proven {
    /// Proves that this side knows the code, too: the session begins.
    pub(crate) async fn welcome(
        mut self: Box<Self>,
        connection: &stp::Connection,
    ) -> Result<Seals> {
        answer(connection, Greeting::Welcome(next(&mut self.0)?)).await?;
        finish(self.0)
    }
}

/// The receiver's part, up to the sender's proof. An error says what a stranger did who
/// does not greet as a sender; `may_try` says whether its proof is heard now.
///
/// How long it takes is the caller's to bound.
pub(crate) async fn as_receiver(
    connection: &stp::Connection,
    code: &Code,
    udp_port: u16,
    may_try: impl FnOnce() -> bool,
) -> Result<Greeted> {
    let first = match take(connection).await? {
        Greeting::Hello { version: VERSION, first } => first,
        Greeting::Hello { version, .. } => {
            refuse(connection, Refusal::VERSION).await?;
            bail!("a sender of version {version} of the file transfer; this one is {VERSION}");
        }
        _ => bail!("it does not greet as a sender"),
    };
    if !may_try() {
        return Ok(Greeted::Later);
    }
    let mut pake = Pake::responder(code.as_bytes(), &context(udp_port), SUITE, seed()?);
    pake.handle_message(&first)?;
    let share: Share = next(&mut pake)?;
    answer(connection, Greeting::Challenge { version: VERSION, share }).await?;
    let Greeting::Proof(proof) = take(connection).await? else {
        bail!("it does not prove that it knows the code");
    };
    match pake.handle_message(&proof) {
        Ok(()) => Ok(Greeted::Knows(Box::new(Proven(pake)))),
        Err(HandshakeError::NotProven) => Ok(Greeted::Wrong),
        Err(error) => Err(error.into()),
    }
}

/// Tells a sender that it is not let in.
pub(crate) async fn refuse(connection: &stp::Connection, why: Refusal) -> Result<()> {
    answer(connection, Greeting::Refused { version: VERSION, why }).await
}

async fn take(connection: &stp::Connection) -> Result<Greeting> {
    let heard: Message = connection.receive(Memory::zeroed(MOST_GREETING)).await?;
    Ok(Greeting::parse(&heard)?)
}

async fn answer(connection: &stp::Connection, greeting: Greeting) -> Result<()> {
    connection.send(greeting.to_bytes()).await?;
    Ok(())
}
