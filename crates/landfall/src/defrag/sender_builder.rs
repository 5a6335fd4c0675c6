//! [`SenderBuilder`]: everything that can be chosen about a sender.

use std::fmt;
use std::path::PathBuf;

use landfall_placement::{Duration, Seed};
use landfall_seal::Fingerprint;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Interface};
use landfall_transport::scatter::{self, Cutting, Socket};
use spec_defrag::admission::{Requester, RequesterConfig};
use spec_defrag::cut::{Cutter, Df};

use super::asking::{AskedReceiver, Asking, Control};
use super::builder::seed_of_the_system;
use super::channel::{Channel, ReceiverAddress};
use super::error::OpenError;
use super::sender::{CutBy, Fate, Fates, Hook, Parts, Sender};
use crate::security::{Identity, KnownPeers, Security};

/// Chooses what a sender is like, then opens it.
#[must_use = "nothing happens until it is opened"]
pub struct SenderBuilder {
    interface: Interface,
    mtu: Option<u16>,
    df: Df,
    cut_by: CutBy,
    ask: Option<RequesterConfig>,
    security: Security,
    /// The name that the receiver's certificate has to have.
    receiver_name: Option<Box<str>>,
    socket_buffer: usize,
    bypass_queue: bool,
    patience: Duration,
    hook: Option<Box<Hook>>,
    seed: Option<Seed>,
}

impl SenderBuilder {
    pub(super) fn new(interface: Interface) -> Self {
        let usual = scatter::Config::new(interface.clone(), Filter::any());
        Self {
            interface,
            mtu: None,
            df: Df::Refuse,
            cut_by: CutBy::default(),
            ask: None,
            security: Security::default(),
            receiver_name: None,
            socket_buffer: usual.socket_buffer,
            bypass_queue: false,
            patience: Duration::from_secs(5),
            hook: None,
            seed: None,
        }
    }

    /// The most bytes of IP in a frame. Without this, the MTU of the interface.
    pub const fn mtu(mut self, mtu: u16) -> Self {
        self.mtu = Some(mtu);
        self
    }

    /// What becomes of packets that say that they are not to be cut: an error, unless
    /// you choose otherwise.
    pub const fn dont_fragment(mut self, df: Df) -> Self {
        self.df = df;
        self
    }

    /// Who cuts datagrams. Other packets the sender always cuts itself.
    pub const fn cut_by(mut self, who: CutBy) -> Self {
        self.cut_by = who;
        self
    }

    /// Asks this receiver before sending much to it, and keeps to what it says:
    /// `RequesterConfig::new([0; 6], receiver)`, where the sender's own address is
    /// filled in. Requests and answers are encrypted, unless [`plaintext`](Self::plaintext)
    /// says otherwise.
    pub const fn ask(mut self, config: RequesterConfig) -> Self {
        self.ask = Some(config);
        self
    }

    /// Asks in clear: anyone who is on the way reads what is asked and answered, and answers in the
    /// receiver's place. The receiver must be built so, too.
    pub const fn plaintext(mut self) -> Self {
        self.security.is_plain = true;
        self
    }

    /// Proves itself to the receiver that it asks with this identity. Without this it is [that of
    /// the user](Identity::of_user).
    pub fn identity(mut self, identity: Identity) -> Self {
        self.security.set_identity(identity);
        self
    }

    /// Both ends prove that they have these 32 random bytes, and nothing else.
    pub fn preshared_key(mut self, key: [u8; 32]) -> Self {
        self.security.set_preshared_key(key);
        self
    }

    /// Proves itself by certificates or raw public keys, in TLS 1.3, and believes a receiver whose
    /// certificate is for this name and whom these trust. The receiver must be built so, too.
    #[cfg(feature = "certificates")]
    pub fn certificates(
        mut self,
        certificates: crate::security::Certificates,
        receiver: &str,
    ) -> Self {
        self.security.set_certificates(certificates);
        self.receiver_name = Some(receiver.into());
        self
    }

    /// Where receivers that it asks are remembered, with the keys that they showed first. Without
    /// this it is [the file of the user](KnownPeers::of_user).
    pub fn known_peers(mut self, known: KnownPeers) -> Self {
        self.security.set_known_peers(known);
        self
    }

    /// Only a receiver with one of these keys is believed.
    pub fn only_peers(mut self, peers: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.security.set_only(peers.into_iter().collect());
        self
    }

    /// Writes the keys of admission control to a file, for captures to be opened with. **Anyone who
    /// reads the file can read all that was recorded, and forge what is still to come.** Without
    /// this it is the file that `LANDFALL_KEYLOG` names, or none.
    pub fn key_log(mut self, file: impl Into<PathBuf>) -> Self {
        self.security.set_key_log(file.into());
        self
    }

    /// How many bytes of frames the kernel keeps for the socket.
    pub const fn socket_buffer(mut self, bytes: usize) -> Self {
        self.socket_buffer = bytes;
        self
    }

    /// Passes the queueing discipline of the interface by. The kernel cuts nothing
    /// then.
    pub const fn bypass_queue(mut self, bypass: bool) -> Self {
        self.bypass_queue = bypass;
        self
    }

    /// How long to wait for room in the kernel before the link counts as stuck.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Decides what becomes of each frame, by its head and by how much follows: for
    /// tests, and to show what loss does. The sender cuts by itself then.
    pub fn fate(mut self, hook: impl FnMut(&[u8], u32) -> Fate + Send + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// What determines the identifications that strangers must not guess: for tests.
    /// Without this the operating system chooses.
    pub const fn seed(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens the sender, in the network namespace of this thread.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing, and what would help.
    pub fn open(self) -> Result<Sender, OpenError> {
        /// Reserved: nobody sends it, so nothing is heard.
        const NOTHING: u16 = 0xffff;
        let seed = self.seed.map_or_else(seed_of_the_system, Ok)?;
        let regions = Regions::new(1 << 16);
        let config = scatter::Config {
            socket_buffer: self.socket_buffer,
            bypass_queue: self.bypass_queue,
            ..scatter::Config::new(self.interface.clone(), Filter::ethertypes([NOTHING]))
        };
        let socket = Socket::open(&config, &regions)?;
        let wants_kernel = self.cut_by != CutBy::Sender && self.hook.is_none();
        let cutting = match wants_kernel && !self.bypass_queue {
            true => match Cutting::open(&config, &regions) {
                Err(_) if self.cut_by == CutBy::Auto => None,
                opened => Some(opened?),
            },
            false => None,
        };
        let asking = match self.ask {
            Some(config) => {
                let control = Control::open(&self.interface, &regions)?;
                let config = RequesterConfig { address: socket.station(), ..config };
                let RequesterConfig { address, receiver, priority, .. } = config;
                let requester = Requester::new(config, seed)?;
                let callee = ReceiverAddress { station: receiver, name: self.receiver_name };
                let channel = Channel::of_sender(self.security, address, callee, priority)?;
                Some(Asking::new(control, AskedReceiver::new(channel, requester, receiver)))
            }
            None => None,
        };
        let mtu = self.mtu.unwrap_or(u16::try_from(socket.mtu()).unwrap_or(u16::MAX));
        Ok(Sender::new(Parts {
            cutter: Cutter::new(self.df, seed),
            cut_by: self.cut_by,
            fates: Fates::new(self.hook),
            patience: self.patience,
            socket,
            cutting,
            asking,
            mtu,
            regions,
        }))
    }
}

impl fmt::Debug for SenderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderBuilder").field("interface", &self.interface).finish_non_exhaustive()
    }
}
