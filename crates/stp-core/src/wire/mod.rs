//! What crosses the wire: the Schedule Header, and what it means.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`header`] | the 40 bytes, field by field, and the checksum |
//! | [`op`] | the operations and the flags |
//! | [`message`] | each operation with its parameters by name: [`Message`] |
//! | [`decode`](Message::decode), [`encode`](Message::encode) | between the two, in `codec` |
//! | [`carrier`] | ethertype, IP protocol, UDP port |
//! | [`proof`] | the proof that a packet comes from the other side |
//! | [`hold`] | a duration in 16 bits |
//! | [`reason`] | why something was refused or ended |
//!
//! `docs/spec/stp.md` lays the bytes out and has test vectors. What does not
//! live here: what an operation does.

mod codec;
pub mod header;
pub mod hold;
pub mod message;
pub mod op;
pub mod proof;
pub mod reason;

pub use header::{HEADER_LEN, Header, LONGEST_HEAD};
pub use message::{Envelope, Message};
pub use op::{Flags, Op};
pub use reason::Reason;

/// What STP packets are carried by.
pub mod carrier {
    /// The ethertype of STP.
    pub const ETHERTYPE: u16 = 0x8181;

    /// The number of STP among the protocols on IP.
    pub const IP_PROTOCOL: u8 = 118;

    /// The UDP port where nothing else is configured. None is registered; this one
    /// has the digits of the ethertype.
    pub const UDP_PORT: u16 = 8181;
}
