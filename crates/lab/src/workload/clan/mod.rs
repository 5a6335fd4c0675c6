//! CLAN at work: two nodes of any fabric, and what they do with each other.
//!
//! | file | what it is |
//! | --- | --- |
//! | `job` | what is done, for how long, and what came of it; how the two sides exchange their cookies |
//! | `word` | a word written, seen and answered |
//! | `message` | a message written, its end seen and answered |
//! | `elements` | elements through a distributed queue; memory into the other side's memory |
//! | `bytes` | bytes through a stream |
//! | `threads` | two sides as threads of this process |
//! | `network` | two nodes over UDP or Ethernet |
//! | `process` | the other side as a process of its own, over shared memory |
//! | `bare` | what the machine itself gives: two words, and copies |

pub(crate) mod bare;
mod bytes;
mod elements;
pub(crate) mod job;
mod message;
pub(crate) mod network;
pub mod process;
mod threads;
mod word;

use anyhow::Result;
use landfall::clan::Fabric;

use job::{Answered, InitiatorResult, Job, Meet, Work};

/// The side that begins, and that counts.
fn ask<F: Fabric>(fabric: &F, meet: &mut dyn Meet, job: &Job) -> Result<InitiatorResult> {
    match job.work {
        Work::Word { .. } => word::ask(fabric, meet, job),
        Work::Message { .. } => message::ask(fabric, meet, job),
        Work::Elements { batch, .. } => elements::put(fabric, meet, job, batch),
        Work::Dma { request } => elements::write(fabric, meet, job, request),
        Work::Bytes { message, acknowledged } => {
            bytes::write(fabric, meet, job, (message, acknowledged))
        }
    }
}

/// The other side, until the first one has had enough.
fn answer<F: Fabric>(fabric: &F, meet: &mut dyn Meet, job: &Job) -> Result<Answered> {
    match job.work {
        Work::Word { .. } => word::answer(fabric, meet, job),
        Work::Message { .. } => message::answer(fabric, meet, job),
        Work::Elements { .. } => elements::get(fabric, meet, job),
        Work::Dma { request } => elements::receive(fabric, meet, job, request),
        Work::Bytes { message, acknowledged } => {
            bytes::read(fabric, meet, job, (message, acknowledged))
        }
    }
}
