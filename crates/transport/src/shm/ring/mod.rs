//! Rings between two processes, or two threads: one fills, one empties, nobody
//! waits for a lock.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Records`] | how a ring of records of one length lies in memory |
//! | [`Producer`], [`Consumer`] | its two ends |
//! | [`Bytes`] | how a ring of bytes lies in memory |
//! | [`ByteProducer`], [`ByteConsumer`] | its two ends |
//! | [`Corrupt`] | what the other side wrote cannot be |
//!
//! Each side keeps its counter in private and publishes copies, which the other
//! looks at only when the ring seems full or empty, and believes only within the
//! ring. So a side that scribbles over everything spoils what it says, never what
//! the other side owns: every place is computed from one's own counter.
//!
//! **Publication.** What was pushed is seen by the other side after a
//! [`publish`](Producer::publish), and all at once. A batch pays for one transfer of
//! the counter between the cores instead of one each. When to publish is the
//! caller's to say, who has a clock; a ring that is full publishes by itself, so
//! that nothing ever waits for a publication that cannot come. A side that dies
//! before it published has said nothing: what is read was written whole.
//!
//! What does not live here: waking who sleeps (that is [`wake`](super::wake)), and
//! what the bytes mean.

mod bytes;
mod layout;
mod records;

pub use bytes::{ByteConsumer, ByteProducer};
pub use layout::{Bytes, Corrupt, LayoutError, Records};
pub(crate) use layout::{Emptied, Filled};
pub use records::{Consumer, Producer, PushError};
