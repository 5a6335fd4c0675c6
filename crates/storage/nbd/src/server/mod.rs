//! The server's end: [`Negotiation`] until an export is chosen, then a [`Session`].
//!
//! ```
//! use landfall_nbd::server::{Config, Negotiation, Step};
//! use landfall_nbd::{Command, Export};
//!
//! let exports = vec![Export::new("disk", 1 << 20)];
//! let mut server = Negotiation::new(Config::default());
//! // The greeting is the first that is sent.
//! assert!(server.poll_output().is_some_and(|greeting| greeting.starts_with(b"NBDMAGIC")));
//!
//! // A client's flags, and that it wants the export `disk`.
//! let mut says = vec![0, 0, 0, 3];
//! says.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk");
//! let (used, _) = server.handle(&says, &exports)?;
//! let (_, step) = server.handle(&says[used..], &exports)?;
//! let Step::Transmission(session) = step else { panic!("{step:?}") };
//!
//! // A read of 512 bytes.
//! let mut head = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0];
//! head.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0]);
//! let incoming = session.request(&head, session.export().size)?;
//! let read = Command::Read { offset: 512, length: 512, dont_fragment: false };
//! assert_eq!((incoming.ticket.cookie, incoming.command), (9, Ok(read)));
//! # Ok::<(), landfall_nbd::ProtocolError>(())
//! ```

mod negotiation;
mod session;

pub use negotiation::{Config, Exports, Negotiation, Step, Tls};
pub use session::{Incoming, Refusal, Session, Ticket};
