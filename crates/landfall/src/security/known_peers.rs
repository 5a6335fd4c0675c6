//! [`KnownPeers`]: trust on first use.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use landfall_placement::Peer;
use landfall_seal::{Fingerprint, HandshakeError};

use super::identity::{about, state_folder};

/// Peers by address, with the keys that they showed first: who shows another one later is
/// refused.
#[derive(Clone, Debug)]
pub struct KnownPeers(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    file: Option<PathBuf>,
    peers: BTreeMap<String, Fingerprint>,
}

impl KnownPeers {
    /// Remembered as long as the process runs.
    #[must_use]
    pub fn in_memory() -> Self {
        Self(Arc::new(Mutex::new(Known::default())))
    }

    /// Remembered in a file: a line for each, with its address and the fingerprint of its key.
    ///
    /// # Errors
    /// The file can be neither read nor made, or a line of it makes no sense.
    pub fn in_file(path: &Path) -> io::Result<Self> {
        Self::read(path).map_err(|error| about(path, &error))
    }

    fn read(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let mut peers = BTreeMap::new();
        for (nth, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let entry = line.trim().split_once(' ');
            let entry = entry.and_then(|(peer, key)| Some((peer, key.trim().parse().ok()?)));
            let (peer, key) = entry.ok_or_else(|| {
                let what = format!("line {}: no peer and fingerprint", nth + 1);
                io::Error::new(io::ErrorKind::InvalidData, what)
            })?;
            peers.insert(peer.to_owned(), key);
        }
        Ok(Self(Arc::new(Mutex::new(Known { file: Some(path.to_owned()), peers }))))
    }

    /// Those of this user: beside [`Identity::of_user`](super::Identity::of_user).
    ///
    /// # Errors
    /// As [`in_file`](Self::in_file), or nothing says where it should be.
    pub fn of_user() -> io::Result<Self> {
        Self::in_file(&state_folder()?.join("known_peers"))
    }

    /// Is it the key that this peer showed first?
    pub(super) fn check(&self, peer: Peer, key: Fingerprint) -> Result<(), HandshakeError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = peer.to_string();
        if let Some(first) = known.peers.get(&name) {
            return if *first == key { Ok(()) } else { Err(HandshakeError::WrongPeer(key)) };
        }
        if let Some(file) = &known.file {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(file);
            // In one piece: other processes of this user append, too.
            let line = format!("{name} {key}\n");
            // What cannot be written down is remembered all the same, for this time.
            let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        }
        known.peers.insert(name, key);
        Ok(())
    }

    pub(super) fn place(&self) -> Option<PathBuf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).file.clone()
    }
}

#[cfg(test)]
mod tests {
    use landfall_seal::PublicKey;

    use super::super::{advice, folder_of_test};
    use super::*;

    #[test]
    fn many_who_remember_at_once_tear_no_line() {
        let folder = folder_of_test("known-at-once");
        let path = folder.join("known_peers");
        let key = PublicKey([3; 32]).fingerprint();
        // Each has a view of its own, as processes have.
        std::thread::scope(|scope| {
            for thread in 0..4_u16 {
                let known = KnownPeers::in_file(&path).unwrap();
                scope.spawn(move || {
                    for port in 1..=200 {
                        let peer = Peer::Socket(([192, 0, 2, thread as u8], port).into());
                        assert_eq!(known.check(peer, key), Ok(()));
                    }
                });
            }
        });
        assert!(KnownPeers::in_file(&path).is_ok());
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 800);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_peer_that_shows_another_key_later_is_refused() {
        let folder = folder_of_test("known");
        let path = folder.join("known_peers");
        let [first, other] = [1, 2].map(|byte| PublicKey([byte; 32]).fingerprint());
        let peer = Peer::Socket("192.0.2.1:8181".parse().unwrap());
        let known = KnownPeers::in_file(&path).unwrap();
        assert_eq!(known.check(peer, first), Ok(()));
        assert_eq!(known.check(peer, other), Err(HandshakeError::WrongPeer(other)));
        // And by who reads the file later.
        let known = KnownPeers::in_file(&path).unwrap();
        assert_eq!(known.check(peer, first), Ok(()));
        assert_eq!(known.check(peer, other), Err(HandshakeError::WrongPeer(other)));
        assert!(
            advice(HandshakeError::WrongPeer(other), Some(&path), "`connect_pinned`")
                .contains("known_peers")
        );
        fs::write(&path, "what is this\n").unwrap();
        assert!(KnownPeers::in_file(&path).unwrap_err().to_string().contains("line 1"));
        fs::remove_dir_all(folder).unwrap();
    }
}
