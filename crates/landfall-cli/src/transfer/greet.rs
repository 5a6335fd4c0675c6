//! The greeting: each side proves that it knows the code, and learns the other does.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use blake3::Hash;
use landfall::stp;
use landfall::stp::blocking::Connection;
use landfall::stp::{Memory, Message};

use super::code::{Code, CodeKey, Seals, Side, Transcript};
use super::wire::{Greeting, MOST_GREETING, Nonce, Refusal, SERVICE, Salt, VERSION};

/// How long a receiver may take for its next word.
const LIMIT: Duration = Duration::from_secs(15);

fn nonce() -> Result<Nonce> {
    random()
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no random bytes: {error}"))?;
    Ok(bytes)
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

/// The sender's part. `udp_port` is the receiver's; the key of a chosen code is `known` when
/// the sender comes again, and does not have to be made.
pub(crate) fn as_sender(
    connection: &Connection,
    code: &Code,
    udp_port: u16,
    known: &mut Option<(Salt, CodeKey)>,
) -> Result<Seals, Rejected> {
    let sender = nonce()?;
    say(connection, Greeting::Hello { version: VERSION, nonce: sender })?;
    let (receiver, salt) = match hear(connection)? {
        Some(Greeting::Challenge { version: VERSION, nonce, salt }) => (nonce, salt),
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
    let key = match known {
        Some((known, key)) if *known == salt => key.clone(),
        _ => known.insert((salt, code.key(&salt)?)).1.clone(),
    };
    let transcript = Transcript { service: SERVICE, udp_port, sender, receiver };
    say(connection, Greeting::Proof(key.proof(Side::Sender, &transcript).into()))?;
    match hear(connection)? {
        Some(Greeting::Welcome(proof))
            if key.proof(Side::Receiver, &transcript) == Hash::from_bytes(proof) =>
        {
            Ok(key.seals(&transcript))
        }
        Some(Greeting::Welcome(_)) => Err(anyhow!(
            "whoever answers at that address does not know the code either: it is not your \
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

/// What a receiver keeps of its code: the key, and the salt that made it.
#[derive(Clone)]
pub(crate) struct Lock {
    key: CodeKey,
    salt: Salt,
}

impl Lock {
    /// Takes a moment for a chosen code.
    pub(crate) fn new(code: &Code) -> Result<Self> {
        let salt = random()?;
        Ok(Self { key: code.key(&salt)?, salt })
    }
}

/// How a greeting went for the receiver.
pub(crate) enum Greeted {
    /// The sender knows the code.
    Knows(Proven),
    /// It does not.
    Wrong,
    /// It is told to come again.
    Later,
}

/// A sender that knows the code, and has not heard that this side does.
pub(crate) struct Proven {
    seals: Seals,
    proof: Hash,
}

impl Proven {
    /// Proves that this side knows the code, too: the session begins.
    pub(crate) async fn welcome(self, connection: &stp::Connection) -> Result<Seals> {
        answer(connection, Greeting::Welcome(self.proof.into())).await?;
        Ok(self.seals)
    }
}

/// The receiver's part, up to the sender's proof. An error says what a stranger did who
/// does not greet as a sender; `may_try` says whether its proof is heard now.
///
/// How long it takes is the caller's to bound.
pub(crate) async fn as_receiver(
    connection: &stp::Connection,
    lock: &Lock,
    udp_port: u16,
    may_try: impl FnOnce() -> bool,
) -> Result<Greeted> {
    let sender = match take(connection).await? {
        Greeting::Hello { version: VERSION, nonce } => nonce,
        Greeting::Hello { version, .. } => {
            refuse(connection, Refusal::VERSION).await?;
            bail!("a sender of version {version} of the file transfer; this one is {VERSION}");
        }
        _ => bail!("it does not greet as a sender"),
    };
    if !may_try() {
        return Ok(Greeted::Later);
    }
    let receiver = nonce()?;
    let salt = lock.salt;
    answer(connection, Greeting::Challenge { version: VERSION, nonce: receiver, salt }).await?;
    let transcript = Transcript { service: SERVICE, udp_port, sender, receiver };
    let Greeting::Proof(proof) = take(connection).await? else {
        bail!("it does not prove that it knows the code");
    };
    if lock.key.proof(Side::Sender, &transcript) != Hash::from_bytes(proof) {
        return Ok(Greeted::Wrong);
    }
    let proof = lock.key.proof(Side::Receiver, &transcript);
    Ok(Greeted::Knows(Proven { seals: lock.key.seals(&transcript), proof }))
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
