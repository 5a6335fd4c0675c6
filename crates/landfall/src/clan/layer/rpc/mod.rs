//! Calls: a request in the server's buffer, the reply in the client's (section 4.1).
//!
//! Requests and replies take turns, so two flags and two tripwires do, one of each on
//! either side. A flag holds the number of the call and the length plus one: a reply
//! that comes after its caller has given up is recognised, and the buffers are never
//! used for two calls at once.
//!
//! ```
//! use landfall::clan::Threads;
//! use landfall::clan::layer::rpc::{Client, Config, Server};
//!
//! let (here, there) = Threads::pair()?;
//! let config = Config::new(1024, 1024);
//! let (client, server) = (Client::open(&here, config)?, Server::open(&there, config)?);
//! let (to_server, to_client) = (server.cookie(), client.cookie());
//! let mut client = client.connect(&to_server)?;
//! let mut server = server.connect(&to_client)?;
//!
//! let serving = std::thread::spawn(move || {
//!     server.serve_one(None, |request, reply| reply.extend(request.iter().rev()))
//! });
//! assert_eq!(client.call(b"abc", None)?, b"cba");
//! serving.join().unwrap()?;
//! # Ok::<(), landfall::clan::Error>(())
//! ```

mod client;
mod server;

use landfall_transport::Wait;

use crate::clan::{Error, Local, Misbehaviour, WORD};

pub use client::{Call, Client};
pub use server::{Request, Server};

/// Where the flag lies, on both sides.
const FLAG: u64 = 0;
/// Where the buffer begins, on both sides: on another cache line.
const BUFFER: u64 = 64;

/// What both sides agree on.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    request: u32,
    reply: u32,
    wait: Wait,
}

impl Config {
    /// Requests and replies of up to this many bytes.
    #[must_use]
    pub const fn new(request: u32, reply: u32) -> Self {
        Self { request, reply, wait: Wait::BALANCED }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }
}

const fn buffer_len(capacity: u32) -> u64 {
    BUFFER + (capacity as u64).next_multiple_of(WORD)
}

/// A flag: which call, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flag {
    call: u32,
    len: u32,
}

impl Flag {
    /// The longest length is one less than a number of 32 bits can be.
    const fn word(self) -> u64 {
        (self.call as u64) << 32 | (self.len as u64 + 1)
    }

    /// Nothing is there, something is, or what cannot be.
    fn from_word(word: u64, capacity: u32) -> Result<Option<Self>, Error> {
        if word == 0 {
            return Ok(None);
        }
        let most = u64::from(capacity);
        match (word & u64::from(u32::MAX)).checked_sub(1) {
            Some(len) if len <= most => {
                Ok(Some(Self { call: (word >> 32) as u32, len: len as u32 }))
            }
            _ => Err(Error::PeerMisbehaved(Misbehaviour::Flag(word))),
        }
    }
}

/// Checks the length, and that it can be told from a flag that is not set.
const fn fits(bytes: &[u8], capacity: u32) -> Result<u32, Error> {
    let most = if capacity == u32::MAX { capacity - 1 } else { capacity };
    if bytes.len() as u64 <= most as u64 {
        Ok(bytes.len() as u32)
    } else {
        Err(Error::TooLong { len: bytes.len() as u64, most: most as u64 })
    }
}

/// Copies what a flag speaks of.
fn get<L: Local>(local: &L, flag: Flag) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; flag.len as usize];
    local.copy_out(BUFFER, &mut bytes)?;
    Ok(bytes)
}
