//! Completion queues and counters, as data.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::Arc;

use crate::abi::{
    FI_ADDR_NOTAVAIL, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_MSG, fi_cq_err_entry,
    fi_cq_tagged_entry,
};
use crate::notify::Event;

/// Something is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The address that the program gave along.
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buffer: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// Whom a message is from.
    pub(crate) source: u64,
}

impl Completion {
    pub(crate) const fn new(context: usize, flags: u64) -> Self {
        let source = FI_ADDR_NOTAVAIL;
        Self { context, flags, len: 0, buffer: 0, data: 0, tag: 0, source }
    }
}

/// Why something went wrong: an error number of libfabric, and what it is called here.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: c_int,
    /// Bytes of a message that found no room.
    pub(crate) left_out: usize,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(error: c_int, text: impl Into<String>) -> Self {
        Self { error, left_out: 0, text: text.into() }
    }
}

#[derive(Debug)]
struct Entry {
    completion: Completion,
    failure: Option<Failure>,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    format: c_int,
    /// While this many wait, no operation begins.
    size: usize,
    pub(crate) event: Option<Arc<Event>>,
    texts: Texts,
    /// Somebody shall stop waiting.
    pub(crate) is_signalled: bool,
}

/// This many receives may be posted.
pub(crate) const MOST_POSTED: usize = 1 << 16;

/// This many texts of errors are kept.
const TEXTS: usize = 64;

/// Texts of errors that were read, by the number that their entries have.
#[derive(Debug)]
pub(crate) struct Texts {
    known: VecDeque<(c_int, String)>,
    next: c_int,
}

impl Texts {
    pub(crate) const fn new() -> Self {
        Self { known: VecDeque::new(), next: 1 }
    }

    /// Keeps a text for a while; its number.
    pub(crate) fn keep(&mut self, text: String) -> c_int {
        let number = self.next;
        self.next = number.checked_add(1).unwrap_or(1);
        self.known.push_back((number, text));
        if self.known.len() > TEXTS {
            self.known.pop_front();
        }
        number
    }

    pub(crate) fn get(&self, number: c_int) -> Option<&str> {
        let text = self.known.iter().find(|(known, _)| *known == number)?;
        Some(&text.1)
    }
}

impl Queue {
    pub(crate) const fn new(format: c_int, size: usize, event: Option<Arc<Event>>) -> Self {
        Self {
            entries: VecDeque::new(),
            format,
            size,
            event,
            texts: Texts::new(),
            is_signalled: false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.size
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Must peers not add to what waits? A receive that was posted has its place:
    /// none is posted while the queue is full. What peers do unasked has none.
    pub(crate) fn is_overfull(&self) -> bool {
        self.entries.len() >= self.size.saturating_add(MOST_POSTED)
    }

    pub(crate) fn has_error(&self) -> bool {
        self.entries.front().is_some_and(|entry| entry.failure.is_some())
    }

    pub(crate) fn push(&mut self, completion: Completion, failure: Option<Failure>) {
        self.entries.push_back(Entry { completion, failure });
        if let Some(event) = &self.event {
            event.ring();
        }
    }

    /// The next completion, if the next entry is one.
    pub(crate) fn take(&mut self) -> Option<Completion> {
        if self.has_error() {
            return None;
        }
        Some(self.entries.pop_front()?.completion)
    }

    /// How many bytes an entry of this queue has.
    pub(crate) const fn entry_size(&self) -> usize {
        match self.format {
            FI_CQ_FORMAT_CONTEXT => 8,
            FI_CQ_FORMAT_MSG => 24,
            FI_CQ_FORMAT_DATA => 40,
            _ => size_of::<fi_cq_tagged_entry>(),
        }
    }

    /// The next error.
    pub(crate) fn take_error(&mut self) -> Option<fi_cq_err_entry> {
        if !self.has_error() {
            return None;
        }
        let Entry { completion, failure } = self.entries.pop_front()?;
        let failure = failure?;
        let number = self.texts.keep(failure.text);
        Some(fi_cq_err_entry {
            op_context: completion.context as *mut c_void,
            flags: completion.flags,
            len: completion.len,
            buf: completion.buffer as *mut c_void,
            data: completion.data,
            tag: completion.tag,
            olen: failure.left_out,
            err: failure.error,
            prov_errno: number,
            err_data: std::ptr::null_mut(),
            err_data_size: 0,
        })
    }

    /// What an error was that was read.
    pub(crate) fn text(&self, number: c_int) -> Option<&str> {
        self.texts.get(number)
    }
}

impl From<Completion> for fi_cq_tagged_entry {
    fn from(completion: Completion) -> Self {
        Self {
            op_context: completion.context as *mut c_void,
            flags: completion.flags,
            len: completion.len,
            buf: completion.buffer as *mut c_void,
            data: completion.data,
            tag: completion.tag,
        }
    }
}

/// A counter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) value: u64,
    pub(crate) errors: u64,
}
