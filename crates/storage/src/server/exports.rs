//! [`ExportTable`]: what is offered now.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use landfall_nbd::server::Exports;
use landfall_nbd::{BlockSizes, Export, Features};

use crate::device::BlockDevice;

/// What a server offers under a name.
pub(crate) struct Offered {
    pub(crate) name: String,
    pub(crate) device: Arc<dyn BlockDevice>,
    description: String,
    blocks: BlockSizes,
    read_only: bool,
    tls_only: bool,
    removed: AtomicBool,
}

impl Offered {
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    fn export(&self) -> Export {
        let mut features = self.device.features();
        if self.read_only {
            let writes = Features::TRIM
                .with(Features::WRITE_ZEROES)
                .with(Features::FAST_ZERO)
                .with(Features::RESIZE);
            features = features.without(writes).with(Features::READ_ONLY);
        }
        Export {
            name: self.name.clone(),
            description: self.description.clone(),
            size: self.device.size(),
            features,
            blocks: self.blocks,
            tls_only: self.tls_only,
        }
    }
}

/// A device and the way it is offered.
///
/// ```
/// use landfall_storage::device::MemoryDevice;
/// use landfall_storage::server::Offer;
///
/// let offer = Offer::new("scratch", MemoryDevice::new(1 << 30)).description("gone at the end");
/// ```
#[must_use]
pub struct Offer(Offered);

impl Offer {
    /// Offers a device under this name.
    pub fn new(name: impl Into<String>, device: impl BlockDevice + 'static) -> Self {
        Self::shared(name, Arc::new(device))
    }

    /// The same for a device that others have, too.
    pub fn shared(name: impl Into<String>, device: Arc<dyn BlockDevice>) -> Self {
        Self(Offered {
            name: name.into(),
            device,
            description: String::new(),
            blocks: BlockSizes::BYTES,
            read_only: false,
            tls_only: false,
            removed: AtomicBool::new(false),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// A few words for people.
    pub fn description(mut self, words: impl Into<String>) -> Self {
        self.0.description = words.into();
        self
    }

    /// Nobody writes, whatever the device can.
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.0.read_only = read_only;
        self
    }

    /// The sizes of blocks that clients have to keep to.
    ///
    /// # Panics
    /// The protocol does not allow these: see [`BlockSizes::is_valid`].
    pub const fn blocks(mut self, blocks: BlockSizes) -> Self {
        assert!(blocks.is_valid(), "the protocol does not allow blocks of these sizes");
        self.0.blocks = blocks;
        self
    }

    /// Only for clients with TLS.
    pub const fn tls_only(mut self, tls_only: bool) -> Self {
        self.0.tls_only = tls_only;
        self
    }
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Offer").field(&self.0.name).finish()
    }
}

/// What is offered now; it may change while clients are there.
#[derive(Default)]
pub(crate) struct ExportTable(RwLock<Vec<Arc<Offered>>>);

impl ExportTable {
    fn all(&self) -> Vec<Arc<Offered>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds one; false where the name is taken.
    pub(crate) fn add(&self, offer: Offer) -> bool {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_free = all.iter().all(|other| other.name != offer.0.name);
        if is_free {
            all.push(Arc::new(offer.0));
        }
        is_free
    }

    /// Takes one away; anyone who uses it is told so at the next request. False: there is none.
    pub(crate) fn remove(&self, name: &str) -> bool {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = all.iter().position(|offered| offered.name == name) else { return false };
        all.remove(at).removed.store(true, Ordering::Release);
        true
    }

    /// The one of this name. The empty name is the only one that there is, if it is no name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Offered>> {
        let all = self.all();
        let found = all.iter().find(|offered| offered.name == name);
        let only = || all.first().filter(|_| name.is_empty() && all.len() == 1);
        found.or_else(only).cloned()
    }
}

impl Exports for ExportTable {
    fn list(&self, secure: bool) -> Vec<(String, String)> {
        let visible = self.all().into_iter().filter(|offered| secure || !offered.tls_only);
        visible.map(|offered| (offered.name.clone(), offered.description.clone())).collect()
    }

    fn find(&self, name: &str) -> Option<Export> {
        self.get(name).map(|offered| offered.export())
    }
}
