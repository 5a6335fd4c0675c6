//! Packets larger than the wire has: cut and joined at the lowest level, without the
//! last copy, for threads and tasks.
//!
//! | what | how |
//! | --- | --- |
//! | packets from an interface, whole | [`Receiver::builder`], [`Receiver::receive`], [`Packet`] |
//! | how frames come in | [`Technique`], [`Receiver::chosen`] |
//! | how packets are handed out | [`Delivery`]: as a list of where their fragments lie (by default), where they were joined, moved by the page table, or copied |
//! | several receivers for one interface | [`ReceiverBuilder::open_members`] |
//! | the same for tasks | [`Receiver::into_tasks`], [`Packets`] |
//! | the payloads of datagrams | [`PageReceiver`], [`Page`] |
//! | packets of a page, cut for the wire | [`Sender::builder`], [`Sender::send`] |
//! | datagrams for ordinary sockets | [`Datagrams`], [`Sender::send_datagrams`], [`CutBy`] |
//! | one fast sender at a time | [`ReceiverBuilder::gate`], [`SenderBuilder::ask`], [`Sender::begin`], [`Sender::ask`] |
//! | what the network does to frames | [`SenderBuilder::fate`] |
//!
//! # Who may be at the other end
//!
//! Anybody: on the wire there are ordinary IP fragments. What a [`Sender`] cuts any
//! kernel joins; what a kernel cuts a [`Receiver`] joins: by default it lends packets where
//! their fragments lie ([`Delivery::List`]); with [`Technique::Packet`] it guesses, as soon as it has
//! seen how they are cut.
//!
//! # Beside the kernel
//!
//! A receiver hears an interface that the kernel hears as well, which joins the same
//! fragments again and throws them away. To save that work, let it drop fragments to
//! the address at netdev ingress (nftables, priority -500): with
//! [`CapturePoint::Everything`] they are heard before. [`Technique::Xdp`] takes them away
//! by itself.
//!
//! # Who reads and answers requests
//!
//! What a sender asks a receiver, and what that answers, is encrypted and authenticated with the
//! keys of a handshake: [`SenderBuilder::identity`], [`SenderBuilder::preshared_key`],
//! `certificates` and the like say who may. A receiver that is built [in clear](ReceiverBuilder::plaintext) has the answers of
//! senders that are built so, and of nobody else. The packets themselves are those of anyone who
//! sends them, and as safe as what is in them.
//!
//! # Who runs it
//!
//! The thread that calls. There is none beside it, unless
//! [`into_tasks`](Receiver::into_tasks) makes one.
//!
//! What does not live here: what is guessed, and how pieces are joined (`spec-defrag`);
//! sockets, rings and pages (`landfall-transport`).

mod asking;
pub mod bigmtu;
mod builder;
mod channel;
mod datagram;
mod delivery;
mod error;
mod opening;
mod packet;
mod page_receiver;
mod receive_path;
mod receiver;
mod registered;
mod sender;
mod sender_builder;
mod tasks;
mod technique;

pub use builder::ReceiverBuilder;
pub use datagram::{DATAGRAM_MAX, Datagrams, Station};
pub use error::{Error, NoKeys, OpenError};
pub use packet::Packet;
pub use page_receiver::{Page, PageReceiver};
pub use receiver::Receiver;
pub use registered::{Part, Registered};
pub use sender::{CutBy, Fate, Outgoing, Sender};
pub use sender_builder::SenderBuilder;
pub use tasks::Packets;
pub use technique::{Chosen, Delivery, ReceiverStats, SenderStats, Technique, Wanted};

#[cfg(feature = "certificates")]
pub use crate::security::Certificates;
pub use crate::security::{Identity, KnownPeers, SecurityError, read_preshared_key};
pub use landfall_seal::{Fingerprint, HandshakeError, PeerIdentity, SealStats};
pub use landfall_transport::Wait;
pub use landfall_transport::memory::Memory;
pub use landfall_transport::packet::Filter;
pub use landfall_transport::scatter::CapturePoint;
pub use spec_defrag::admission::{
    Answer, Gate, GateConfig, Mode, RequesterConfig, RequesterEvent, TransferId,
};
pub use spec_defrag::cut::Df;
pub use spec_defrag::{
    Head, HeadLens, PayloadLens, Prediction, ReassemblyPath, Shape, Stats, conventional,
};
