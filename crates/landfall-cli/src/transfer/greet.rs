//! The greeting: each side proves that it knows the code, and learns the other does.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use blake3::Hash;
use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{Error, Message};

use super::code::{CodeKey, Seals, Side, Transcript};
use super::wire::{Greeting, MOST_GREETING, Nonce, SERVICE, VERSION};

/// How long a side may take for its next word: longer only for who does not mean it.
const LIMIT: Duration = Duration::from_secs(10);

fn nonce() -> Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(|error| anyhow!("no random bytes: {error}"))?;
    Ok(nonce)
}

/// What a receive gives within the limit; nothing where the other side says nothing.
fn hear(endpoint: &Endpoint, connection: &Connection) -> Result<Option<Greeting>> {
    let memory = endpoint.memory(MOST_GREETING)?;
    let heard: Result<Message, Error> = match connection.receive(memory).wait_for(LIMIT) {
        Ok(heard) => heard,
        Err(_cancelled) => return Ok(None),
    };
    Ok(Some(Greeting::parse(&heard?)?))
}

fn say(connection: &Connection, greeting: Greeting) -> Result<()> {
    match connection.send(greeting.to_bytes()).wait_for(LIMIT) {
        Ok(sent) => Ok(sent.map(drop)?),
        Err(_cancelled) => bail!("the other side does not listen"),
    }
}

/// The sender's part. `udp_port` is the receiver's.
pub(crate) fn as_sender(
    endpoint: &Endpoint,
    connection: &Connection,
    key: &CodeKey,
    udp_port: u16,
) -> Result<Seals> {
    let sender = nonce()?;
    say(connection, Greeting::Hello { version: VERSION, nonce: sender })?;
    let receiver = match hear(endpoint, connection)? {
        Some(Greeting::Challenge { version: VERSION, nonce }) => nonce,
        Some(
            Greeting::Challenge { version, .. } | Greeting::Refused { version, tries_left: _ },
        ) if version != VERSION => bail!(
            "the receiver speaks version {version} of the file transfer, this program {VERSION}: \
             use the same version of landfall at both ends"
        ),
        Some(_) => bail!("the other side does not greet as a receiver"),
        None => bail!(
            "the receiver does not answer: it may be busy with another sender; try again later"
        ),
    };
    let transcript = Transcript { service: SERVICE, udp_port, sender, receiver };
    say(connection, Greeting::Proof(key.proof(Side::Sender, &transcript).into()))?;
    match hear(endpoint, connection)? {
        Some(Greeting::Welcome(proof))
            if key.proof(Side::Receiver, &transcript) == Hash::from_bytes(proof) =>
        {
            Ok(key.seals(&transcript))
        }
        Some(Greeting::Welcome(_)) => bail!(
            "whoever answers at that address does not know the code either: it is not your \
             receiver"
        ),
        Some(Greeting::Refused { tries_left, .. }) => bail!(
            "the receiver has another code: compare it with what `landfall receive` printed{}",
            match tries_left {
                0 => ". That was the third wrong try: the receiver has ended".to_owned(),
                1 => " (one more try)".to_owned(),
                left => format!(" ({left} more tries)"),
            }
        ),
        Some(_) => bail!("the other side does not greet as a receiver"),
        None => bail!("the receiver does not answer the proof of the code"),
    }
}

/// How a greeting went for the receiver.
pub(crate) enum Greeted {
    /// The sender knows the code.
    Knows(Seals),
    /// It does not. This counts.
    Wrong,
    /// Somebody knocked, and went away or talked nonsense.
    Nobody(String),
}

/// The receiver's part, with so many tries left if this one is wrong.
pub(crate) fn as_receiver(
    endpoint: &Endpoint,
    connection: &Connection,
    key: &CodeKey,
    udp_port: u16,
    tries_left: u8,
) -> Result<Greeted> {
    let receiver = nonce()?;
    match exchange(endpoint, connection, key, (udp_port, receiver), tries_left) {
        Ok(greeted) => Ok(greeted),
        Err(error) => Ok(Greeted::Nobody(error.to_string())),
    }
}

fn exchange(
    endpoint: &Endpoint,
    connection: &Connection,
    key: &CodeKey,
    (udp_port, receiver): (u16, Nonce),
    tries_left: u8,
) -> Result<Greeted> {
    let sender = match hear(endpoint, connection)? {
        Some(Greeting::Hello { version: VERSION, nonce }) => nonce,
        Some(Greeting::Hello { version, .. }) => {
            say(connection, Greeting::Refused { version: VERSION, tries_left: tries_left + 1 })?;
            bail!("a sender of version {version} of the file transfer; this one is {VERSION}");
        }
        Some(_) => bail!("it does not greet as a sender"),
        None => bail!("it says nothing"),
    };
    say(connection, Greeting::Challenge { version: VERSION, nonce: receiver })?;
    let transcript = Transcript { service: SERVICE, udp_port, sender, receiver };
    match hear(endpoint, connection)? {
        Some(Greeting::Proof(proof))
            if key.proof(Side::Sender, &transcript) == Hash::from_bytes(proof) =>
        {
            say(connection, Greeting::Welcome(key.proof(Side::Receiver, &transcript).into()))?;
            Ok(Greeted::Knows(key.seals(&transcript)))
        }
        Some(Greeting::Proof(_)) => {
            // Whether it is heard or not, the try is over.
            let _ = say(connection, Greeting::Refused { version: VERSION, tries_left });
            Ok(Greeted::Wrong)
        }
        Some(_) => bail!("it does not prove that it knows the code"),
        None => bail!("it proves nothing"),
    }
}
