//! [`Session`]: what one client knows of an export: nodes that it was told of, and handles.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use landfall_files::{Attributes, Errno, FileKind, ROOT, Release};

use super::export::Export;
use crate::files::locked;

/// The most nodes and handles of a client: more than a process may have descriptors of.
const MOST: usize = 4 << 20;

/// A node that a client was told of.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) file: Arc<OwnedFd>,
    pub(super) kind: FileKind,
}

/// Something that a client has opened.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) file: OwnedFd,
    /// A directory: it is read by one request at a time.
    pub(super) directory: Option<Mutex<()>>,
}

/// All channels of a client share one.
#[derive(Debug)]
pub(super) struct Session {
    root: Node,
    nodes: Mutex<HashMap<u64, Counted>>,
    handles: Mutex<Handles>,
}

#[derive(Debug)]
struct Counted {
    node: Node,
    /// How often the client was told of it.
    count: u64,
}

#[derive(Debug, Default)]
struct Handles {
    open: HashMap<u64, Arc<Handle>>,
    last: u64,
}

impl Session {
    pub(super) fn open(export: &Export) -> Result<Self, Errno> {
        let file = Arc::new(export.node_of(&export.root)?);
        let root = Node { file, kind: FileKind::Directory };
        Ok(Self { root, nodes: Mutex::default(), handles: Mutex::default() })
    }

    /// A node that it was told of.
    pub(super) fn node(&self, number: u64) -> Result<Node, Errno> {
        if number == ROOT {
            return Ok(self.root.clone());
        }
        let found = locked(&self.nodes).get(&number).map(|counted| counted.node.clone());
        found.ok_or(Errno::STALE)
    }

    /// It is told of a node, whose descriptor is kept until it says that it needs it no more.
    /// While it is, the number is no other's.
    pub(super) fn tell(&self, attributes: &Attributes, file: OwnedFd) -> Result<(), Errno> {
        if attributes.node == ROOT {
            return Ok(());
        }
        let mut nodes = locked(&self.nodes);
        if nodes.len() >= MOST {
            return Err(Errno::new(23));
        }
        let fresh =
            || Counted { node: Node { file: Arc::new(file), kind: attributes.kind }, count: 0 };
        nodes.entry(attributes.node).or_insert_with(fresh).count += 1;
        Ok(())
    }

    pub(super) fn add_handle(&self, handle: Handle) -> Result<u64, Errno> {
        let mut handles = locked(&self.handles);
        if handles.open.len() >= MOST {
            return Err(Errno::new(23));
        }
        handles.last += 1;
        let number = handles.last;
        handles.open.insert(number, Arc::new(handle));
        Ok(number)
    }

    pub(super) fn handle(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        locked(&self.handles).open.get(&number).cloned().ok_or(Errno::BAD_HANDLE)
    }

    /// What it names wrongly is none of anybody else's, and is ignored.
    pub(super) fn release(&self, release: Release) {
        match release {
            Release::Handle { handle } => {
                let closed = locked(&self.handles).open.remove(&handle);
                // Without the lock: it may be the last of a large file.
                drop(closed);
            }
            Release::Node { node, count } => {
                let mut nodes = locked(&self.nodes);
                let is_last = nodes.get_mut(&node).is_some_and(|counted| {
                    counted.count = counted.count.saturating_sub(count);
                    counted.count == 0
                });
                let forgotten = is_last.then(|| nodes.remove(&node));
                drop(nodes);
                drop(forgotten);
            }
        }
    }

    /// How many nodes and handles it has.
    pub(super) fn held(&self) -> (usize, usize) {
        (locked(&self.nodes).len(), locked(&self.handles).open.len())
    }
}
