//! The client's end: [`Negotiation`] until there is an export, then a [`Session`].
//!
//! ```
//! use landfall_nbd::client::{Negotiation, Event, Wanted};
//! use landfall_nbd::{Command, Export, server};
//!
//! // Both ends, without a network between them.
//! let exports = vec![Export::new("disk", 1 << 20)];
//! let mut server = server::Negotiation::new(server::Config::default());
//! let mut client = Negotiation::new(Wanted::export("disk"));
//! let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
//! let (mut session, mut serving) = loop {
//!     to_client.extend(server.poll_output().unwrap_or_default());
//!     let (used, step) = client.handle(&to_client)?;
//!     to_client.drain(..used);
//!     to_server.extend(client.poll_output().unwrap_or_default());
//!     let (used, says) = server.handle(&to_server, &exports)?;
//!     to_server.drain(..used);
//!     if let server::Step::Transmission(serving) = says {
//!         to_client.extend(server.poll_output().unwrap_or_default());
//!         let session = loop {
//!             let (used, step) = client.handle(&to_client)?;
//!             to_client.drain(..used);
//!             if let landfall_nbd::client::Step::Transmission(session) = step { break session }
//!         };
//!         break (session, serving);
//!     }
//! };
//!
//! // A read, and its reply.
//! let mut request = Vec::new();
//! let read = Command::Read { offset: 0, length: 4096, dont_fragment: false };
//! let cookie = session.issue(&read, &mut request)?;
//! let incoming = serving.request(&request, serving.export().size)?;
//! let mut reply = Vec::new();
//! serving.hole(&mut reply, incoming.ticket, 0, 4096, true);
//! let (used, event) = session.handle(&reply)?.expect("all of it is there");
//! assert_eq!(event, Event::Hole { cookie, at: 0, len: 4096 });
//! let (_, event) = session.handle(&reply[used..])?.expect("and that was all");
//! assert!(matches!(event, Event::Done { result: Ok(()), .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod negotiation;
mod session;

pub use negotiation::{Failure, Listed, Negotiation, Purpose, Security, Step, Wanted};
pub use session::{Event, Failed, IssueError, Session};
